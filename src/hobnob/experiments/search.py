"""A small search for step sizes, the same for every method.

Each factor of `FACTORS` scales all step sizes that a method suggests. A run has seeds of both
kinds in one program: those that choose the factor, and those that are then measured.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from hobnob.algorithm import Algorithm
from hobnob.errors import DivergenceError
from hobnob.experiments.cell import Bench, Found
from hobnob.result import Result
from hobnob.runtimes.simulate import Simulate

FACTORS = (1.0, 1 / 4, 1 / 16)
CHOOSING = 5  # seeds that choose, before those that are measured

Point = TypeVar("Point")


def scaled(algorithm: Algorithm, factor: float) -> Algorithm:
    """All constant step sizes times a factor; those that may not pass 1 stop there."""
    changes = {}
    for field in fields(algorithm):
        value = getattr(algorithm, field.name)
        allowed = field.metadata.get("range")
        if allowed and not field.metadata.get("fixed") and not callable(value):
            changes[field.name] = min(factor * value, allowed.most)
    return replace(algorithm, **changes)


def steps_within(samples: float, problem: Any, network: Any, algorithm: Algorithm) -> int:
    """How many steps an agent can make with so many samples, which may grow from step to step."""
    with problem.precision():
        costs = Simulate().start(problem, network, algorithm.bind(network.size, 1), 0).costs

    def spent(steps: int) -> float:
        return float(costs.until(steps)["samples"].mean())

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
