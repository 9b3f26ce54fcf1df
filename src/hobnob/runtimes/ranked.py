"""One run seen from one rank of an MPI job.

The step of one agent is lifted by `jax.vmap` over the agents of the rank, as in the simulation.
What differs is the exchange: rows of agents that live elsewhere come through MPI, called from
within the compiled loop. Neighbours are added up in the order of their numbers, so the numbers are
the simulation's.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from hobnob import keys
from hobnob.agent import Exchange
from hobnob.algorithm import Algorithm
from hobnob.errors import ProblemError
from hobnob.links import Links
from hobnob.network import Network
from hobnob.problem import Problem
from hobnob.runtimes.foreign import call
from hobnob.runtimes.halo import TOKEN, Halo
from hobnob.runtimes.simulate import Advance, Simulation, World
from hobnob.runtimes.turns import all_finite
from hobnob.runtimes.wire import Wire


class MpiRun(Simulation):
    """One run, seen from one rank. A state holds the agents of this rank."""

    alone = False

    def __init__(
        self,
        wire: Wire,
        parts: list[np.ndarray],
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        seeds: int | Sequence[int],
        links: Links | None = None,
    ):
        self._wire, self._parts = wire, parts
        self.leads, self.crowded = wire.rank == 0, wire.crowded
        self._halos = {
            level: Halo(W, parts, wire, links, problem.dtype)
            for level, W in {"": network, **network.levels}.items()
        }
        self._across = {level: _made_across(halo) for level, halo in self._halos.items()}
        self._to_server = _made_mean(wire, network.size)
        super().__init__(problem, network, algorithm, seeds, links)
        self._check_alike()

    # --- what all ranks do together ------------------------------------------------------------

    @property
    def places(self) -> Any:
        return None if self.problem.unread else self._all_places

    @cached_property
    def _all_places(self) -> Any:
        return self.problem.place()

    def gathered(self, state: Any) -> Any:
        leaves, structure = jax.tree.flatten(state)
        found = [self._wire.gather(np.asarray(leaf)) for leaf in leaves]
        if not self.leads:
            return None
        return jax.tree.unflatten(structure, [self._in_order(parts) for parts in found])

    def everyone(self, leaf: Any) -> np.ndarray:
        return self._in_order(self._wire.allgather(np.asarray(leaf)))

    def told(self, act: Callable[[], Any]) -> Any:
        outcome: Any = None
        if self.leads:
            try:
                outcome = act(), None
            except Exception as error:
                self._wire.bcast((None, _as_parts(error)))
                raise
        value, failed = self._wire.bcast(outcome)
        if failed:
            raise _from_parts(failed)
        return value

    def share_of(self, state: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        axis = 1 if self.many_seeds else 0
        shares = None
        if state is not None:
            shares = [
                {name: np.take(value, part, axis) for name, value in state.items()}
                for part in self._parts
            ]
        return self._wire.scatter(shares)

    def measurable(self, names: Sequence[str]) -> list[str]:
        elsewhere = ("outer_loss", "inner_loss") if self.problem.unread else ()
        return [name for name in names if name not in elsewhere]

    def pooled_losses(self, state: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Each rank's own mean losses at the mean of all agents, weighed by its agents."""
        if not names:
            return {}
        share = len(self._agents_here()) / self.network.size
        x, y = (
            sum(self._wire.allgather(np.asarray(v).sum(axis=-2))) / self.network.size
            for v in (state.x, state.y)
        )
        own = self._measure_losses(self.world.places, x, y)
        every = self._wire.allgather({n: share * np.asarray(own[n]) for n in names})
        return {name: np.asarray(sum(part[name] for part in every)) for name in names}

    def fingerprint(self) -> dict[str, str]:
        if not self.problem.unread:
            return self.problem.fingerprint if self.leads else {}
        found = dict(self._hosted.fingerprint)
        for name in ("outer data", "inner data"):
            source = getattr(self._hosted, name.replace(" ", "_"))
            every = self._wire.allgather(source.digests())
            found[name] = source.fingerprint(self._in_order([np.array(d) for d in every]).tolist())
        return found

    # --- what differs from a simulation --------------------------------------------------------

    def advance(self, state: Any, start: int, stop: int) -> Advance:
        state, finite = self._advance(self.world, state, np.int32(start), np.int32(stop))
        return Advance(stop, state, all(self._wire.allgather(bool(finite))))

    def _loop(self, world: World, state: Any, start: jax.Array, stop: jax.Array) -> Any:
        # Nobody leaves early: the others would wait. What is not finite is seen afterwards.
        _, state = jax.lax.while_loop(
            lambda carry: carry[0] < stop,
            lambda carry: (carry[0] + 1, self._step(world, carry[1], carry[0])),
            (start, state),
        )
        return state, all_finite(state)

    def _host(self, problem: Problem) -> Problem:
        return problem.hosting(self._agents_here().tolist())

    def _agents_here(self) -> np.ndarray:
        return self._parts[self._wire.rank]

    def _tables(self) -> tuple[Any, Any]:
        tables = {level: halo.tables for level, halo in self._halos.items()}
        return tables, self._halos[""].failing

    def overwrite_large(self, state: Any) -> None:
        """Never: states differ in size, and all ranks must replay a divergence, or none."""

    def _kernel_for(self, seeds: int) -> None:
        return None

    def _exchange(self, index: Any, world: World, link_key: jax.Array, step: Any) -> Exchange:
        return _Exchange(self, index, world, link_key, step)

    def _samples_per_draw(self, source: Any) -> np.ndarray:
        return self.everyone(np.asarray(source.samples_per_draw(), np.int64))

    def _in_order(self, parts: list[np.ndarray]) -> np.ndarray:
        """Rank by rank -> agent by agent, along the axis of agents."""
        many = self.many_seeds and parts[0].ndim > 1
        axis = 1 if many else 0
        order = np.argsort(np.concatenate(self._parts))
        return np.take(np.concatenate(parts, axis), order, axis)

    @cached_property
    def _measure_losses(self) -> Any:
        problem = self._hosted

        def measure(places: Any, x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
            return {
                "outer_loss": problem.pooled_outer(x, y, places[0]),
                "inner_loss": problem.pooled_inner(x, y, places[1]),
            }

        return jax.jit(jax.vmap(measure, in_axes=(None, 0, 0)) if self.many_seeds else measure)

    def _check_alike(self) -> None:
        """Ranks run the same program: their shards must have the same structure and dtypes."""
        for source in (self._hosted.outer_data, self._hosted.inner_data):
            kinds = jax.tree.map(lambda a: f"{a.dtype}{list(a.shape[1:])}", source.arrays)
            every = self._wire.allgather(str(kinds))
            for rank, kind in enumerate(every):
                if kind != every[0]:
                    raise ProblemError(
                        f"{source.label}: the shard of agent {self._parts[rank][0]} (rank {rank}) "
                        f"holds {kind}, that of agent 0 {every[0]}. All agents run the same "
                        f"program, so their shards must have the same structure and dtypes."
                    )


class _Exchange:
    """What one agent's messages become. The token orders exchanges: each needs the one before."""

    def __init__(self, run: MpiRun, me: Any, world: World, link_key: Any, step: Any):
        self._run, self._me, self._world = run, me, world
        self._link_key, self._step = link_key, step
        self._token: Any = jnp.zeros((), jnp.int32)

    def mix(self, tree: Any, path: tuple[Any, ...], level: str | None) -> Any:
        links, down = self._run.links, None
        on = level if level in self._world.tables else ""
        if links is not None:
            down = links.down(keys.of_round(self._link_key, self._step, path), self._step)
        tables, failing = self._world.tables[on], self._world.failing
        across = self._run._across[on]
        tree, self._token = across(self._me, tables, failing, down, self._token, tree)
        return tree

    def to_server(self, tree: Any) -> Any:
        tree, self._token = self._run._to_server(self._me, self._token, tree)
        return tree

    def from_server(self, tree: Any) -> Any:
        return tree

    def loop(self, count: Any, body: Callable[[Any, Any, Any], Any], start: Any) -> Any:
        def turn(i: Any, carry: Any) -> Any:
            value, token = carry
            inside = copy(self)
            inside._token = token
            return body(inside, i, value), inside._token

        end, self._token = jax.lax.fori_loop(0, count, turn, (start, self._token))
        return end


def _made_across(halo: Halo) -> Any:
    """`across(me, tables, failing, down, token, tree)` for one agent; a batch of them is mixed."""

    @custom_vmap
    def across(me: Any, tables: Any, failing: Any, down: Any, token: Any, tree: Any) -> Any:
        return tree, token

    @across.def_vmap
    def _(size: int, batched: Any, me: Any, *given: Any) -> Any:
        me_batched, *_, token_batched, tree_batched = batched
        tables, failing, down, token, tree = given
        if not me_batched:
            return across(me, *given), (tree_batched, token_batched)
        tree, flags = _stacked(size, tree, tree_batched)
        token = token[0] if token_batched else token
        return halo.mix(tables, failing, down, token, tree), (flags, False)

    return across


def _made_mean(wire: Wire, agents: int) -> Any:
    """`mean(me, token, tree)`: the mean over all agents of all ranks."""

    @custom_vmap
    def total(flat: jax.Array, token: jax.Array) -> Any:
        summing = wire.reduction(flat.size, flat.dtype)
        shapes = jax.ShapeDtypeStruct(flat.shape, flat.dtype), TOKEN
        return tuple(call(summing, shapes, token, flat))

    @total.def_vmap
    def _(size: int, batched: Any, flat: jax.Array, token: jax.Array) -> Any:
        flat = flat if batched[0] else jnp.broadcast_to(flat, (size, *flat.shape))
        return total(flat, token[0] if batched[1] else token), (True, False)

    @custom_vmap
    def mean(me: Any, token: Any, tree: Any) -> Any:
        return tree, token

    @mean.def_vmap
    def _(size: int, batched: Any, me: Any, token: Any, tree: Any) -> Any:
        me_batched, token_batched, tree_batched = batched
        if not me_batched:
            return mean(me, token, tree), (tree_batched, token_batched)
        tree, flags = _stacked(size, tree, tree_batched)
        token = token[0] if token_batched else token
        leaves, structure = jax.tree.flatten(tree)
        sums = [leaf.sum(axis=0) for leaf in leaves]
        flat, token = total(jnp.concatenate([s.reshape(-1) for s in sums]), token)
        stops = np.cumsum([s.size for s in sums])
        means = [
            jnp.broadcast_to(flat[stop - s.size : stop].reshape(s.shape) / agents, leaf.shape)
            for leaf, s, stop in zip(leaves, sums, stops, strict=True)
        ]
        return (jax.tree.unflatten(structure, means), token), (flags, False)

    return mean


def _stacked(size: int, tree: Any, batched: Any) -> tuple[Any, Any]:
    whole = jax.tree.map(
        lambda leaf, stacked: leaf if stacked else jnp.broadcast_to(leaf, (size, *leaf.shape)),
        tree,
        batched,
    )
    return whole, jax.tree.map(lambda _: True, tree)


def _as_parts(error: Exception) -> bytes:
    try:
        parts = pickle.dumps((type(error), error.args, vars(error)))
        pickle.loads(parts)
        return parts
    except Exception:  # of a class, or with contents, that only rank 0 knows
        return pickle.dumps((RuntimeError, (f"{type(error).__name__}: {error}",), {}))


def _from_parts(parts: bytes) -> Exception:
    kind, args, more = pickle.loads(parts)
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(more)
    return error
