"""A small search for step sizes, the same for every method.

One factor scales all step sizes that a method suggests, a second one scales that of x again. The
seeds used for the search are not used for the measurement.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from hobnob.core.algorithm import Algorithm
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.core.setup import Setup
from hobnob.ground.errors import DivergenceError
from hobnob.run.result import Result
from hobnob.run.run import Run
from hobnob.runtimes.simulate import Simulate
from hobnob.studies.cell import Bench, Found

FACTORS = (1.0, 1 / 4, 1 / 16)
CHOOSING = 5  # seeds of the search; they come before the measured ones

Point = TypeVar("Point")


def scaled(algorithm: Algorithm, factor: float, outer: float = 1.0) -> Algorithm:
    """Multiply all constant step sizes by `factor`, and alpha, the step size of x, also by `outer`.

    Without an alpha, `outer` scales all of them. No step size passes its upper limit.
    """
    sizes = algorithm.step_sizes()
    if "alpha" in sizes:
        factors = {name: factor * (outer if name == "alpha" else 1.0) for name in sizes}
    else:
        factors = dict.fromkeys(sizes, factor * outer)
    most = {f.name: f.metadata["range"].most for f in fields(algorithm) if f.name in sizes}
    changes = {name: min(factors[name] * value, most[name]) for name, value in sizes.items()}
    return replace(algorithm, **changes)


def steps_within(samples: float, problem: Problem, network: Network, algorithm: Algorithm) -> int:
    """How many steps an agent can make with this many samples. Later steps may take more."""
    with problem.precision():
        setup = Setup(problem, network, algorithm.bind(network.size, 1))
        costs = Run.start(Simulate(), setup).costs

    def spent(steps: int) -> float:
        return float(costs.mean_until(steps)["samples"])

    beyond = 1
    while spent(beyond) <= samples:
        beyond *= 2
    return max(1, bisect_right(range(beyond), samples, key=spent) - 1)


def attempt(
    bench: Bench, problem: Problem, network: Network, algorithm: Algorithm, **options: Any
) -> Result | None:
    """`bench.solve`, or None if the run diverges."""
    try:
        return bench.solve(problem, network, algorithm, **options)
    except DivergenceError:
        return None


def chosen(tried: Mapping[Point, Found], score: Callable[[Found], np.ndarray]) -> Point:
    """The point with the lowest median of `score`, [seeds], over the seeds of the search."""
    return min(tried, key=lambda point: float(np.median(score(tried[point])[:CHOOSING])))


def seeds(measured: int) -> list[int]:
    """The seeds of the search, then the measured ones."""
    return list(range(CHOOSING + measured))
