"""OwnerSummary: what one owner saw of a run across owners, as its page shows it.

Nothing here is about another owner's data: there are names of neighbours, bytes, steps and seconds,
this owner's own losses, and estimates of means that the neighbours pass on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hobnob.core.owners import Absence, Company, Neighbour
from hobnob.ground.pytrees import numbers
from hobnob.run.summary import Tuned, bytes_text, number_text, seconds_text

if TYPE_CHECKING:
    from hobnob.core.problem import Problem
    from hobnob.run.result import Result

AXES = ("step", "bytes", "seconds")  # columns that curves are drawn against


@dataclass(frozen=True)
class Curves:
    """Measurements that are drawn together: label -> [rows]."""

    name: str  # of files
    heading: str
    label: str
    text: str
    values: dict[str, np.ndarray]


@dataclass(frozen=True)
class OwnerSummary:
    """An owner's part of a run in plain numbers and sentences: all that its page shows.

    table        rows of column -> text
    axes         column of the history -> [rows]
    neighbours   rows of column -> text or number, one for each
    turned_away  the same for connections that were refused before they could speak
    traffic      neighbour -> bytes sent, received, and added by frames
    absences     neighbour -> those in this run
    steps        the first and the last step that this process made
    """

    title: str
    lead: str
    verdict: str
    tone: Literal["good", "bad"]
    table: list[dict[str, str]]
    axes: dict[str, np.ndarray]
    curves: list[Curves]
    neighbours: list[dict[str, Any]]
    turned_away: list[dict[str, Any]]
    traffic: dict[str, tuple[int, int, int]]
    absences: dict[str, list[Absence]]
    steps: tuple[int, int]
    tuned: Tuned | None
    settings: dict[str, Any]


def summarise_owner(problem: Problem, result: Result) -> OwnerSummary:
    company, history = result.company, result.history
    assert company is not None, "a run across owners"
    absences = {
        n.name: [a for a in company.absences if a.who == n.name] for n in company.neighbours
    }
    return OwnerSummary(
        title=f"{company.me} in {problem.name}",
        lead=_lead(result, company),
        verdict=" ".join([_message(result), *_absent(absences)]),
        tone="good" if result.success else "bad",
        table=_table(problem, result, company),
        axes={a: history[a] for a in AXES if a == "step" or np.any(history[a])},
        curves=_curves(problem, history),
        neighbours=[_row(n) for n in company.neighbours],
        turned_away=[{"why": why, "connections": n} for why, n in company.turned_away.items()],
        traffic={n.name: (n.sent, n.received, n.overhead) for n in company.neighbours},
        absences=absences,
        steps=(int(history["step"][0]), result.steps),
        tuned=_tuned(problem, result),
        settings=result.settings,
    )


def _message(result: Result) -> str:
    return result.message.removesuffix(result.advice).strip()


def _lead(result: Result, company: Company) -> str:
    own = len(numbers(result.agents["x"])[0])
    agents = "one agent" if own == 1 else f"{own} agents"
    names = [neighbour.name for neighbour in company.neighbours]
    return (
        f"{company.me} has {agents} of {result.network.size}, on a network with rho = "
        f"{result.network.rho:.3g}. It talks to {_listed(names)}, and to nobody else."
    )


def _absent(absences: dict[str, list[Absence]]) -> list[str]:
    """A sentence for each neighbour that was away."""
    said = []
    for name, times in absences.items():
        if not times:
            continue
        often = "once" if len(times) == 1 else f"{len(times)} times"
        still = " and did not come back" if times[-1].until is None else ""
        waited = sum(a.until_seconds - a.seconds for a in times if a.until_seconds is not None)
        together = " together" if len(times) > 1 else ""
        length = f", for {seconds_text(waited)} s{together}" if waited else ""
        said.append(f"{name} was away {often}{length}{still}.")
    return said


def _table(problem: Problem, result: Result, company: Company) -> list[dict[str, str]]:
    history, F = result.history, problem.objective_name
    rows = []
    if "own_outer_loss" in history:
        rows += [
            (f"own {F} at the start", number_text(history["own_outer_loss"][0])),
            (f"own {F} at the end", number_text(history["own_outer_loss"][-1])),
            ("mean of all members, estimated", number_text(history["mean_outer_loss"][-1])),
        ]
    sent = sum(neighbour.sent for neighbour in company.neighbours)
    frames = sum(neighbour.overhead for neighbour in company.neighbours)
    made = int(history["steps_made"][-1]) if "steps_made" in history else result.steps
    rows += [
        ("distance from neighbours' x", number_text(history["disagreement"][-1])),
        ("steps", f"{result.steps:,}" + (f", {made:,} made here" if made < result.steps else "")),
        ("sent to neighbours", bytes_text(sent)),
        ("and frames, both ways", bytes_text(frames)),
        ("seconds", seconds_text(float(history["seconds"][-1]))),
    ]
    return [{"what": what, "value": value} for what, value in rows]


def _curves(problem: Problem, history: dict[str, np.ndarray]) -> list[Curves]:
    found = []
    for column, label in (("outer_loss", problem.objective_name), ("inner_loss", "inner loss")):
        if f"own_{column}" in history:
            found.append(
                Curves(
                    column,
                    label[0].upper() + label[1:] if label != "F" else "Outer loss",
                    label if label != "F" else "outer loss",
                    "On this owner's own records, at its agents' x and y; and an estimate of the "
                    "mean of all members' such losses, which neighbours pass on at every record. "
                    "Who cannot be heard drops out of it.",
                    {
                        "own": history[f"own_{column}"],
                        "mean of all, estimated": history[f"mean_{column}"],
                    },
                )
            )
    text = (
        "How far this owner's x is from its neighbours', root mean square; and an estimate of the "
        "same for all members."
    )
    values = {"from neighbours": history["disagreement"], "all, estimated": history["spread"]}
    return [*found, Curves("disagreement", "Agreement", "distance between x", text, values)]


def _row(neighbour: Neighbour) -> dict[str, Any]:
    refused = [f"{reason}: {count:,}" for reason, count in neighbour.refused.items() if count]
    return {
        "neighbour": neighbour.name,
        "sent": bytes_text(neighbour.sent),
        "received": bytes_text(neighbour.received),
        "refused": ", ".join(refused) or "nothing",
    }


def _tuned(problem: Problem, result: Result) -> Tuned | None:
    if not (problem.labels and problem.readout):
        return None
    before, after = (np.asarray(problem.readout(x)) for x in (problem.x0, result.x))
    return Tuned(tuple(problem.labels), before, after, None)


def _listed(names: list[str]) -> str:
    if len(names) < 2:
        return "".join(names) or "nobody"
    return f"{', '.join(names[:-1])} and {names[-1]}"
