"""Summary: what a run found, as the numbers and sentences that a page shows.

All computing for a page happens here. `hobnob.report` only draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hobnob.analysis.exact import Optimum, affordable, optimum
from hobnob.ground.errors import ProblemError
from hobnob.ground.pytrees import numbers

if TYPE_CHECKING:
    from hobnob.core.problem import Problem
    from hobnob.run.result import Result

AXES = ("step", "samples", "bytes", "seconds")  # columns that curves are drawn against


@dataclass(frozen=True)
class Curve:
    """One measurement over the recorded steps.

    column      its name in the history
    label       its name for readers
    text        what it is, in a sentence
    values      [rows], or [seeds, rows]
    reference   a value to compare with, and its name
    beside      the same of a second algorithm, if one was run beside it
    """

    column: str
    label: str
    text: str
    values: np.ndarray
    reference: tuple[float, str] | None = None
    beside: np.ndarray | None = None


@dataclass(frozen=True)
class Tuned:
    """What the outer problem tuned: one number a label, before and after the run.

    `ideal` are the numbers at the best centralised point, if it was computed.
    """

    labels: tuple[str, ...]
    before: np.ndarray
    after: np.ndarray
    ideal: np.ndarray | None


@dataclass(frozen=True)
class Sent:
    """What the agents sent, in bytes, as the ledger counted it.

    links    the agents at the ends of every link -> what it carried, both directions together
    server   [agents], what each agent exchanged with a server; None if there was none
    parts    the part of a message -> what an agent sent of it, the mean over agents
    """

    links: dict[tuple[int, int], int]
    server: np.ndarray | None
    parts: dict[str, float]

    @property
    def per_agent(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Summary:
    """A run in plain numbers and sentences: all that its page shows.

    tone        whether the verdict is good news
    table       rows of column -> text
    axes        column of the history -> [rows], what curves are drawn against
    distances   [agents], how far each agent's x is from the mean at the end
    sent        with several seeds, of the first one; so are `distances` and `tuned`
    best        F at the best centralised point; None if it was not computed
    """

    title: str
    lead: str
    verdict: str
    tone: Literal["good", "bad"]
    table: list[dict[str, str]]
    algorithm: str
    axes: dict[str, np.ndarray]
    curves: list[Curve]
    distances: np.ndarray
    sent: Sent
    tuned: Tuned | None
    best: float | None
    first_seed: int | None  # with several seeds, the one that `sent` and `distances` are about
    settings: dict[str, Any]
    beside: Beside | None = None


@dataclass(frozen=True)
class Beside:
    """A second algorithm: its name, and its own `axes`."""

    algorithm: str
    axes: dict[str, np.ndarray]


def summarise(problem: Problem, result: Result, beside: Result | None = None) -> Summary:
    """`beside` is what a second algorithm found on the same problem."""
    history = result.history
    best = _best(problem)
    several = history["step"].ndim == 2
    sent = _sent(result)
    return Summary(
        title=_title(problem, result, beside),
        lead=_lead(result, sent),
        verdict=_verdict(problem, result, best),
        tone="good" if result.success else "bad",
        table=_table(problem, result, best, beside),
        algorithm=result.settings["algorithm"],
        axes=_axes(history),
        curves=_curves(problem, result, best, beside),
        distances=_distances(_agents_x(result)),
        sent=sent,
        tuned=_tuned(problem, result, best),
        best=best.value if best else None,
        first_seed=result.settings["seed"][0] if several else None,
        settings=result.settings,
        beside=beside and Beside(beside.settings["algorithm"], _axes(beside.history)),
    )


def _title(problem: Problem, result: Result, beside: Result | None) -> str:
    names = [one.settings["algorithm"] for one in (result, beside) if one is not None]
    return f"{' and '.join(names)} on {problem.name}"


@dataclass(frozen=True)
class Headline:
    """What a notebook shows of a result.

    choice   which method was chosen and why, if none was given
    steps    [rows]
    curve    the measurement that says most, if any was recorded
    """

    verdict: str
    choice: str
    algorithm: str
    steps: np.ndarray
    curve: Curve | None


def headline(result: Result) -> Headline:
    history = result.history
    columns = [c for c in ("objective", "outer_loss", "consensus_x") if c in history]
    curves = [Curve(c, c.replace("_", " "), _TEXTS[c], history[c]) for c in columns]
    return Headline(
        verdict=str(result),
        choice=result.choice,
        algorithm=result.settings["algorithm"],
        steps=np.atleast_2d(history["step"])[0],
        curve=curves[0] if curves else None,
    )


_TEXTS = {
    "objective": "At the mean of all agents' x, with the inner problem solved exactly on all data.",
    "outer_loss": "At the mean of all agents' x and y, over all data.",
    "gradient_norm": "The exact gradient of F at the mean of all agents' x.",
    "consensus_x": "The mean squared distance of an agent's x from the mean of all.",
}


def _axes(history: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of AXES, the median over seeds. One that never grows is left out."""
    axes = {axis: np.median(np.atleast_2d(history[axis]), axis=0) for axis in AXES}
    return {axis: values for axis, values in axes.items() if axis == "step" or values.any()}


