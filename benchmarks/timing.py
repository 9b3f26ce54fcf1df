"""Timing on a shared machine.

Other load can only slow a program down. So the compared programs take turns, and the shortest time
of each counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np

import hobnob as hb
from hobnob.run.progress import ProgressBar


class Windows(NamedTuple):
    """A run that is timed in windows of this many steps."""

    steps: int
    solve: Callable[..., Any]


def best_of(turns: int, acts: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The smallest number that each function returned; they take turns."""
    seen = [{name: act() for name, act in acts.items()} for _ in range(turns)]
    return {name: min(turn[name] for turn in seen) for name in acts}


def ratio_in_turns(turns: int, one: Windows, other: Windows) -> float:
    """The median, over neighbouring windows, of seconds per step of one / of the other.

    For ratios near 1, where the best times would mostly compare luck. Both runs are under way at
    once and take turns after every window, so other load slows neighbouring windows alike.
    """
    sides = (one, other)
    seconds: list[list[float]] = [[], []]
    may_go = [threading.Semaphore(1), threading.Semaphore(0)]
    here, over = threading.local(), threading.Event()

    def take_turns(bar: ProgressBar, step: int, rate: float, row: Any) -> None:
        me, window = here.side, sides[here.side].steps
        if step % window:
            return
        jax.block_until_ready(jax.live_arrays())  # the window's last row may still be computing
        seconds[me].append((time.perf_counter() - here.since) / window)
        may_go[1 - me].release()
        if not over.is_set():
            may_go[me].acquire()
        here.since = time.perf_counter()

    def run(me: int) -> None:
        here.side = me
        may_go[me].acquire()
        try:
            here.since = time.perf_counter()
            sides[me].solve(steps=sides[me].steps * (turns + 1), progress=False)
        finally:
            over.set()
            may_go[1 - me].release()

    # A hidden progress bar is called after every chunk. A callback would change the run, which
    # must then hand out its state.
    with mock.patch.object(ProgressBar, "chunk", take_turns), ThreadPoolExecutor(2) as pool:
        list(pool.map(run, (0, 1)))
    ours, theirs = (np.array(each[1:]) for each in seconds)  # the first is a warm-up
    return float(np.median(ours / theirs))


def pace(
    problem: hb.Problem,
    network: Any,
    algorithm: hb.Algorithm,
    window: int,
    windows: int = 4,
    **options: Any,
) -> float:
    """Seconds per step of `hb.solve`, in the best window of steps."""
    steps = window * (windows + 1)  # the first is a warm-up
    options = {"metrics": None, "progress": False, "record_every": window} | options
    result = hb.solve(problem, network, algorithm, steps=steps, **options)
    seconds = result.history["seconds"].reshape(-1, windows + 2)[0]
    return float(np.diff(seconds[1:]).min()) / window


def paced(step: Callable[[], Any], window: int, windows: int = 4) -> float:
    """Seconds per call, in the best window of calls."""
    best = float("inf")
    for _ in range(windows):
        clock = time.perf_counter()
        for _ in range(window):
            step()
        best = min(best, time.perf_counter() - clock)
    return best / window


def slope(sizes: list[float], times: list[float]) -> float:
    """The slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
