"""A small search for step sizes, the same for every method.

Each factor of `FACTORS` scales all step sizes that a method suggests. A run has seeds of both
kinds in one program: those that choose the factor, and those that are then measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from hobnob.algorithm import Algorithm
from hobnob.errors import DivergenceError
from hobnob.experiments.cell import Bench, Found
from hobnob.result import Result
from hobnob.runtimes.simulate import Simulate

FACTORS = (4.0, 1.0, 1 / 4, 1 / 16)
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
    steps = 0
    while costs.until(steps + 1)["samples"].mean() <= samples:
        steps += 1
    return max(1, steps)


def attempt(
    bench: Bench, problem: Any, network: Any, algorithm: Algorithm, **options: Any
) -> Result | None:
    """`bench.solve`; None where it diverges, which is as bad as a choice can be."""
    try:
        return bench.solve(problem, network, algorithm, **options)
    except DivergenceError:
        return None


def chosen(
    tried: Mapping[Point, Found], score: Callable[[Found], np.ndarray], choosing: int = CHOOSING
) -> Point:
    """The point with the lowest median score, [seeds], over the seeds that choose."""

    def judged(point: Point) -> float:
        found = tried[point]
        return float(np.median(score(found)[:choosing])) if len(found) else np.inf

    return min(tried, key=judged)


def seeds(measured: int, choosing: int = CHOOSING) -> Sequence[int]:
    """First those that choose, then those that are measured."""
    return list(range(choosing + measured))