def _curves(
    problem: Problem, result: Result, best: Optimum | None, beside: Result | None
) -> list[Curve]:
    history = result.history
    labels = {"objective": problem.objective_name}
    if "objective" not in history:
        labels = {"outer_loss": "outer loss"}
    labels["gradient_norm"] = "|grad F|"
    if not (np.asarray(history.get("consensus_x", 0)) <= _rounding(_agents_x(result)) ** 2).all():
        labels["consensus_x"] = "consensus error of x"
    references = {"objective": (best.value, "best centralised")} if best else {}
    return [
        Curve(
            column,
            label,
            _TEXTS[column],
            history[column],
            references.get(column),
            beside.history.get(column) if beside else None,
        )
        for column, label in labels.items()
        if column in history
    ]


def _lead(result: Result, sent: Sent) -> str:
    size = result.network.size
    if size == 1:
        return "One agent, which has all data."
    agents = f"{size} agents, each with data of its own"
    if sent.server is not None:
        how = "only to" if not any(sent.links.values()) else "to its neighbours and to"
        return f"{agents}. Every agent talks {how} a server."
    return (
        f"{agents}, on a network with rho = {result.network.rho:.3g}. "
        f"Every agent talks only to its neighbours."
    )


def _verdict(problem: Problem, result: Result, best: Optimum | None) -> str:
    if best is None or "objective" not in result.history:
        return result.message
    start, end = (_median(result.history["objective"], at) for at in (0, -1))
    if start - best.value <= 1e-12:
        return result.message
    way = (start - end) / (start - best.value)
    name = problem.objective_name
    return (
        f"{result.message} {name[0].upper() + name[1:]} went from {start:.4g} to {end:.4g}, "
        f"{100 * way:.0f}% of the way to {best.value:.4g}, the best with all data together."
    )


def _table(
    problem: Problem, result: Result, best: Optimum | None, beside: Result | None
) -> list[dict[str, str]]:
    """What was measured and what it cost, one column an algorithm."""
    own = _facts(problem, result, best)
    if beside is None:
        return [{"what": name, "value": value} for name, value in own.items()]
    other = _facts(problem, beside, best)
    first, second = (one.settings["algorithm"] for one in (result, beside))
    second = second if second != first else f"{second} beside it"
    return [{"what": n, first: value, second: other.get(n, "")} for n, value in own.items()]


