"""The grids: every setting is tried on the very problem that it is judged on.

A coarse grid first, then the neighbours of the best, and theirs, until none is better. A run is
given no more samples than the best so far needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

import hobnob as hb
from benchmarks.chosen_against_tuned.bench import Bench, Ground
from benchmarks.chosen_against_tuned.verdicts import (
    REACHED,
    Arrival,
    came_near,
    gradient_fell,
    median,
    value_name,
)

ALPHAS = tuple(4 / 1.7**j for j in range(20))  # over the curvature of F
WIDE_ALPHAS = tuple(30 / 3**j for j in range(12))  # likewise, where it changes on the way
GAMMAS = (1.5, 1, 0.7, 0.5, 0.35, 0.25, 0.12, 0.06, 0.03, 0.015)  # over the curvature of g
MOMENTA = (0, 0.3, 0.5, 0.65, 0.8, 0.9)
ADAPTIVE_ALPHAS = (0.003, 0.01, 0.03, 0.1, 0.3)  # in units of x
ADAPTIVE_GAMMAS = (0.03, 0.1, 0.3)
SHORT = 1 / 5  # of the budget: where settings for non-convex F are sorted out
LONGER, LEAST = 2.0, 100  # noisy runs go on for so many times the limit, and so many steps

Point = tuple[int, ...]
settling = hb.schedules.settling


@dataclass(frozen=True)
class Tuned:
    """The best tuned run."""

    label: str
    arrival: Arrival | None = None
    end: float = np.inf  # F
    lowest: float = np.inf  # the lowest F of any tuned run
    bytes: float = 0.0
    budget: float = 0.0  # the samples that runs on a non-convex problem were given
    tried: int = 0
    cut: bool = False  # whether the clock ended the search


class Race:
    """Who arrives with the fewest samples. Later runs get no more than the best one needed."""

    def __init__(self, bench: Bench, limit: float, run: Callable[..., Arrival | None]):
        self.bench, self.limit, self._run = bench, limit, run
        self.best: hb.Algorithm | None = None
        self.arrival: Arrival | None = None

    def enter(self, algorithm: hb.Algorithm, length: float = 1.0, least: int = 1) -> float:
        """Its samples, or infinity. Its run is `length` limits long, and has `least` steps."""
        samples = max(length * self.limit, self.bench.samples_of(algorithm, least))
        arrival = self._run(algorithm, samples)
        if arrival is None or arrival.samples > self.limit:
            return np.inf
        if self.arrival is None or arrival.samples < self.arrival.samples:
            self.best, self.arrival, self.limit = algorithm, arrival, arrival.samples
        return arrival.samples

    def measure_again(self, length: float = 1.0, least: int = 1) -> None:
        """With the finer rows of a shorter run."""
        if self.best is not None:
            self.enter(self.best, length, least)

    def result(self) -> Tuned:
        return Tuned(
            described(self.best) if self.best else "none arrived",
            arrival=self.arrival,
            bytes=self.arrival.bytes if self.arrival else 0.0,
            tried=self.bench.tried,
            cut=self.bench.cut,
        )


def tune_convex(bench: Bench, ground: Ground, limit: float, small: bool) -> Tuned:
    """SPARKLE with a heavy ball, and tracked MA-DSBO: constant steps are exact for both."""
    first: list[float] = []  # |grad F(x0)|, the same for all runs

    def reached(norm: float) -> bool:
        first.append(norm)
        return norm <= REACHED * first[0]

    def run(algorithm: hb.Algorithm, samples: float) -> Arrival | None:
        history = bench.run(algorithm, samples, "gradient_norm", done=reached)
        return gradient_fell(history) if history else None

    race = Race(bench, limit, run)

    def sparkle(point: Point) -> float:
        alpha, gamma, momentum = (
            axis[i] for axis, i in zip((ALPHAS, GAMMAS, MOMENTA), point, strict=True)
        )
        return race.enter(_sparkle(ground, alpha, gamma, 1.0, momentum))

    coarse = product((7, 4, 10, 1, 13, 16), (3, 1), (2, 0, 4))
    sizes = len(ALPHAS), len(GAMMAS), len(MOMENTA)
    _climb(sparkle, coarse if not small else product((4, 7, 10), (3,), (0, 2)), sizes, not small)
    race.measure_again()
    for alpha, gamma, inner in product((1, 0.3, 0.1), (0.5, 1), (1, 3)) if not small else ():
        race.enter(
            hb.MADSBOGT(
                alpha=alpha / ground.outer_largest,
                beta=gamma / ground.largest,
                gamma=gamma / ground.largest,
                theta=1.0,
                inner_steps=inner,
            )
        )
    race.measure_again()
    return race.result()


def tune_noisy(bench: Bench, ground: Ground, limit: float, small: bool) -> Tuned:
    """Constant steps first, then rules that fall, around the best of them, then other methods."""

    def run(algorithm: hb.Algorithm, samples: float) -> Arrival | None:
        history = bench.run(algorithm, samples, "objective")
        return came_near(history, ground.start, ground.optimum) if history else None

    race = Race(bench, limit, run)
    thetas = (1.0, 0.3, 0.1)

    def sparkle(point: Point) -> float:
        alpha, gamma, theta = (
            axis[i] for axis, i in zip((ALPHAS, GAMMAS, thetas), point, strict=True)
        )
        return race.enter(_sparkle(ground, alpha, gamma, theta), LONGER, LEAST)

    coarse = product((7, 4, 10, 1, 13), (5, 3, 1, 7), (0,))
    sizes = len(ALPHAS), len(GAMMAS), len(thetas)
    _climb(sparkle, coarse if not small else product((4, 7), (5, 3), (0,)), sizes, not small)
    race.measure_again(LONGER, LEAST)
    best: Any = race.best
    if best is None:
        return race.result()
    alpha, gamma = best.alpha, best.gamma
    for factor in (1, 2, 4) if not small else (2,):
        falling = hb.schedules.capped(factor * alpha, 2 / ground.outer_smallest)
        race.enter(replace(best, alpha=falling), LONGER, LEAST)
    for method, more in OTHERS if not small else ():
        for a, g in product((2, 1, 0.5, 0.25), (1, 0.5)):
            other = method(alpha=a * alpha, beta=g * gamma, gamma=g * gamma, **more)
            race.enter(other, LONGER, LEAST)
    race.measure_again(LONGER, LEAST)
    for factor, length in product((1, 2, 4), (1.0, 0.7)) if not small else ():
        race.enter(replace(best, alpha=settling(factor * alpha)), length)
    return race.result()


OTHERS: tuple[tuple[Callable[..., hb.Algorithm], dict[str, Any]], ...] = (
    (hb.DSOBA, {"theta": 0.2}),
    (hb.MADSBOGT, {"theta": 0.2, "inner_steps": 1}),
    (hb.STORM, {"theta": 0.1}),
)


def tune_not_convex(bench: Bench, ground: Ground, budget: float, small: bool) -> Tuned:
    """Settings are sorted out by short runs of one seed; the best get the budget and all seeds."""
    lowest = [np.inf]
    finals: list[tuple[float, float, str]] = []

    def ended(algorithm: hb.Algorithm, samples: float, one_seed: bool) -> tuple[float, float]:
        history = bench.run(algorithm, samples, one_seed=one_seed, rows=50)
        if history is None:
            return np.inf, 0.0
        values = median(history, value_name(history))
        # Only exact F is a value that was reached: f(x, y) may be lower while y is on its way.
        lowest[0] = min(lowest[0], values.min() if bench.exact else np.inf)
        return float(values[-1]), float(np.atleast_2d(history["bytes"])[0, -1])

    def short(algorithm: hb.Algorithm) -> float:
        return ended(algorithm, SHORT * budget, True)[0]

    def full(algorithm: hb.Algorithm) -> None:
        finals.append((*ended(algorithm, budget, False), described(algorithm)))

    def sparkle_at(point: Point) -> hb.SPARKLE:
        alpha, gamma, momentum = (
            axis[i] for axis, i in zip((WIDE_ALPHAS, GAMMAS, MOMENTA[::2]), point, strict=True)
        )
        member = "ed" if bench.problem.dtype == np.float64 else "semi-atc-gt"
        return replace(_sparkle(ground, alpha, gamma, 0.2, momentum), x=member, y=member, z=member)

    def adaptive_at(point: Point) -> hb.Adaptive:
        alpha, gamma = ADAPTIVE_ALPHAS[point[0]], ADAPTIVE_GAMMAS[point[1]]
        return hb.Adaptive(alpha=alpha * bench.case.unit, gamma=gamma, theta=0.2)

    adaptive = _climb(
        lambda point: short(adaptive_at(point)),
        product((2, 3, 1), (1,)) if small else product(range(5), range(3)),
        (5, 3),
        False,
    )
    sizes = len(WIDE_ALPHAS), len(GAMMAS), 3
    sparkle = _climb(
        lambda point: short(sparkle_at(point)),
        product((3, 5), (5,), (0,)) if small else product((5, 3, 7, 1, 9), (5, 3, 7, 9), (0,)),
        sizes,
        not small,
    )
    for point in adaptive[: 1 if small else 2]:
        full(adaptive_at(point))
    for point in sparkle[: 1 if small else 3]:
        full(sparkle_at(point))
    leaders = [*map(adaptive_at, adaptive[:1]), *map(sparkle_at, sparkle[:1])]
    for factor, leader in () if small else product((1, 3), leaders):
        full(_settled(leader, factor))
    for method, more in OTHERS if sparkle and not small else ():
        best: Any = sparkle_at(sparkle[0])
        found = [
            method(alpha=a * best.alpha, beta=g * best.gamma, gamma=g * best.gamma, **more)
            for a, g in product((3, 1, 0.3), (1, 0.5))
        ]
        full(min(found, key=short))
    end, sent, label = min(finals, default=(np.inf, 0.0, "none"))
    return Tuned(
        label,
        end=end,
        lowest=lowest[0],
        bytes=sent,
        budget=budget,
        tried=bench.tried,
        cut=bench.cut,
    )


def described(algorithm: hb.Algorithm) -> str:
    """Its name and step sizes, in few digits."""

    def short(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, int | float) else str(value)

    sizes = {
        name: value
        for name, value in vars(algorithm).items()
        if name in ("alpha", "beta", "gamma", "theta", "momentum", "inner_steps")
    }
    if sizes.get("beta") == sizes.get("gamma"):
        sizes.pop("beta", None)
    listed = ", ".join(f"{name} {short(value)}" for name, value in sizes.items())
    return f"{type(algorithm).__name__} ({listed})"


def _sparkle(
    ground: Ground, alpha: float, gamma: float, theta: float, momentum: float = 0.0
) -> hb.SPARKLE:
    """alpha in units of 1/L_F; gamma, which is beta too, in units of 1/L."""
    step = gamma / ground.largest
    return hb.SPARKLE(
        alpha=alpha / ground.outer_largest,
        beta=step,
        gamma=step,
        theta=theta,
        momentum=float(momentum),
    )


def _settled(algorithm: Any, factor: float) -> hb.Algorithm:
    """Its steps until T/2, those of x times `factor`, and then falling."""
    sizes = {
        name: getattr(algorithm, name)
        for name in ("alpha", "beta", "gamma")
        if hasattr(algorithm, name)
    }
    sizes["alpha"] *= factor
    return replace(algorithm, **{name: settling(size) for name, size in sizes.items()})


def _climb(
    measure: Callable[[Point], float], coarse: Iterable[Point], sizes: Point, further: bool
) -> list[Point]:
    """The points whose measure is finite, best first: the coarse ones and the way from the best."""
    found: dict[Point, float] = {}

    def ask(points: Iterable[Point]) -> Point | None:
        for point in points:
            if point not in found:
                found[point] = measure(point)
        best = min(found, key=lambda point: found[point])
        return best if np.isfinite(found[best]) else None

    at = ask(coarse)
    while further and at is not None:
        around = (
            tuple(i + d for i, d in zip(at, move, strict=True))
            for move in product((0, -1, 1), repeat=len(at))
        )
        inside = [p for p in around if all(0 <= i < n for i, n in zip(p, sizes, strict=True))]
        better = ask(inside)
        if better == at:
            break
        at = better
    return sorted((p for p in found if np.isfinite(found[p])), key=lambda point: found[point])
