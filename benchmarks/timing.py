"""Taking times on a machine that others use too: in turns, and the best of each.

Whatever else a machine does can only slow a program down. So the things that are compared take
turns, and the shortest time that each one showed is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import numpy as np

import hobnob as hb
from hobnob.progress import Progress


def best_of(turns: int, acts: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The smallest number that each act returned, all of them asked in turn."""
    seen = [{name: act() for name, act in acts.items()} for _ in range(turns)]
    return {name: min(turn[name] for turn in seen) for name in acts}


def ratio_in_turns(turns: int, one: Callable[[], float], other: Callable[[], float]) -> float:
    """one / other, each pair asked just after the other: the middle one of several.

    For ratios near 1. Best times of each would compare one's luck with the other's.
    """
    return float(np.median([one() / other() for _ in range(turns)]))


def pace(
    problem: hb.Problem,
    network: Any,
    algorithm: hb.Algorithm,
    window: int,
    windows: int = 4,
    **options: Any,
) -> float:
    """Seconds a step through `hb.solve`, in the best window of steps."""
    steps = window * (windows + 1)  # the first one warms up
    options = {"metrics": None, "progress": False, "record_every": window} | options
    result = hb.solve(problem, network, algorithm, steps=steps, **options)
    seconds = result.history["seconds"].reshape(-1, windows + 2)[0]
    return float(np.diff(seconds[1:]).min()) / window


def pace_on_the_wall(
    problem: hb.Problem,
    network: Any,
    algorithm: hb.Algorithm,
    window: int,
    windows: int,
    **options: Any,
) -> float:
    """By the clock on the wall, with all that happens between steps: the middle one of the windows.

    The bar, which nobody sees, is told of every chunk once it is recorded. A callback would be
    given the state, which a run opens for nobody else.
    """
    clock: dict[int, float] = {}

    def look(bar: Progress, step: int, rate: float, row: Any) -> None:
        clock[step] = time.perf_counter()

    with mock.patch.object(Progress, "update", look):
        steps = window * (windows + 1)
        hb.solve(problem, network, algorithm, steps=steps, progress=False, **options)
    return float(np.median(np.diff([clock[k] for k in range(window, steps + 1, window)]))) / window


def paced(step: Callable[[], Any], window: int, windows: int = 4) -> float:
    """Seconds a call, in the best window of calls."""
    best = float("inf")
    for _ in range(windows):
        clock = time.perf_counter()
        for _ in range(window):
            step()
        best = min(best, time.perf_counter() - clock)
    return best / window


def slope(sizes: list[float], times: list[float]) -> float:
    """Of the line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