def _facts(problem: Problem, result: Result, best: Optimum | None) -> dict[str, str]:
    history, F = result.history, problem.objective_name
    rows: list[tuple[str, str]] = []
    if "objective" in history:
        rows += [
            (f"{F} at the start", number_text(_median(history["objective"], 0))),
            (f"{F} at the end", number_text(_median(history["objective"], -1))),
        ]
    elif "outer_loss" in history:
        rows += [
            ("outer loss at the start", number_text(_median(history["outer_loss"], 0))),
            ("outer loss at the end", number_text(_median(history["outer_loss"], -1))),
        ]
    if best:
        rows.append((f"{F} at the best centralised point", number_text(best.value)))
    if "gradient_norm" in history:
        rows.append(("|grad F| at the end", number_text(_median(history["gradient_norm"], -1))))
    if "consensus_x" in history and result.network.size > 1:
        rows.append(("consensus error of x", number_text(_median(history["consensus_x"], -1))))
    rows += [
        ("steps", f"{result.steps:,}"),
        ("samples per agent", f"{_median(history['samples'], -1):,.0f}"),
        ("bytes sent per agent", bytes_text(_median(history["bytes"], -1))),
        ("seconds", seconds_text(_median(history["seconds"], -1))),
    ]
    return dict(rows)


def _sent(result: Result) -> Sent:
    traffic = result.traffic
    ends, carried = traffic.links, _first_seed(traffic.bytes, 1)
    by_agent = _first_seed(np.asarray(result.ledger["bytes"]), 1)
    # An agent sends one half of what its links carry. The ledger has it and the server's share.
    over_links = np.bincount(ends.ravel(), np.repeat(carried, 2) / 2, result.network.size)
    server = by_agent - over_links
    has_server = bool(server.any())
    return Sent(
        links={(i, j): int(size) for (i, j), size in zip(ends.tolist(), carried, strict=True)},
        server=server if has_server else None,
        parts={
            _part_name(name, has_server): float(_first_seed(np.asarray(size), 0))
            for name, size in traffic.parts.items()
        },
    )


def _part_name(name: str, server: bool) -> str:
    """The ledger's name of a part, such as "up x", in words."""
    way, _, part = name.partition(" ")
    if not server or way not in ("up", "down"):
        way, part = "", name
    if part in ("", "array"):
        part = "unnamed array"
    elif part.isdecimal():
        part = f"array {part}"
    return {"up": f"{part} to the server", "down": f"{part} from the server"}.get(way, part)


def _tuned(problem: Problem, result: Result, best: Optimum | None) -> Tuned | None:
    if not (problem.labels and problem.readout):
        return None
    mean = problem.x_layout.unravel(_agents_x(result).mean(axis=0), np)
    return Tuned(
        labels=tuple(problem.labels),
        before=np.asarray(problem.readout(problem.x0)),
        after=np.asarray(problem.readout(mean)),
        ideal=np.asarray(problem.readout(best.x)) if best else None,
    )


def _agents_x(result: Result) -> np.ndarray:
    """[agents, d_x]; with several seeds, of the first one."""
    leaves = [np.asarray(leaf) for leaf in numbers(result.agents["x"])]
    if result.history["step"].ndim == 2:
        leaves = [leaf[0] for leaf in leaves]
    return np.concatenate([leaf.reshape(result.network.size, -1) for leaf in leaves], axis=1)


def _distances(x: np.ndarray) -> np.ndarray:
    """[agents], from the mean. What rounding alone may cause is 0."""
    distances = np.linalg.norm(x - x.mean(axis=0), axis=1)
    return np.where(distances <= _rounding(x), 0.0, distances)


def _rounding(x: np.ndarray) -> float:
    """How far agents that agree may be from their mean, which is computed too."""
    return float(8 * np.finfo(x.dtype).eps * np.linalg.norm(x.mean(axis=0)))


def _first_seed(values: np.ndarray, axes: int) -> np.ndarray:
    """Without the axis of seeds, if there is one before the last `axes`."""
    return values[0] if values.ndim > axes else values


def _best(problem: Problem) -> Optimum | None:
    if not affordable(problem):
        return None
    try:
        return optimum(problem)
    except ProblemError:
        return None


def _median(values: np.ndarray, at: int) -> float:
    """The median over seeds of a column's entry."""
    return float(np.median(values[..., at]))


def number_text(value: float) -> str:
    return f"{value:.4g}"


def seconds_text(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def bytes_text(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"
