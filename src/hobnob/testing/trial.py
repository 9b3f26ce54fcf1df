"""Trial: a class under test, and the programs that its checks share.

Compilation takes nearly all the time. A compiled run takes data, W, keys and step sizes as
arguments, so one program serves every check whose arrays have the same shapes.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.core.setup import Setup
from hobnob.run.run import Run
from hobnob.runtimes.simulate import Simulate
from hobnob.runtimes.simulate.mixing import mixing_tables
from hobnob.runtimes.simulate.neighbours import neighbours_of
from hobnob.testing import worlds

State = Any  # an algorithm's NamedTuple
_HORIZON = 1000  # steps that schedules are told of


class Program:
    """A compiled run, and the same program in other worlds."""

    def __init__(self, problem: Problem, network: Network, algorithm: Algorithm):
        algorithm.check_fits(problem, network)
        with problem.precision():
            algorithm = algorithm.bind(network.size, _HORIZON)
            rates = algorithm.step_sizes()
            setup = Setup(problem, network, algorithm, worlds.SEED, None, rates)
            self.run = Run(setup, *Simulate().join(setup))
        self.problem, self.network, self.algorithm = problem, network, algorithm
        #: False if the library has a faster step for it, which knows W while it is compiled.
        self.takes_any_network = self.run._fast is None
        self._first = jax.jit(
            lambda world: self.run.pack(self.run._init(world)), compiler_options=self.run.options
        )

    def elsewhere(
        self,
        problem: Problem | None = None,
        network: Network | None = None,
        algorithm: Algorithm | None = None,
        W: csr_array | None = None,
        **changes: Any,
    ) -> Run:
        """The same program with other data, another network or other step sizes.

        `changes` are other parts of the run's `World`, as they are. W may be one that a `Network`
        would refuse.
        """
        problem, network = problem or self.problem, network or self.network
        algorithm = algorithm or self.algorithm
        setup = replace(
            self.run.setup,
            problem=problem,
            network=network,
            algorithm=algorithm,
            rates=algorithm.step_sizes(),
        )
        with problem.precision():
            if not (self.takes_any_network or network is self.network):
                run = Run(setup, *Simulate().join(setup))
            else:
                run = copy(self.run)
                run.setup = setup
                for name in ("costs", "places"):
                    run.__dict__.pop(name, None)
                run.world = run.world._replace(
                    places=problem.place(),
                    tables=self._tables(network, W),
                    rates={n: jnp.asarray(r, problem.dtype) for n, r in setup.rates.items()},
                )
            run.world = run.world._replace(**changes)
        return run

    def start(self, run: Run | None = None) -> State:
        run = run or self.run
        with run.problem.precision():
            shared = self.takes_any_network or run.network is self.network
            return self._first(run.world) if shared else run.initial_state()

    def end(self, steps: int, run: Run | None = None) -> dict[str, np.ndarray]:
        """Every variable of every agent after so many steps."""
        run = run or self.run
        with run.problem.precision():
            state = run.gather_unpacked(run.advance(self.start(run), 0, steps).state)
            return {name: np.asarray(value) for name, value in _items(state)}

    def _tables(self, network: Network, W: csr_array | None) -> Any:
        """W as the program takes it: rows padded to the same length, with weights of 0."""
        wide, dtype = self.run.world.tables, self.problem.dtype
        given = {"": network.sparse if W is None else W}
        given |= {level: at.sparse for level, at in network.levels.items()}
        weights = {}
        for level, matrix in given.items():
            tables = mixing_tables(matrix, dtype)
            if "table" in tables:
                (width, size), (most, _) = tables["table"].shape, wide.weights[""]["table"].shape
                own = jnp.tile(jnp.arange(size, dtype=jnp.int32), (most - width, 1))
                tables["table"] = jnp.concatenate([tables["table"], own])
                tables["weights"] = jnp.concatenate([tables["weights"], own.astype(dtype) * 0])
            weights[level] = tables
        neighbours = {}
        if wide.neighbours:
            links = len(wide.neighbours[""].weights)
            neighbours = {
                level: neighbours_of(matrix, links, network.at_level(level).ends, dtype)
                for level, matrix in given.items()
            }
        return wide._replace(weights=weights, neighbours=neighbours)


class Trial:
    """A class under test in the two worlds."""

    def __init__(self, cls: type[Algorithm]):
        self.cls = cls

    def suggested(self, smoothness: float, strong_convexity: float) -> Algorithm:
        return self.cls.suggest(Scale(smoothness, strong_convexity))

    @cached_property
    def sampled(self) -> Program:
        return Program(*self.sampled_world, self.short)

    @cached_property
    def sampled_world(self) -> tuple[Problem, Network]:
        return _sampled(*self._kind)

    @cached_property
    def short(self) -> Algorithm:
        """Its settings for the sampled world: a series has few terms, since each takes a while."""
        found: Any = self.suggested(3.0, 0.5)
        return replace(found, terms=5) if getattr(found, "terms", 0) > 5 else found

    @cached_property
    def steady(self) -> Program:
        # A single agent's curvatures go farther than those of the mean: see `quadratic`.
        scale = (6.0, 0.5) if self.cls.personal else (4.0, 1.0)
        return Program(*self.steady_world(), self.suggested(*scale))

    def steady_world(self, **how: float) -> tuple[Problem, Network]:
        return _steady(*self._kind, **how)

    @property
    def _kind(self) -> tuple[bool, bool, bool]:
        return self.cls.compositional, self.cls.single_agent, self.cls.personal


# Of few classes: their programs take memory, and one class is checked after the other.
trial_of = lru_cache(maxsize=4)(Trial)

# All classes see the same problems: what is compiled for a problem alone serves them all.
_sampled = lru_cache(worlds.sampled)
_steady = lru_cache(worlds.steady)


def _items(state: State) -> Any:
    return zip(state._fields, state, strict=True)
