"""The page of one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hobnob.analysis.exact import Optimum, affordable, optimum
from hobnob.core.problem import Problem
from hobnob.ground.errors import ProblemError
from hobnob.ground.pytrees import numbers
from hobnob.report.bars import bytes_by_kind, weights_chart
from hobnob.report.curves import convergence
from hobnob.report.maps import network_map
from hobnob.report.page import Choice, Section, write_page
from hobnob.run.result import Result

AXES = {"step": "steps", "samples": "samples per agent", "bytes": "bytes sent per agent"}
AXES |= {"seconds": "seconds"}


class Summary(NamedTuple):
    """A run in a few numbers; `best` is what all data in one place would allow, if affordable."""

    title: str
    table: list[dict[str, Any]]
    best: Optimum | None


def summary(problem: Problem, result: Result) -> Summary:
    history, F = result.history, problem.objective_name
    rows: list[tuple[str, Any]] = []
    best = _best(problem)
    if "objective" in history:
        rows += [
            (f"{F} at the start", _number(_middle(history["objective"], 0))),
            (f"{F} at the end", _number(_middle(history["objective"], -1))),
        ]
    elif "outer_loss" in history:
        rows += [
            ("outer loss at the start", _number(_middle(history["outer_loss"], 0))),
            ("outer loss at the end", _number(_middle(history["outer_loss"], -1))),
        ]
    if best:
        rows.append((f"{F} at the best centralised point", _number(best.value)))
    if "gradient_norm" in history:
        rows.append(("|grad F| at the end", _number(_middle(history["gradient_norm"], -1))))
    if "consensus_x" in history:
        rows.append(("consensus error of x", _number(_middle(history["consensus_x"], -1))))
    rows += [
        ("steps", f"{result.steps:,}"),
        ("samples per agent", f"{_middle(history['samples'], -1):,.0f}"),
        ("bytes sent per agent", _bytes(_middle(history["bytes"], -1))),
        ("seconds", f"{_middle(history['seconds'], -1):.1f}"),
    ]
    title = f"{result.settings['algorithm']} on {problem.name}"
    return Summary(title, [{"what": name, "value": value} for name, value in rows], best)


def run_page(
    path: Path,
    problem: Problem,
    result: Result,
    facts: Summary,
    versions: Mapping[str, object],
    command: str,
) -> Path:
    network = result.network
    return write_page(
        path,
        title=facts.title,
        lead=f"{network.size} agents, each with data of its own, on a network with rho = "
        f"{network.rho:.3g}. Every agent talks only to its neighbours.",
        verdict=_verdict(problem, result, facts),
        tone="good" if result.success else "bad",
        table=facts.table,
        sections=_sections(problem, result, facts),
        settings=result.settings,
        versions=versions,
        command=command,
    )


def _sections(problem: Problem, result: Result, facts: Summary) -> list[Section]:
    sections = []
    best = (facts.best.value, "best centralised") if facts.best else None
    measured = [
        ("objective", problem.objective_name, best),
        ("gradient_norm", "|grad F|", None),
        ("consensus_x", "consensus error of x", None),
    ]
    if "objective" not in result.history:
        measured[0] = ("outer_loss", "outer loss", None)
    for column, label, reference in measured:
        if column in result.history:
            pictures = [_against_each_axis(result, column, label, reference)]
            sections.append(Section(_title(column, label), _WHAT[column], pictures))
    sections.append(
        Section(
            "The network",
            "Each agent is coloured by how far its x is from the network's mean at the end.",
            [_map(result)],
        )
    )
    if problem.labels and problem.readout:
        before, after = problem.readout(problem.x0), problem.readout(_one_x(result))
        ideal = problem.readout(facts.best.x) if facts.best else None
        chart = weights_chart(problem.labels, before, after, ideal, title="The tuned weights")
        sections.append(
            Section("What was tuned", "One regularisation weight for each feature.", [chart])
        )
    parts = {name: float(size) for name, size in result.message_parts.items()}
    if not parts:
        return sections
    sections.append(
        Section(
            "What was sent",
            "The parts of a step's messages; in a loop, of one round of it. Messages are computed "
            "from records and can give them away: this is not a privacy technology.",
            [bytes_by_kind(parts, name="message", title="What is in a message")],
        )
    )
    return sections


_WHAT = {
    "objective": "At the mean of all agents' x, with the inner problem solved exactly on all data.",
    "outer_loss": "At the mean of all agents' x and y, over all data.",
    "gradient_norm": "The exact gradient of F at the mean of all agents' x.",
    "consensus_x": "The mean squared distance of an agent's x from the mean of all.",
}


def _title(column: str, label: str) -> str:
    return "Agreement" if column == "consensus_x" else label[0].upper() + label[1:]


def _against_each_axis(
    result: Result, column: str, label: str, reference: tuple[float, str] | None
) -> Choice:
    history, pictures = result.history, {}
    for axis, words in AXES.items():
        x = history[axis] if history[axis].ndim == 1 else np.median(history[axis], axis=0)
        pictures[axis if axis != "step" else "steps"] = convergence(
            {result.settings["algorithm"]: (x, history[column])},
            words,
            label,
            reference=reference,
            name=f"{column}-{axis}",
            title=f"{label} against {words}",
        )
    return Choice("Against", pictures)


def _map(result: Result) -> Any:
    x = _flat_agents(result)
    distance = np.linalg.norm(x - x.mean(axis=0), axis=1)
    graph = result.network.graph
    per_link = sum(result.message_parts.values()) * result.steps * 2  # both directions
    return network_map(graph, distance, dict.fromkeys(graph.edges, per_link))


def _flat_agents(result: Result) -> np.ndarray:
    """Every agent's x as a row; of the first seed, where there are several."""
    leaves = [np.asarray(leaf) for leaf in numbers(result.agents["x"])]
    if result.history["step"].ndim == 2:
        leaves = [leaf[0] for leaf in leaves]
    return np.concatenate([leaf.reshape(result.network.size, -1) for leaf in leaves], axis=1)


def _one_x(result: Result) -> np.ndarray:
    return _flat_agents(result).mean(axis=0)


def _best(problem: Problem) -> Optimum | None:
    if not affordable(problem):
        return None
    try:
        return optimum(problem)
    except ProblemError:
        return None


def _verdict(problem: Problem, result: Result, facts: Summary) -> str:
    if not facts.best or "objective" not in result.history:
        return result.message
    start, end = (_middle(result.history["objective"], at) for at in (0, -1))
    if start - facts.best.value <= 1e-12:
        return result.message
    way = (start - end) / (start - facts.best.value)
    return (
        f"{result.message} The {problem.objective_name} went from {start:.4g} to {end:.4g}, "
        f"{100 * way:.0f}% of the way to {facts.best.value:.4g}, the best with all data together."
    )


def _middle(values: np.ndarray, at: int) -> float:
    """The median over seeds of a column's entry."""
    return float(np.median(values[..., at]))


def _number(value: float) -> str:
    return f"{value:.4g}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"
