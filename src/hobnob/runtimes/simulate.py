"""Simulate: the whole network in one process, every agent a row of one array.

The step of one agent is lifted by `jax.vmap` and looped on the device; several seeds are one more
axis. The only thing that crosses rows is `Agent.mix`: under `vmap` it becomes W times the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hobnob import keys
from hobnob.agent import Agent, Exchange
from hobnob.algorithm import Algorithm
from hobnob.compiler import compiler_options
from hobnob.errors import SettingError
from hobnob.heap import keep_freed_memory
from hobnob.ledger import Costs, Ledger, link_of
from hobnob.links import Links
from hobnob.network import Network
from hobnob.problem import Problem
from hobnob.runtimes.kernel import Kernel
from hobnob.runtimes.kernels import kernel_for
from hobnob.runtimes.layout import Layout
from hobnob.runtimes.mixing import failing_tables, mixing_tables
from hobnob.runtimes.rows import Rows
from hobnob.runtimes.strips import is_long, strips_for
from hobnob.runtimes.turns import is_large, run_until

_FIRST = np.int32(0)  # of the type that steps have in the loop, for states that keep one


class Simulate:
    """The default runtime: all agents in this process.

    Args:
        retunable: the compiled program is given the constant step sizes, where otherwise they are
            part of it. Runs that differ in nothing else then share one compilation; each is a
            little slower, and equal to rounding.
    """

    def __init__(self, retunable: bool = False):
        self._retunable = retunable
        self._loops: dict[Any, Any] = {}  # compiled, by what they depend on

    #: This process writes, prints and measures.
    leads: bool = True

    def watched(self, network: Network) -> AbstractContextManager[None]:
        """Nobody is elsewhere."""
        return nullcontext()

    def start(
        self,
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        seeds: int | Sequence[int],
        links: Links | None = None,
    ) -> Simulation:
        problem = problem.loaded()
        rates = algorithm.step_sizes() if self._retunable else {}
        run = Simulation(problem, network, algorithm, seeds, links, rates)
        if self._retunable and links is None:
            rest = tuple((n, v) for n, v in vars(algorithm).items() if n not in rates)
            count = 0 if isinstance(seeds, int) else len(seeds)
            run.share_loop(self._loops, (problem, network, type(algorithm), rest, count))
        return run


class World(NamedTuple):
    """What the compiled loop reads and never changes."""

    places: Any
    keys: jax.Array
    tables: dict[str, dict[str, jax.Array]]  # by level, and "" for those without one
    link_keys: jax.Array
    failing: dict[str, jax.Array]
    rates: dict[str, jax.Array]  # step sizes, where they are not part of the program


class Advance(NamedTuple):
    """Where a call of `advance` ends: before `stop` only where x or y is no longer finite.

    Who looks at a number of it waits until the device is there.
    """

    step: Any
    state: Any
    finite: Any  # all of the state


class Simulation:
    """One run. A state is the algorithm's NamedTuple with leading axes ([seeds,] agents).

    Between calls of `advance` it is held in the layout that the loop wants: `held` and `whole` are
    the two doors.

    `problem` is the whole one. A runtime that hosts some of the agents only overrides what differs
    then: `_host`, `_agents_here`, `_tables`, `_exchange`, and what asks for all of them.
    """

    #: Whether this process is the one that writes, prints and measures.
    leads: bool = True
    #: Whether no other process takes part.
    alone: bool = True
    #: Whether `advance` writes over the state that it is given.
    overwrites: bool = False
    #: Whether other processes of the run have the other cores of the machine.
    crowded: bool = False

    def __init__(
        self,
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        seeds: int | Sequence[int],
        links: Links | None = None,
        rates: Mapping[str, float] | None = None,
    ):
        keep_freed_memory()
        self.problem, self.network, self.algorithm = problem, network, algorithm
        self.links = links
        self.many_seeds = not isinstance(seeds, int)
        self._hosted = self._host(problem)
        self._agents = jnp.asarray(self._agents_here(), jnp.uint32)
        each = jnp.asarray(seeds, jnp.uint32)
        agent_keys, link_keys = _keys(each, self._agents)
        tables, failing = self._tables()
        self.world = World(
            self._hosted.place(),
            agent_keys,
            tables,
            link_keys,
            failing,
            {name: jnp.asarray(rate, problem.dtype) for name, rate in (rates or {}).items()},
        )
        self.latest: dict[str, np.ndarray] = {}
        self._ledger = Ledger()  # of a step, once it is traced
        self._kernel = self._kernel_for(each.size)
        self._options = compiler_options(problem.dtype, self.crowded)
        self._loops = {
            overwrites: jax.jit(
                self._loop, donate_argnums=1 if overwrites else (), compiler_options=self._options
            )
            for overwrites in (False, True)
        }

    def share_loop(self, loops: dict[Any, Any], what: Any) -> None:
        """Use the compiled loop of a run that differs in its step sizes and seeds alone."""
        self._loops = loops.setdefault(what, self._loops)

    def overwrite_large(self, state: Any) -> None:
        """From now on: a state that is large is gone once the next one is there."""
        self.overwrites = is_large(state)

    @property
    def _advance(self) -> Any:
        return self._loops[self.overwrites]

    def initial_state(self) -> Any:
        _, before, after = self._traced
        was, is_now = (jax.tree.map(_kind, tree) for tree in (before, after))
        if was != is_now:
            raise SettingError(
                f"{type(self.algorithm).__name__}.step must keep the shapes and dtypes of its "
                f"state. It was {was} and became {is_now}."
            )
        first = jax.jit(lambda world: self.held(self._init(world)), compiler_options=self._options)
        return first(self.world)

    @property
    def shapes(self) -> Any:
        """Those of a state that is not held."""
        return self._traced[1]

    @property
    def layout(self) -> Layout:
        """The form in which states are held."""
        return Layout() if self._kernel is None else self._kernel.layout

    def held(self, state: Any) -> Any:
        """A state of the agents that are here, as the loop wants it."""
        return self.layout.packed(state)

    def advance(self, state: Any, start: int, stop: int) -> Advance:
        """The state after steps start .. stop - 1, or at the first one that is not finite."""
        return Advance(*self._advance(self.world, state, np.int32(start), np.int32(stop)))

    @property
    def places(self) -> Any:
        """The data of the whole network."""
        return self.world.places

    def gathered(self, state: Any) -> Any:
        """A held state with all agents in it, still held, where `leads`; all processes must ask."""
        return state

    def whole(self, state: Any) -> Any:
        """The same as it is."""
        gathered = self.gathered(state)
        return None if gathered is None else self.layout.opened(gathered)

    def everyone(self, leaf: Any) -> np.ndarray:
        """A leaf of a state with all agents in it, for all processes."""
        return np.asarray(leaf)

    def told(self, act: Callable[[], Any]) -> Any:
        """What `act` returns, or raises, where `leads`: known to all, done once."""
        return act()

    def pooled_losses(self, state: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
        """The losses over all data, where the one that leads does not have it."""
        return {}

    def measurable(self, names: Sequence[str]) -> list[str]:
        """Those of the metrics that are computed from `places`."""
        return list(names)

    def share_of(self, state: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        """Of a whole state, which the one that leads has, what is here."""
        assert state is not None
        return state

    def fingerprint(self) -> dict[str, str]:
        """What makes the problem this one."""
        return self.problem.fingerprint

    @property
    def ledger(self) -> Ledger:
        """The entries of one step."""
        return self._traced[0]

    @cached_property
    def _traced(self) -> tuple[Ledger, Any, Any]:
        """A first step without numbers: what it costs, and the shapes before and after it."""
        before = jax.eval_shape(self._init, self.world)
        after = jax.eval_shape(self._step, self.world, before, _FIRST)
        return self._ledger, before, after

    def _init(self, world: World) -> Any:
        return self._lift(world, _FIRST, Ledger(), self.algorithm.init)

    @cached_property
    def costs(self) -> Costs:
        """What the steps up to any have cost each agent."""
        units = {
            "step": np.ones(self.network.size, np.int64),
            **{
                link_of(level): np.asarray(self.network.at_level(level).degrees, np.int64)
                for level in (None, *self.algorithm.levels)
            },
            "outer draw": self._samples_per_draw(self._hosted.outer_data),
            "inner draw": self._samples_per_draw(self._hosted.inner_data),
        }
        live = self.links and self.links.counter(self.network.size, self.world.link_keys)
        return Costs(self.ledger, units, live)

    def _samples_per_draw(self, source: Any) -> np.ndarray:
        """Of all agents."""
        return np.asarray(source.samples_per_draw(), np.int64)

    def compilations(self) -> int:
        """How often the loop was compiled: once, if shapes and dtypes are stable."""
        return self._advance._cache_size()

    def _loop(self, world: World, state: Any, start: jax.Array, stop: jax.Array) -> Any:
        kernel = self._kernel
        if kernel is not None and self.many_seeds and kernel.alone:
            return self._seed_after_seed(kernel, world, state, start, stop)
        if kernel is not None:
            return self._kernel_loop(kernel, world, state, start, stop)
        return run_until(stop, lambda step, state: self._step(world, state, step), start, state)

    def _seed_after_seed(
        self, kernel: Kernel, world: World, state: Any, start: jax.Array, stop: jax.Array
    ) -> Any:
        """Together they would not fit into the processor's cache. Each is written over in place."""

        def advance(seed: Any, carry: Any) -> Any:
            reached, states, finite = carry
            alone = world._replace(keys=world.keys[seed], link_keys=world.link_keys[seed])
            state = jax.tree.map(lambda leaf: leaf[seed], states)
            step, state, fine = self._kernel_loop(kernel, alone, state, start, stop)
            states = jax.tree.map(lambda every, one: every.at[seed].set(one), states, state)
            return jnp.minimum(reached, step), states, finite & fine

        return jax.lax.fori_loop(0, len(world.keys), advance, (stop, state, jnp.array(True)))

    def _kernel_loop(
        self, kernel: Kernel, world: World, state: Any, start: jax.Array, stop: jax.Array
    ) -> Any:
        kernel = kernel.retuned(world.rates)

        def advance(step: Any, state: Any) -> Any:
            return kernel.step(partial(self._lift, world, step, Ledger()), state)

        return run_until(stop, jax.jit(advance, inline=True), start, state)

    @cached_property
    def _step(self) -> Callable[..., Any]:
        """`step(world, state, number)`, traced once: for what it costs, and for the loop."""

        def step(world: World, state: Any, number: Any) -> Any:
            self._ledger = Ledger()
            act = self.algorithm.with_traced(world.rates).step
            return self._lift(world, number, self._ledger, act, state)

        return jax.jit(step, inline=True)

    def _lift(
        self, world: World, step: Any, ledger: Ledger, act: Callable[..., Any], *state: Any
    ) -> Any:
        """`act(agent, *state)` for every agent of every seed."""

        def one(index: Any, places: Any, key: jax.Array, link_key: Any, *state: Any) -> Any:
            exchange = self._exchange(index, world, link_key, step)
            return act(Agent(self._hosted, places, key, step, exchange, ledger), *state)

        places = (self._hosted.outer_data.per_agent, self._hosted.inner_data.per_agent)
        lifted = jax.vmap(one, in_axes=(0, places, 0, None, *(0 for _ in state)))
        if world.keys.ndim > 1:  # several seeds
            lifted = jax.vmap(lifted, in_axes=(None, None, 0, 0, *(0 for _ in state)))
        return lifted(self._agents, world.places, world.keys, world.link_keys, *state)

    def _host(self, problem: Problem) -> Problem:
        return problem

    def _agents_here(self) -> np.ndarray:
        return np.arange(self.network.size)

    def _tables(self) -> tuple[dict[str, dict[str, jax.Array]], dict[str, jax.Array]]:
        network, dtype = self.network, self.problem.dtype
        tables = {
            level: mixing_tables(W.sparse, dtype, failing=self.links is not None)
            for level, W in {"": network, **network.levels}.items()
        }
        if self.links is None:
            return tables, {}
        return tables, failing_tables(tables[""], network.sparse, self.links.ends)

    def _kernel_for(self, seeds: int) -> Kernel | None:
        found = kernel_for(self.problem, self.network, self.algorithm, self.links, seeds)
        if found is not None or not is_long(self.problem):
            return found
        lift = partial(self._lift, self.world, _FIRST, Ledger())
        shapes = jax.eval_shape(self._init, self.world)
        return strips_for(self.algorithm, self.world.tables, shapes, lift)

    def _exchange(self, index: Any, world: World, link_key: jax.Array, step: Any) -> Exchange:
        return Rows(index, world.tables, world.failing, self.links, link_key, step)


@jax.jit
def _keys(seeds: jax.Array, agents: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Those of the agents and that of the links, for a seed or for each of several."""
    if seeds.ndim:
        return jax.vmap(_keys, in_axes=(0, None))(seeds, agents)
    of_agents = jax.vmap(keys.of_agent, in_axes=(None, 0))(seeds, agents)
    return of_agents, keys.of_links(seeds)


def _kind(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"
