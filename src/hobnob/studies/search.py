"""A small search for step sizes, the same for every method.

Factors scale the step sizes that a method suggests: all of them, and that of x once more. The seeds
that choose are others than those that are then measured.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from hobnob.core.algorithm import Algorithm
from hobnob.core.setup import Setup
from hobnob.ground.errors import DivergenceError
from hobnob.run.result import Result
from hobnob.run.run import Run
from hobnob.runtimes.simulate import Simulate
from hobnob.studies.cell import Bench, Found

FACTORS = (1.0, 1 / 4, 1 / 16)
CHOOSING = 5  # seeds that choose, before those that are measured

Point = TypeVar("Point")


def scaled(algorithm: Algorithm, factor: float, outer: float = 1.0) -> Algorithm:
    """All constant step sizes times a factor, and alpha, which is that of x, times `outer` as well.
    Those that may not pass 1 stop there. Without an alpha `outer` is a factor of all, too."""
    sizes = algorithm.step_sizes()
    if "alpha" in sizes:
        factors = {name: factor * (outer if name == "alpha" else 1.0) for name in sizes}
    else:
        factors = dict.fromkeys(sizes, factor * outer)
    most = {f.name: f.metadata["range"].most for f in fields(algorithm) if f.name in sizes}
    changes = {name: min(factors[name] * value, most[name]) for name, value in sizes.items()}
    return replace(algorithm, **changes)


def steps_within(samples: float, problem: Any, network: Any, algorithm: Algorithm) -> int:
    """How many steps an agent can make with so many samples, which may grow from step to step."""
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
    bench: Bench, problem: Any, network: Any, algorithm: Algorithm, **options: Any
) -> Result | None:
    """`bench.solve`; None where it diverges, which is as bad as a choice can be."""
    try:
        return bench.solve(problem, network, algorithm, **options)
    except DivergenceError:
        return None


def chosen(tried: Mapping[Point, Found], score: Callable[[Found], np.ndarray]) -> Point:
    """The point with the lowest median score, [seeds], over the seeds that choose."""
    return min(tried, key=lambda point: float(np.median(score(tried[point])[:CHOOSING])))


def seeds(measured: int) -> list[int]:
    """First those that choose, then those that are measured."""
    return list(range(CHOOSING + measured))
