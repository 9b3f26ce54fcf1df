"""The study as markdown: one line a problem, and a summary per kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.chosen_against_tuned.verdicts import (
    MEDIAN_GOAL,
    POINTS_GOAL,
    WORST_GOAL,
    summaries,
)

Outcome = Mapping[str, Any]

RATIO_HEADING = (
    *("problem", "K", "network", "kind", "seen", "default", "its steps", "its samples"),
    *("tuned samples", "best tuned", "ratio", "ratio of bytes"),
)
SHARE_HEADING = (
    *("problem", "K", "network", "seen", "default", "samples", "its share", "tuned share"),
    *("best tuned", "points", "ratio of bytes", "to 5 %", "to 1 %"),
)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """All tables."""
    parts = []
    ratios = [o for o in outcomes if o["kind"] != "non-convex"]
    others = [o for o in outcomes if o["kind"] == "non-convex"]
    if ratios:
        parts.append(
            "Samples per agent until the target; the ratio is default / tuned.\n\n"
            + _table(
                RATIO_HEADING,
                map(_ratio_row, ratios),
            )
        )
    if others:
        parts.append(
            "Share of the gap closed with the samples that the default chose, in percent; samples "
            "and bytes of the default until 5 % and 1 % of the gap are left.\n\n"
            + _table(
                SHARE_HEADING,
                map(_share_row, others),
            )
        )
    lines = [
        [s.title, str(s.problems), _number(s.median), _number(s.worst), "yes" if s.met else "no"]
        for s in summaries(outcomes)
    ]
    if lines:
        parts.append(
            f"Goals: median ratio at most {MEDIAN_GOAL:g}, worst at most {WORST_GOAL:g}; on "
            f"non-convex problems at least {POINTS_GOAL:g} points everywhere.\n\n"
            + _table(["kind", "problems", "median", "worst", "met"], lines)
        )
    failed = [o["name"] for o in outcomes if o["default"]["status"] in ("diverged", "refused")]
    parts.append(f"Diverged or refused: {', '.join(failed) or 'none'}.")
    if cut := [o["name"] for o in outcomes if o["tuned"]["cut"]]:
        parts.append(f"The clock ended the search for tuned settings: {', '.join(cut)}.")
    if stopped := [o["name"] for o in outcomes if "clock" in o["default"]["status"]]:
        parts.append(f"The clock ended the default's run: {', '.join(stopped)}.")
    return "\n\n".join(parts) + "\n"


def _ratio_row(outcome: Outcome) -> list[str]:
    default, tuned = outcome["default"], outcome["tuned"]
    arrival, best = default["arrival"], tuned["arrival"]
    return [
        outcome["name"],
        str(outcome["agents"]),
        outcome["network"],
        outcome["kind"],
        _seen(outcome),
        default["algorithm"] or default["status"],
        f"{arrival['step']:,}" if arrival else f"not within {default['steps']:,}",
        f"{arrival['samples']:,.0f}" if arrival else "-",
        f"{best['samples']:,.0f}" if best else "-",
        tuned["label"],
        _number(outcome["verdict"]),
        _number(outcome["bytes_ratio"]),
    ]


def _share_row(outcome: Outcome) -> list[str]:
    default, tuned = outcome["default"], outcome["tuned"]
    ours, theirs = outcome["shares"]
    return [
        outcome["name"],
        str(outcome["agents"]),
        outcome["network"],
        _seen(outcome),
        default["algorithm"] or default["status"],
        f"{default['samples']:,.0f}",
        _number(ours),
        _number(theirs),
        tuned["label"],
        f"{outcome['verdict']:+.2f}",
        _number(outcome["bytes_ratio"]),
        _cost(default["to_five"]),
        _cost(default["to_one"]),
    ]


def _seen(outcome: Outcome) -> str:
    return "known" if outcome["known"] else "fresh"


def _cost(arrival: Mapping[str, float] | None) -> str:
    return f"{arrival['samples']:,.0f}, {arrival['bytes'] / 1e6:.3g} MB" if arrival else "-"


def _number(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else str(value)


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
