"""The page of a comparison: a recommendation, a table, curves and the method behind them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.report.curves import AXES, convergence
from hobnob.report.dots import dots
from hobnob.report.page import Section, Tabs
from hobnob.report.style import amount
from hobnob.studies.cell import Found
from hobnob.studies.compare.contest import COSTS, ROWS, SHARE, Rules
from hobnob.studies.compare.ranking import Standing, recommendation
from hobnob.studies.search import CHOOSING
from hobnob.studies.study import Report

COLOURED = 6  # more colours are hard to tell apart; other curves are grey
CHARTED = {"samples": "", "bytes": "B", "seconds": "s"}
AXES_SHORT = {cost: "steps" if cost == "step" else cost for cost in COSTS}


@dataclass(frozen=True)
class Facts:
    """What is compared. `best` is the best centralised value; None if it was not computed."""

    problem: Problem
    network: Network
    what: str  # the name of the value
    start: float | None
    best: float | None
    target: float | None
    given: bool  # whether the user named the target
    left_out: Mapping[str, str]


def report(
    facts: Facts,
    rules: Rules,
    standings: Sequence[Standing],
    curves: Mapping[str, Found],
    own: Collection[str],
) -> Report:
    """The report. `standings` go from best to worst; `own` names the user's methods."""
    problem, network = facts.problem, facts.network
    goal = f"{facts.what} ≤ {facts.target:.4g}"
    verdict = recommendation(list(standings), goal, facts.what)
    return Report(
        title=f"{len(standings)} methods on {problem.name}",
        lead=f"{network.size} agents on a network with rho = {network.rho:.3g}; every method with "
        f"{_budget(rules)} and the same search for step sizes. What each needed to reach {goal}:",
        verdict=verdict,
        tone="good" if any(s.there for s in standings) else "bad",
        table=[_row(s) for s in standings],
        sections=[
            _needs(standings, goal),
            *_curves(facts, standings, curves, own),
            _settings(standings, curves, rules),
            Section("How it was measured", _method(facts, rules)),
        ],
        rows=_rows(curves),
        settings={
            "problem": repr(problem),
            "network": repr(network),
            "budget": _budget(rules),
            "target": f"{facts.target:.6g}",
            "best centralised": "not computed" if facts.best is None else f"{facts.best:.6g}",
            "seeds": rules.seeds,
        },
    )


def _row(s: Standing) -> dict[str, object]:
    return {
        "method": f"{s.name} (server)" if s.server else s.name,
        **{AXES_SHORT[cost]: _need(s, cost) for cost in COSTS if cost != "messages"},
        "at the end": s.lost or f"{s.end.value:.4g}",
    }


def _need(s: Standing, cost: str, interval: bool = False) -> str:
    value, low, high = s.needs[cost]
    if not s.there:
        some = f" ({s.reached} of {s.seeds} seeds)" if s.reached else ""
        return f"not reached{some}" if cost == COSTS[0] else "–"
    if not interval or low < 0:  # too few seeds for an interval
        return _amount(value, cost)
    upper = _amount(high, cost) if np.isfinite(high) else "never"
    return f"{_amount(value, cost)} [{_amount(low, cost)}, {upper}]"


def _amount(value: float, cost: str) -> str:
    if cost == "bytes":
        return amount(value)
    return f"{value:.2g}" if cost == "seconds" else f"{value:,.0f}"


def _needs(standings: Sequence[Standing], goal: str) -> Section:
    chart = dots(
        {cost: {s.name: s.needs[cost] for s in standings} for cost in CHARTED},
        CHARTED,
        name="needs",
        title="What each needed",
        caption="Per agent. Median over seeds and its 95 % interval; the least in orange. "
        "Triangles: not reached within the budget.",
    )
    table = [
        {"method": s.name, **{AXES_SHORT[c]: _need(s, c, interval=True) for c in COSTS}}
        for s in standings
    ]
    return Section("What each needed", f"Per agent, until {goal}.", [chart], table)


