"""Runs on one problem: the default, tuned settings, and what their grids are scaled by."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import hobnob as hb
from benchmarks.chosen_against_tuned.case import Case
from benchmarks.chosen_against_tuned.verdicts import Arrival, History, median, value_name
from hobnob.analysis.exact import affordable
from hobnob.studies.search import steps_within

HOPELESS = 1e3  # times the first |grad F|: such a tuned run is stopped
FINE_ROWS = 60  # an arrival before this row is measured again, with finer rows
MOST_ROWS = 6_000


@dataclass(frozen=True)
class Ground:
    """What the grids are scaled by, and what shares are measured against. All are at x0."""

    largest: float  # curvature of the mean of g in y
    outer_largest: float  # curvature of F, by its absolute value
    outer_smallest: float  # curvature of F; NaN if d_x is too large to form its Hessian
    start: float  # F
    optimum: float  # the lowest F that centralised L-BFGS found; infinity if it was not asked


@dataclass(frozen=True)
class Default:
    """How the default did."""

    status: str  # of the result, or "diverged", "refused"
    algorithm: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    said: str = ""
    steps: int = 0
    samples: float = 0.0
    bytes: float = 0.0
    end: float = np.inf  # F
    lowest: float = np.inf  # F, where it is exact
    arrival: Arrival | None = None
    to_five: Arrival | None = None  # percent of the gap
    to_one: Arrival | None = None
    seconds: float = 0.0


class Bench:
    """A case with its problem and a clock; all constant settings share a compilation."""

    def __init__(self, case: Case, seconds: float):
        self.case, self.problem = case, case.make()
        self.exact = affordable(self.problem)
        self.tried, self.cut = 0, False
        self._runtime = hb.Simulate(retunable=True)
        self._seconds, self._ends = seconds, 0.0
        self._per_step: dict[Any, float] = {}

    def start_clock(self) -> None:
        """Tuned runs are refused when its time is over."""
        self._ends = time.perf_counter() + self._seconds

    def run(
        self,
        algorithm: hb.Algorithm,
        samples: float,
        metric: str = "",
        *,
        one_seed: bool = False,
        rows: int = 250,
        done: Callable[[Any], bool] = lambda row: False,
    ) -> History | None:
        """The history of a tuned run with this many samples; None if it diverged."""
        if time.perf_counter() > self._ends:
            self.cut = True
            return None
        self.tried += 1
        steps = max(1, int(samples / self.samples_of(algorithm)))
        metric = metric or ("objective" if self.exact else "outer_loss")
        first: list[float] = []

        def stop(run: Any, _: Any) -> bool:
            value = float(np.median(run.latest[metric]))
            first.append(value)
            least = 0 if metric == "gradient_norm" else 1  # F may start near 0
            hopeless = abs(value) > HOPELESS * max(abs(first[0]), least)
            return hopeless or done(value)

        try:
            return hb.solve(
                self.problem,
                self.case.network,
                algorithm,
                steps=steps,
                seed=list(self.case.seeds[:1] if one_seed else self.case.seeds),
                record_every=max(1, steps // rows),
                metrics=[metric],
                callback=stop,
                runtime=self._runtime,
                progress=False,
            ).history
        except hb.DivergenceError:
            return None

    def default(self, arrived: Callable[[History], Arrival | None]) -> tuple[Default, History]:
        """The default, and again with finer rows if it arrived in one of the first."""
        clock = time.perf_counter()
        deadline = clock + self._seconds

        def solved(record_every: int | None) -> hb.Result:
            return hb.solve(
                self.problem,
                self.case.network,
                seed=list(self.case.seeds),
                record_every=record_every,
                callback=lambda run, state: time.perf_counter() > deadline,
                progress=False,
            )

        try:
            result = solved(None)
            arrival = arrived(result.history)
            every = int(result.history["step"].reshape(-1)[1])
            if arrival and every > 1 and arrival.step < FINE_ROWS * every:
                fine = max(1, arrival.step // FINE_ROWS, result.steps // MOST_ROWS)
                deadline = time.perf_counter() + self._seconds
                result = solved(fine)
                arrival = arrived(result.history)
        except hb.DivergenceError as error:
            return Default("diverged", said=str(error)), {}
        except hb.HobnobError as error:
            return Default("refused", said=str(error)), {}
        history, settings = result.history, result.settings
        values = median(history, value_name(history))
        return Default(
            status="stopped by the clock" if result.status == "interrupted" else result.status,
            algorithm=settings["algorithm"],
            settings={k: str(v) for k, v in settings.items() if k != "choice"},
            said=result.choice,
            steps=result.steps,
            samples=float(history["samples"].reshape(-1)[-1]),
            bytes=float(history["bytes"].reshape(-1)[-1]),
            end=float(values[-1]),
            lowest=float(values.min()) if self.exact else np.inf,
            arrival=arrival,
            seconds=time.perf_counter() - clock,
        ), history

    def ground(self) -> Ground:
        """Curvatures from exact gradients, which all data in one place gives."""
        problem, case = self.problem, self.case
        x0 = problem.x_layout.ravel(problem.x0).astype(float)
        width = 1e-4 * case.unit

        def gradient(x: np.ndarray) -> np.ndarray:
            found = hb.exact(problem, problem.x_layout.unravel(x, np))
            return problem.x_layout.ravel(found.gradient)

        def product(v: np.ndarray) -> np.ndarray:
            return (gradient(x0 + width * v) - gradient(x0 - width * v)) / (2 * width)

        if x0.size <= 64:
            hessian = np.stack([product(v) for v in np.eye(x0.size)])
            values = np.linalg.eigvalsh((hessian + hessian.T) / 2)
            largest, smallest = float(np.abs(values).max()), float(values[0])
        else:
            v = np.random.default_rng(0).normal(size=x0.size)
            for _ in range(8):
                v = product(v / np.linalg.norm(v))
            largest, smallest = float(np.linalg.norm(v)), np.nan
        asked = self.exact and case.kind != "convex"
        return Ground(
            largest=hb.curvature(problem, y=hb.exact(problem, problem.x0).y).largest,
            outer_largest=largest,
            outer_smallest=smallest,
            start=float(hb.exact(problem, problem.x0).value),
            optimum=float(hb.optimum(problem).value) if asked else np.inf,
        )

    def samples_of(self, algorithm: hb.Algorithm, steps: float = 1) -> float:
        """What an agent draws in so many steps."""
        key = type(algorithm), getattr(algorithm, "inner_steps", None)
        if key not in self._per_step:
            many = 1e7
            self._per_step[key] = many / steps_within(
                many, self.problem, self.case.network, algorithm
            )
        return steps * self._per_step[key]


def as_dict(record: Any) -> dict[str, Any]:
    """For JSON: named tuples inside become dicts too."""
    return {
        name: value._asdict() if isinstance(value, Arrival) else value
        for name, value in asdict(record).items()
    }
