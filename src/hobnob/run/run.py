"""Run: a setup, a group and a carrier, made to work together.

The step of one agent is lifted by `jax.vmap` to the agents of this process and looped on the
device; several seeds are one more axis. Only the carrier's exchange crosses rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hobnob import fast
from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm
from hobnob.core.data import Source
from hobnob.core.group import Group
from hobnob.core.ledger import Costs, Ledger, link_of
from hobnob.core.network import Network
from hobnob.core.owners import Owners
from hobnob.core.problem import Problem
from hobnob.core.setup import Carrier, Runtime, Setup, Tree
from hobnob.fast import FastStep, StateLayout
from hobnob.ground import keys
from hobnob.ground.errors import ProblemError, SettingError
from hobnob.run.stays import Stays
from hobnob.run.turns import Advance, is_large, run_all, run_until, run_while

_FIRST = np.int32(0)  # a step number of the type that the loop counts with


class World(NamedTuple):
    """What the compiled program takes besides the state."""

    places: Tree  # the agents' data
    keys: jax.Array
    link_keys: jax.Array
    tables: Tree  # the carrier's
    rates: dict[str, jax.Array]


class Run:
    """One run, seen from one process. A state holds the agents of this process, packed."""

    #: The row of the history that was recorded last, by column.
    latest: dict[str, np.ndarray]
    #: True if `advance` overwrites the state that it is given.
    overwrites: bool = False
    #: Among other owners: the steps that this process made itself.
    made: int = 0

    def __init__(
        self,
        setup: Setup,
        group: Group,
        carrier: Carrier,
        programs: dict[Any, Any] | None = None,
    ):
        # True if all agents are in this process.
        self._whole = group.alone and group.owners is None
        if self._whole:
            setup = replace(setup, problem=setup.problem.loaded())
        self.setup, self.group, self._carrier, self.latest = setup, group, carrier, {}
        problem = setup.problem
        #: The problem with the data of this process only.
        self.hosted = problem if self._whole else problem.hosting(group.here.tolist())
        self._check_alike()
        faster = fast.enter()
        self._fast: FastStep | None = faster.step(setup) if faster and self._whole else None
        self.options = faster.compiler_options(problem.dtype, group.crowded) if faster else {}
        #: The form in which states are held.
        self.layout = self._fast.layout if self._fast else StateLayout()
        self._agents = jnp.asarray(group.here, jnp.uint32)
        agent_keys, link_keys = _keys(jnp.asarray(setup.seeds, jnp.uint32), self._agents)
        self.world = World(
            self.hosted.place(),
            agent_keys,
            link_keys,
            carrier.tables,
            {name: jnp.asarray(rate, problem.dtype) for name, rate in setup.rates.items()},
        )
        self._ledger = Ledger()  # of a step, once it is traced
        self._loops = {
            overwrites: jax.jit(
                self._loop, donate_argnums=1 if overwrites else (), compiler_options=self.options
            )
            for overwrites in (False, True)
        }
        self._stays = Stays(group.owners) if group.owners is not None else None
        if programs is not None and setup.links is None:
            self._loops = programs.setdefault(self._program_key(), self._loops)

    @classmethod
    def start(cls, runtime: Runtime, setup: Setup) -> Run:
        """A run where the runtime says that agents live."""
        return cls(setup, *runtime.join(setup), runtime.programs)

    @property
    def problem(self) -> Problem:
        return self.setup.problem

    @property
    def network(self) -> Network:
        return self.setup.network

    @property
    def algorithm(self) -> Algorithm:
        return self.setup.algorithm

    # --- states --------------------------------------------------------------------------------

    def initial_state(self) -> Tree:
        _, before, after = self._traced
        was, is_now = (jax.tree.map(_kind, tree) for tree in (before, after))
        if was != is_now:
            raise SettingError(
                f"{type(self.algorithm).__name__}.step must keep the shapes and dtypes of its "
                f"state. It was {was} and became {is_now}."
            )
        first = jax.jit(lambda world: self.pack(self._init(world)), compiler_options=self.options)
        return first(self.world)

    @property
    def shapes(self) -> Tree:
        """Of an unpacked state."""
        return self._traced[1]

    def pack(self, state: Tree) -> Tree:
        return self.layout.pack(state)

    def gather(self, state: Tree) -> Tree | None:
        """The state of all agents, still packed, at the leader; None elsewhere."""
        if self.group.alone:
            return state
        leaves, structure = jax.tree.flatten(state)
        found = [self.group.gather(np.asarray(leaf)) for leaf in leaves]
        if not self.group.leads:
            return None
        return jax.tree.unflatten(structure, [self._in_order(parts) for parts in found if parts])

    def gather_unpacked(self, state: Tree) -> Tree | None:
        gathered = self.gather(state)
        return None if gathered is None else self.layout.unpack(gathered)

    def all_agents(self, leaf: jax.Array | np.ndarray) -> np.ndarray:
        """One array of a state with all agents in it, for all processes."""
        return self._in_order(self.group.allgather(np.asarray(leaf)))

    def scatter(self, state: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        """This process's share of a state of all agents, which the leader has."""
        if self.group.alone:
            assert state is not None
            return state
        axis = 1 if self.setup.many_seeds else 0
        shares = None
        if state is not None:
            shares = [
                {name: np.take(value, part, axis) for name, value in state.items()}
                for part in self.group.parts
            ]
        return self.group.scatter(shares)

    # --- steps ---------------------------------------------------------------------------------

    def advance(self, state: Tree, start: int, stop: int) -> Advance:
        """The state after steps start .. stop - 1, or at the first step that is not finite.

        Among other owners it may end earlier, if all agreed to stop, or later, where they are.
        """
        if self.group.owners is not None and start < stop:
            return self._advance_with(self.group.owners, state, start, stop)
        program = self._loops[self.overwrites]
        end = Advance(*program(self.world, state, np.int32(start), np.int32(stop)))
        if self.group.alone:
            return end
        return end._replace(finite=all(self.group.allgather(bool(end.finite))))

    def _advance_with(self, owners: Owners, state: Tree, start: int, stop: int) -> Advance:
        """In stretches of steps between which links come up, or all agree to stop."""
        program, step, finite = self._loops[self.overwrites], start, True
        while finite and (step := owners.next_step(step)) < stop and not owners.over(step):
            state = owners.enter(step, state)
            end = Advance(*program(self.world, state, np.int32(step), np.int32(stop)))
            self.made += int(end.step) - step
            step, state, finite = int(end.step), end.state, bool(end.finite)
        return Advance(step, state, finite)

    def overwrite_large(self, state: Tree) -> None:
        """From now on `advance` overwrites a large state.

        Not with several processes: their states differ in size, and all or none must be able to
        repeat a chunk that diverged.
        """
        self.overwrites = self.group.alone and is_large(state)

    def compilations(self) -> int:
        """How often the loop was compiled: once, if shapes and dtypes are stable."""
        return self._loops[self.overwrites]._cache_size()  # type: ignore[attr-defined]

    # --- what it costs, what is measured -------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """The entries of one step."""
        return self._traced[0]

    @cached_property
    def costs(self) -> Costs:
        """What the steps up to any have cost each agent."""
        draws = {
            "outer draw": self._samples_per_draw(self.hosted.outer_data),
            "inner draw": self._samples_per_draw(self.hosted.inner_data),
        }
        networks = {
            link_of(level): self.network.at_level(level) for level in (None, *self.algorithm.levels)
        }
        links = self.setup.links
        live = links.counter(self.world.link_keys) if links else None
        return Costs(self.ledger, networks, draws, live, self._counted)

    @property
    def _counted(self) -> np.ndarray | None:
        """Whose costs are known here."""
        return None if self.group.owners is None else self.group.here

    @cached_property
    def places(self) -> Tree | None:
        """The data of the whole network; None if it lies with several processes."""
        if self._whole:
            return self.world.places
        unseen = self.problem.unread or self.group.owners is not None
        return None if unseen else self.problem.place()

    def losses_at_mean(self, state: Tree, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Losses over all data where no process has all: each adds what its own agents have."""
        if not names:
            return {}
        share = len(self.group.here) / self.network.size

        def mean(v: Any) -> Any:
            return sum(self.group.allgather(np.asarray(v).sum(axis=-2))) / self.network.size

        x, y = mean(state.x), state.y if self.problem.personal else mean(state.y)
        own = self._measure_losses(self.world.places, x, y)
        every = self.group.allgather({name: share * np.asarray(own[name]) for name in names})
        return {name: np.asarray(sum(part[name] for part in every)) for name in names}

    def fingerprint(self) -> dict[str, str]:
        """What makes the problem this one, at the leader at least."""
        if self.group.owners is not None:
            return self.hosted.fingerprint
        if self.places is not None:
            return self.problem.fingerprint if self.group.leads else {}
        found = dict(self.hosted.fingerprint)
        for name in ("outer data", "inner data"):
            source = getattr(self.hosted, name.replace(" ", "_"))
            every = self.group.allgather(source.digests())
            found[name] = source.fingerprint(self._in_order([np.array(d) for d in every]).tolist())
        return found

    # --- how the step is lifted ----------------------------------------------------------------

    @cached_property
    def _traced(self) -> tuple[Ledger, Tree, Tree]:
        """A first step without numbers: its costs, and the shapes before and after it."""
        before = jax.eval_shape(self._init, self.world)
        after = jax.eval_shape(self._step, self.world, before, _FIRST)
        return self._ledger, before, after

    def _init(self, world: World) -> Tree:
        return self._lift(world, _FIRST, Ledger(), self.algorithm.init)

    @cached_property
    def _step(self) -> Callable[[World, Tree, Any], Tree]:
        """Traced once: for its costs and for the loop."""

        def step(world: World, state: Tree, number: Any) -> Tree:
            self._ledger = Ledger()
            act = self.algorithm.with_traced(world.rates).step
            return self._lift(world, number, self._ledger, act, state)

        return jax.jit(step, inline=True)

    def _lift(
        self, world: World, step: Any, ledger: Ledger, act: Callable[..., Any], *state: Tree
    ) -> Tree:
        """`act(agent, *state)` for every agent of every seed."""

        def one(me: Any, places: Any, key: jax.Array, link_key: Any, *state: Tree) -> Tree:
            exchange = self._carrier.exchange(me, world.tables, link_key, step)
            return act(Agent(self.hosted, places, key, step, exchange, ledger), *state)

        places = (self.hosted.outer_data.per_agent, self.hosted.inner_data.per_agent)
        lifted = jax.vmap(one, in_axes=(0, places, 0, None, *(0 for _ in state)))
        if world.keys.ndim > 1:  # several seeds
            lifted = jax.vmap(lifted, in_axes=(None, None, 0, 0, *(0 for _ in state)))
        return lifted(self._agents, world.places, world.keys, world.link_keys, *state)

    def _loop(self, world: World, state: Tree, start: jax.Array, stop: jax.Array) -> Advance:
        if self.group.owners is not None:
            assert self._stays is not None
            return run_while(stop, partial(self._step, world), start, state, self._stays.ask)
        if not self._whole:
            return run_all(stop, partial(self._step, world), start, state)
        if self._fast is None:
            return run_until(stop, partial(self._step, world), start, state)
        if self._fast.one_seed and self.setup.many_seeds:
            return self._seed_after_seed(self._fast, world, state, start, stop)
        return self._fast_loop(self._fast, world, state, start, stop)

    def _fast_loop(
        self, faster: FastStep, world: World, state: Tree, start: jax.Array, stop: jax.Array
    ) -> Advance:
        faster = faster.retuned(world.rates)

        def advance(state: Tree, step: Any) -> Tree:
            return faster.step(partial(self._lift, world, step, Ledger()), state)

        return run_until(stop, jax.jit(advance, inline=True), start, state)

    def _seed_after_seed(
        self, faster: FastStep, world: World, states: Tree, start: jax.Array, stop: jax.Array
    ) -> Advance:
        """Together they would not fit into the processor's cache. Each is overwritten in place."""

        def advance(seed: Any, carry: Any) -> Any:
            reached, states, finite = carry
            alone = world._replace(keys=world.keys[seed], link_keys=world.link_keys[seed])
            state = jax.tree.map(lambda leaf: leaf[seed], states)
            step, state, fine = self._fast_loop(faster, alone, state, start, stop)
            states = jax.tree.map(lambda every, one: every.at[seed].set(one), states, state)
            return jnp.minimum(reached, step), states, finite & fine

        count = len(world.keys)
        return Advance(*jax.lax.fori_loop(0, count, advance, (stop, states, jnp.array(True))))

    # --- among several processes ---------------------------------------------------------------

    def _samples_per_draw(self, source: Source) -> np.ndarray:
        return self.all_agents(np.asarray(source.samples_per_draw(), np.int64))

    def _in_order(self, parts: list[np.ndarray]) -> np.ndarray:
        """Rank by rank -> agent by agent, along the axis of agents."""
        if self.group.alone:
            return parts[0]
        axis = 1 if self.setup.many_seeds and parts[0].ndim > 1 else 0
        order = np.argsort(np.concatenate(self.group.parts))
        return np.take(np.concatenate(parts, axis), order, axis)

    @cached_property
    def _measure_losses(self) -> Callable[..., dict[str, jax.Array]]:
        problem = self.hosted

        def measure(places: Any, x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
            return {
                "outer_loss": problem.pooled_outer(x, y, places[0]),
                "inner_loss": problem.pooled_inner(x, y, places[1]),
            }

        lifted = jax.vmap(measure, in_axes=(None, 0, 0)) if self.setup.many_seeds else measure
        return jax.jit(lifted)

    def _check_alike(self) -> None:
        """All processes run the same program: their shards must have the same dtypes."""
        if self.group.alone:
            return
        for source in (self.hosted.outer_data, self.hosted.inner_data):
            kinds = jax.tree.map(lambda a: f"{a.dtype}{list(a.shape[1:])}", source.arrays)
            every = self.group.allgather(str(kinds))
            for rank, kind in enumerate(every):
                if kind != every[0]:
                    raise ProblemError(
                        f"{source.label}: the shard of agent {self.group.parts[rank][0]} (rank "
                        f"{rank}) holds {kind}, that of agent 0 {every[0]}. All agents run the "
                        f"same program, so their shards must have the same structure and dtypes."
                    )

    def _program_key(self) -> Any:
        setup = self.setup
        rest = tuple((n, v) for n, v in vars(setup.algorithm).items() if n not in setup.rates)
        count = setup.seed_count if setup.many_seeds else 0
        return setup.problem, setup.network, type(setup.algorithm), rest, count


@jax.jit
def _keys(seeds: jax.Array, agents: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of the agents and of the links, for one seed or for each of several."""
    if seeds.ndim:
        return jax.vmap(_keys, in_axes=(0, None))(seeds, agents)
    of_agents = jax.vmap(keys.of_agent, in_axes=(None, 0))(seeds, agents)
    return of_agents, keys.of_links(seeds)


def _kind(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"
