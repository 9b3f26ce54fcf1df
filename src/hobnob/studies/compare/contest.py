"""What one contestant of a comparison does: search for step sizes, then run for everyone to see.

The search is the same for all. Every point of a grid is tried with a share of the budget; the best
few go on with all of it; the best of those is measured with seeds that had no part in the choice.
One more run, with one seed and nothing measured, is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hobnob.analysis.exact import affordable
from hobnob.core.algorithm import Algorithm
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.run.result import Result
from hobnob.runtimes.simulate import Simulate
from hobnob.studies.cell import Bench, Found
from hobnob.studies.search import CHOOSING, attempt, scaled, steps_within

SHARE = 4  # a first try takes the budget divided by this
ROWS, ROWS_CHOOSING = 400, 40  # rows of a history
END = 0.1  # the last part of a history, whose median is where a run ended
COSTS = ("samples", "bytes", "messages", "step", "seconds")

Scene = Callable[[], tuple[Problem, Network, Any]]  # the problem, the network, what fails


class Contestant(NamedTuple):
    """A method, and whether its step sizes are searched for or stay as they are given."""

    name: str
    algorithm: Algorithm
    searched: bool


class Grid(NamedTuple):
    """Factors of all step sizes, factors of alpha besides, and how many points go on."""

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

    `target` is None where it is only known when all have run: then who ends lowest is best.
    """

    samples: float | None
    steps: int | None
    seeds: int
    target: float | None
    grid: Grid

    @property
    def runs(self) -> int:
        """How many a contestant makes whose step sizes are searched for."""
        return len(self.grid.points) + self.grid.finalists + 2

    @property
    def search_cost(self) -> float:
        """Of one seed's search, in budgets."""
        return len(self.grid.points) / SHARE + self.grid.finalists


def column_of(problem: Problem) -> str:
    """What is compared: F itself where it can be afforded, else the outer loss at (x, y)."""
    return "objective" if affordable(problem) else "outer_loss"


def run(bench: Bench, scene: Scene, contestant: Contestant, rules: Rules) -> Found:
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
        # They only differ between seeds where links fail at random.
        **{name: np.median(measured[name], axis=0) for name in COSTS},
        **{name: measured[name] for name in ("gradient_norm",) if name in measured},
        "seconds": seconds,
        "value": measured[track.column],
        "tries": tries,
        "settings": np.array(_in_words(algorithm)),
    }


class _Track:
    """The runs of one contestant, each for its share of the budget."""

    def __init__(
        self,
        bench: Bench,
        problem: Problem,
        network: Network,
        links: Any,
        base: Algorithm,
        rules: Rules,
    ):
        self.bench, self.problem, self.network, self.rules = bench, problem, network, rules
        self.column = column_of(problem)
        self._metrics = [self.column] + ["gradient_norm"] * (self.column == "objective")
        self._shared = {"links": links, "runtime": Simulate(retunable=True)}
        # What a step costs does not depend on its size.
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
        # One that diverges may do so at another step when it runs alone.
        seconds = np.full(measured["step"].shape[1], np.inf)
        seconds[: len(timed["seconds"])] = timed["seconds"][: len(seconds)]
        return measured, seconds


def _search(track: _Track, base: Algorithm) -> tuple[Algorithm | None, np.ndarray]:
    """The best settings, None where all diverged, and for every try (common, outer, score)."""
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
    """Of a run, [seeds, rows]; the median over seeds, lower is better.

    Who reaches the target is below 0, the earlier the lower; who does not is above 0 by what is
    missing at the end.
    """
    end = at_end(values)
    if target is None:
        return float(np.median(end))
    there = values <= target
    when = there.argmax(axis=1) / values.shape[1] - 1
    return float(np.median(np.where(there.any(axis=1), when, np.maximum(end - target, 0))))


def at_end(values: np.ndarray) -> np.ndarray:
    """Where every seed ended: the median of its last tenth."""
    rows = values.shape[1]
    return np.median(values[:, rows - max(1, round(END * rows)) :], axis=1)


def _in_words(algorithm: Algorithm) -> str:
    def short(value: Any) -> str:
        if callable(value):
            return str(value) if "<" not in str(value) else "a function of the step"
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{name} = {short(value)}" for name, value in vars(algorithm).items())
