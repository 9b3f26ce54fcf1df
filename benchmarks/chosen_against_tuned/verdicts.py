"""What a history says: arrivals, shares of the gap, and summaries of many verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

REACHED = 1e-4  # of |grad F(x0)|
NEAR, STAYS = 0.01, 0.02  # of F(x0) - F*
MEDIAN_GOAL, WORST_GOAL, POINTS_GOAL = 1.5, 4.0, -2.0
NONE_ARRIVED = 0.5  # the ratio, if no tuned run arrives within twice the default's cost

History = Mapping[str, np.ndarray]


class Arrival(NamedTuple):
    """Where a run was when it arrived: costs are per agent."""

    step: int
    samples: float
    bytes: float


def median(history: History, name: str) -> np.ndarray:
    """The median over seeds, row by row; what is not finite counts as infinity."""
    values = np.atleast_2d(np.asarray(history[name], float))
    return np.median(np.where(np.isfinite(values), values, np.inf), axis=0)


def value_name(history: History) -> str:
    """The column that stands for F."""
    return "objective" if "objective" in history else "outer_loss"


def gradient_fell(history: History) -> Arrival | None:
    """Where |grad F| has fallen to `REACHED` of its start."""
    norm = median(history, "gradient_norm")
    return _arrival(history, norm <= REACHED * norm[0])


def came_near(
    history: History, start: float, best: float, near: float = NEAR, stays: float = STAYS
) -> Arrival | None:
    """Where F's gap is at most `near` of the first one, and never again above `stays` of it."""
    left = (median(history, value_name(history)) - best) / (start - best)
    stayed = np.maximum.accumulate(left[::-1])[::-1] <= stays
    return _arrival(history, (left <= near) & stayed)


def share_closed(end: float, start: float, best: float) -> float:
    """Of the gap start - best, in percent; a run that ends above its start has a negative share."""
    return 100 * (start - end) / (start - best) if np.isfinite(end) else -np.inf


def ratio(default: float | None, tuned: float | None) -> float:
    """Of two costs; None is a run that did not arrive."""
    if default is None:
        return np.inf
    return NONE_ARRIVED if tuned is None else default / tuned


class Summary(NamedTuple):
    """Many verdicts of one kind."""

    title: str
    problems: int
    median: float
    worst: float
    met: bool


def summarise(title: str, kind: str, verdicts: Sequence[float]) -> Summary:
    """Ratios are better when small, points when large."""
    if kind == "non-convex":
        middle, worst = float(np.median(verdicts)), float(np.min(verdicts))
        return Summary(title, len(verdicts), middle, worst, worst >= POINTS_GOAL)
    middle, worst = float(np.median(verdicts)), float(np.max(verdicts))
    met = middle <= MEDIAN_GOAL and worst <= WORST_GOAL
    return Summary(title, len(verdicts), middle, worst, met)


def summaries(outcomes: Sequence[Mapping[str, Any]]) -> list[Summary]:
    """Per kind, over all problems and over fresh ones alone."""
    groups: dict[str, Callable[[Mapping[str, Any]], bool]] = {
        "all": lambda outcome: True,
        "fresh": lambda outcome: not outcome["known"],
    }
    kinds = {
        "convex, with and without noise": ("convex", "noisy"),
        "convex": ("convex",),
        "noisy": ("noisy",),
        "non-convex": ("non-convex",),
    }
    found = []
    for kind, members in kinds.items():
        for group, belongs in groups.items():
            verdicts = [o["verdict"] for o in outcomes if o["kind"] in members and belongs(o)]
            if verdicts:
                found.append(summarise(f"{kind}, {group}", members[0], verdicts))
    return found


def _arrival(history: History, there: np.ndarray) -> Arrival | None:
    if not there.any():
        return None
    row = int(np.argmax(there))
    step, samples, sent = (
        float(np.atleast_2d(history[name])[0, row]) for name in ("step", "samples", "bytes")
    )
    return Arrival(int(step), samples, sent)
