"""One contestant of a comparison: it searches for step sizes and is then measured.

The search is the same for all. Every point of a grid is tried with a fraction of the budget, and
the best few with all of it. The best of those is measured with other seeds. One more run, with one
seed and no metrics, is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hobnob.analysis.exact import affordable
from hobnob.core.algorithm import Algorithm
from hobnob.core.links import Failure
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.run.result import Result
from hobnob.runtimes.simulate import Simulate
from hobnob.studies.cell import Bench, Found
from hobnob.studies.search import CHOOSING, attempt, scaled, steps_within

SHARE = 4  # a first try gets the budget divided by this
ROWS, ROWS_CHOOSING = 400, 40  # rows of a history
END = 0.1  # the median over this last part of a history is the end value of a run
COSTS = ("samples", "bytes", "messages", "step", "seconds")

Failures = Failure | Sequence[Failure] | None
MakeScene = Callable[[], tuple[Problem, Network, Failures]]


class Contestant(NamedTuple):
    """A method. `searched`: whether its step sizes are searched for, or used as given."""

    name: str
    algorithm: Algorithm
    searched: bool


class Grid(NamedTuple):
    """Factors of all step sizes, extra factors of alpha, and how many points are finalists."""

    common: tuple[float, ...]
    outer: tuple[float, ...]
    finalists: int

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(common, outer) for common in self.common for outer in self.outer]


GRID = Grid((2, 1 / 2, 1 / 8), (1 / 2, 4, 32, 256), 3)
QUICK_GRID = Grid((1 / 2,), (1, 8, 64), 1)


class Rules(NamedTuple):
    """The same for every contestant. The budget is in samples an agent, or in steps.

    `target` is None if it is known only after all have run. Then the lowest end value is best.
    """

    samples: float | None
    steps: int | None
    seeds: int
    target: float | None
    grid: Grid

    @property
    def runs(self) -> int:
        """How many runs a contestant makes if its step sizes are searched for."""
        return len(self.grid.points) + self.grid.finalists + 2

    @property
    def search_cost(self) -> float:
        """What the search costs one seed, in budgets."""
        return len(self.grid.points) / SHARE + self.grid.finalists


def column_of(problem: Problem) -> str:
    """The column that is compared: F itself if affordable, else the outer loss at (x, y)."""
    return "objective" if affordable(problem) else "outer_loss"


def run(bench: Bench, scene: MakeScene, contestant: Contestant, rules: Rules) -> Found:
    """One cell. `value` and `gradient_norm` are [seeds, rows], the costs [rows]."""
    problem, network, links = scene()
    track = _Track(bench, problem, network, links, contestant.algorithm, rules)
    algorithm, tries = contestant.algorithm, np.empty((0, 3))
    if contestant.searched:
        algorithm, tries = _search(track, contestant.algorithm)
    if algorithm is None:
        lost = np.full((rules.seeds, 1), np.inf)
        nothing = {name: np.zeros(1) for name in COSTS}
        return {**nothing, "value": lost, "tries": tries, "settings": np.array("")}
    measured, seconds = track.measure(algorithm)
    return {
        # They differ between seeds only if links fail at random.
        **{name: np.median(measured[name], axis=0) for name in COSTS},
        **{name: measured[name] for name in ("gradient_norm",) if name in measured},
        "seconds": seconds,
        "value": measured[track.column],
        "tries": tries,
        "settings": np.array(_in_words(algorithm)),
    }


class _Track:
    """The runs of one contestant, each with a fraction of the budget."""

    def __init__(
        self,
        bench: Bench,
        problem: Problem,
        network: Network,
        links: Failures,
        base: Algorithm,
        rules: Rules,
    ):
        self.bench, self.problem, self.network, self.rules = bench, problem, network, rules
        self.column = column_of(problem)
        self._metrics = [self.column] + ["gradient_norm"] * (self.column == "objective")
        self._shared = {"links": links, "runtime": Simulate(retunable=True)}
        # The cost of a step does not depend on step sizes.
        self._steps = {share: self._steps_of(base, share) for share in (1, SHARE)}

    def _steps_of(self, base: Algorithm, share: int) -> int:
        if self.rules.steps is not None:
            return max(1, self.rules.steps // share)
        assert self.rules.samples is not None
        return steps_within(self.rules.samples / share, self.problem, self.network, base)

    def attempt(self, algorithm: Algorithm, share: int) -> Result | None:
        steps = self._steps[share]
        return attempt(
            self.bench,
            self.problem,
            self.network,
            algorithm,
            steps=steps,
            seed=list(range(CHOOSING)),
            record_every=max(1, steps // ROWS_CHOOSING),
            metrics=self._metrics,
            **self._shared,
        )

    def measure(self, algorithm: Algorithm) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The history of the measured seeds, and the seconds of a run with one of them."""
        steps = self._steps[1]
        first, every = CHOOSING, max(1, steps // ROWS)
        runs = [
            self.bench.history(
                self.problem,
                self.network,
                algorithm,
                steps=steps,
                seed=seed,
                record_every=every,
                metrics=measured,
                **self._shared,
            )
            for seed, measured in (
                (list(range(first, first + self.rules.seeds)), self._metrics),
                (first, None),
            )
        ]
        measured, timed = runs
        # A seed that runs alone may diverge at another step.
        seconds = np.full(measured["step"].shape[1], np.inf)
        seconds[: len(timed["seconds"])] = timed["seconds"][: len(seconds)]
        return measured, seconds


def _search(track: _Track, base: Algorithm) -> tuple[Algorithm | None, np.ndarray]:
    """The best settings, or None if all diverged; and (common, outer, score) of every try."""
    grid, target = track.rules.grid, track.rules.target

    def tried(points: Sequence[tuple[float, float]], share: int) -> dict[Any, float]:
        results = {point: track.attempt(scaled(base, *point), share) for point in points}
        return {
            point: np.inf if result is None else score(result.history[track.column], target)
            for point, result in results.items()
        }

    first = tried(grid.points, SHARE)
    tries = np.array([(*point, value) for point, value in first.items()])
    alive = sorted((p for p in first if np.isfinite(first[p])), key=lambda point: first[point])
    last = tried(alive[: grid.finalists], 1)
    best = min(last, key=lambda point: last[point], default=None)
    if best is None or np.isinf(last[best]):
        return None, tries
    return scaled(base, *best), tries


def score(values: np.ndarray, target: float | None) -> float:
    """The score of a run from its values [seeds, rows]: the median over seeds, lower is better.

    A seed that reaches the target scores below 0, the earlier the lower. One that does not scores
    its distance from the target at the end.
    """
    end = at_end(values)
    if target is None:
        return float(np.median(end))
    there = values <= target
    when = there.argmax(axis=1) / values.shape[1] - 1
    return float(np.median(np.where(there.any(axis=1), when, np.maximum(end - target, 0))))


def at_end(values: np.ndarray) -> np.ndarray:
    """The end value of every seed: the median of its last tenth."""
    rows = values.shape[1]
    return np.median(values[:, rows - max(1, round(END * rows)) :], axis=1)


def _in_words(algorithm: Algorithm) -> str:
    def short(value: Any) -> str:
        if callable(value):
            return str(value) if "<" not in str(value) else "a function of the step"
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{name} = {short(value)}" for name, value in vars(algorithm).items())
