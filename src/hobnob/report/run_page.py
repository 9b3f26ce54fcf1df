"""The page of one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import networkx as nx

from hobnob.report.bars import bytes_by_part, weights_chart
from hobnob.report.curves import AXES, convergence
from hobnob.report.maps import network_map
from hobnob.report.page import Section, Tabs, write_page
from hobnob.report.picture import Picture

if TYPE_CHECKING:
    from hobnob.run.summary import Curve, Summary

NOT_PRIVATE = (
    "Messages are computed from records and can give them away: this is not a privacy technology."
)
APART = 20  # times: where one method costs so much more than the other, an axis is logarithmic


def run_page(path: Path, summary: Summary, versions: Mapping[str, object], command: str) -> Path:
    """Write the page of a run and return its path."""
    return write_page(
        path,
        title=summary.title,
        lead=summary.lead,
        verdict=summary.verdict,
        tone=summary.tone,
        table=summary.table,
        sections=_sections(summary),
        settings=summary.settings,
        versions=versions,
        command=command,
    )


def _sections(summary: Summary) -> list[Section]:
    sections = [
        Section(_heading(curve), curve.text, [_against_each_axis(summary, curve)])
        for curve in summary.curves
    ]
    if summary.settings.get("choice"):
        sections.append(Section("Why this method", str(summary.settings["choice"])))
    one_seed = f" This is seed {summary.first_seed}." if summary.first_seed is not None else ""
    if len(summary.distances) > 1:
        text = "Each agent is coloured by how far its x is from the mean of all at the end."
        sections.append(Section("The network", text + one_seed, [_map(summary)]))
    tuned = summary.tuned
    if tuned is not None:
        chart = weights_chart(
            tuned.labels, tuned.before, tuned.after, tuned.ideal, title="The tuned weights"
        )
        text = "One regularisation weight for each feature."
        sections.append(Section("What was tuned", text + one_seed, [chart]))
    parts = summary.sent.parts
    if any(parts.values()):
        what = "sent" if summary.sent.server is None else "sent and received"
        chart = bytes_by_part(parts, title=f"What an agent {what}")
        text = f"The parts of an agent's messages, over the whole run.{one_seed} {NOT_PRIVATE}"
        sections.append(Section("What was sent", text, [chart]))
    return sections


def _heading(curve: Curve) -> str:
    if curve.column == "consensus_x":
        return "Agreement"
    return curve.label[0].upper() + curve.label[1:]


def _against_each_axis(summary: Summary, curve: Curve) -> Tabs:
    pictures = {}
    for axis, values in summary.axes.items():
        words, series = AXES[axis], {summary.algorithm: (values, curve.values)}
        other = summary.beside
        if other is not None and curve.beside is not None and axis in other.axes:
            name = other.algorithm if other.algorithm not in series else f"{other.algorithm} again"
            series[name] = other.axes[axis], curve.beside
        ends = [float(along[-1]) for along, _ in series.values()]
        pictures["steps" if axis == "step" else axis] = convergence(
            series,
            words,
            curve.label,
            log_x=max(ends) > APART * min(ends),
            reference=curve.reference,
            name=f"{curve.column}-{axis}",
            title=f"{curve.label} against {words}",
        )
    return Tabs("Against", pictures)


def _map(summary: Summary) -> Picture:
    sent, graph = summary.sent, nx.Graph()
    graph.add_nodes_from(range(len(summary.distances)))
    graph.add_edges_from(sent.links)
    return network_map(graph, summary.distances, sent.links, server=sent.server)