def _curves(
    facts: Facts,
    standings: Sequence[Standing],
    curves: Mapping[str, Found],
    own: Collection[str],
) -> list[Section]:
    shown = [s.name for s in standings if np.isfinite(curves[s.name]["value"]).any()]
    if not shown:
        return []
    muted = [name for name in shown if name not in _coloured(standings, shown, own)]
    assert facts.target is not None

    def against(column: str, label: str, minus: float, aim: tuple[float, str] | None) -> Tabs:
        pictures = {
            AXES_SHORT[axis]: convergence(
                {n: (curves[n][axis], curves[n][column] - minus) for n in shown},
                words,
                label,
                log_x=True,
                reference=aim,
                muted=muted,
                name=f"{column.replace('_', '-')}-{axis}",
                title=f"{label} against {words}",
            )
            for axis, words in AXES.items()
        }
        return Tabs("Against", pictures)

    where = "At the mean of all agents' x, with the inner problem solved exactly on all data."
    if facts.start is None:
        where = "At the mean of all agents' x and y, over all data."
    best = facts.best or 0.0
    sign = "−" if best >= 0 else "+"
    label = facts.what if facts.best is None else f"{facts.what} {sign} {abs(best):.4g}"
    if facts.best is not None:
        where += f" The best centralised value, {best:.4g}, is subtracted."
    sections = [
        Section(
            facts.what[0].upper() + facts.what[1:],
            where,
            [against("value", label, best, (facts.target - best, "target"))],
        )
    ]
    if facts.start is not None:
        text = "The exact gradient of F at the mean of all agents' x."
        sections.append(
            Section("|grad F|", text, [against("gradient_norm", "|grad F|", 0.0, None)])
        )
    return sections


def _coloured(
    standings: Sequence[Standing], shown: Sequence[str], own: Collection[str]
) -> list[str]:
    """The user's own methods, the best by each cost, then by rank: COLOURED in all."""
    if len(shown) <= COLOURED + 1:
        return list(shown)
    best = [min(standings, key=lambda s, c=c: s.needs[c].value).name for c in CHARTED]
    first = [name for name in (*own, *best, *shown) if name in shown]
    return list(dict.fromkeys(first))[:COLOURED]


def _settings(standings: Sequence[Standing], curves: Mapping[str, Found], rules: Rules) -> Section:
    def search(tries: np.ndarray) -> str:
        if not len(tries):
            return "as given"
        lost = int(np.isinf(tries[:, 2]).sum())
        return f"{len(tries)} tries" + (f", {lost} diverged" if lost else "")

    return Section(
        "What each was given",
        _search(rules),
        table=[
            {
                "method": s.name,
                "settings": s.settings or s.lost,
                "search": search(curves[s.name]["tries"]),
            }
            for s in standings
        ],
    )


def _search(rules: Rules) -> str:
    grid = rules.grid
    common, outer = (", ".join(f"{f:g}" for f in factors) for factors in grid[:2])
    return (
        f"A method suggests step sizes for the curvature of the inner problem at the start. The "
        f"search multiplies all of them by one of {common}, and that of x also by one of {outer}. "
        f"Each of these {len(grid.points)} pairs ran with 1/{SHARE} of the budget, and the best "
        f"{grid.finalists} with all of it, with {CHOOSING} seeds. The best of those was measured "
        f"with other seeds. The search cost {rules.search_cost:g} budgets a seed, the same for "
        f"every method; this is not counted in what it needed. A try that diverges ranks last. "
        f"Methods with given settings are not searched for."
    )


def _method(facts: Facts, rules: Rules) -> str:
    aim = f"The target is {facts.target:.6g}"
    if facts.given:
        aim += ", as asked for."
    elif facts.best is not None:
        aim += (
            f": the best centralised value, {facts.best:.6g}, found by L-BFGS on all data from the "
            f"same start, plus 1 % of its size, or plus 0.1 % of the way there from the start, "
            f"{facts.start:.6g}, if that is more. F may have several minima: that is one of them."
        )
    else:
        aim += ": 1 % above the lowest value that any method ended at."
    left_out = [f"{name}: {reason}" for name, reason in facts.left_out.items()]
    return "\n\n".join(
        [
            f"{aim} A run reaches it at the first recorded step with a value at or below it. About "
            f"{ROWS} steps of a run are recorded. The value at the end of a run is the median of "
            f"its last tenth.",
            "Samples, messages and bytes are those of an agent, the mean over agents, counted from "
            "what a step does. Seconds are those of one run with one seed, without compilation and "
            "measurements. All agents are simulated in one process, so there is no network in "
            "them, and other work on the machine adds to them: they say little about a real "
            "network.",
            f"Medians over {rules.seeds} seeds. Intervals are at 95 % and assume nothing about the "
            "distribution; fewer than 6 seeds give none.",
            *(["Left out. " + " ".join(left_out)] if left_out else []),
        ]
    )


def _budget(rules: Rules) -> str:
    if rules.steps is not None:
        return f"{rules.steps:,} steps"
    return f"{rules.samples:,.0f} samples per agent"


def _rows(curves: Mapping[str, Found]) -> list[dict[str, object]]:
    return [
        {
            "method": name,
            "seed": seed,
            **{cost: float(found[cost][i]) for cost in COSTS},
            **{
                column: float(found[column][seed, i])
                for column in ("value", "gradient_norm")
                if column in found
            },
        }
        for name, found in curves.items()
        for seed in range(len(found["value"]))
        for i in range(found["value"].shape[1])
    ]
