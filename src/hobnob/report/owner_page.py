"""The page of one owner's part of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hobnob.report.bars import weights_chart
from hobnob.report.company import timeline, traffic_bars
from hobnob.report.curves import AXES, convergence
from hobnob.report.page import Section, Tabs, write_page
from hobnob.report.run_page import NOT_PRIVATE

if TYPE_CHECKING:
    from hobnob.run.owned.owner_summary import Curves, OwnerSummary

AXIS_WORDS = {**AXES, "bytes": "bytes sent per agent"}


def owner_page(
    path: Path, summary: OwnerSummary, versions: Mapping[str, object], command: str
) -> Path:
    """Write the page of an owner and return its path."""
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


def _sections(summary: OwnerSummary) -> list[Section]:
    sections = [
        Section(curves.heading, curves.text, [_against_each_axis(summary, curves)])
        for curves in summary.curves
    ]
    if summary.tuned is not None:
        tuned = summary.tuned
        chart = weights_chart(tuned.labels, tuned.before, tuned.after, title="The tuned weights")
        text = "What the outer problem tuned, as this owner's agents have it at the end."
        sections.append(Section("What was tuned", text, [chart]))
    first, last = summary.steps
    away = [
        {
            "who": absence.who,
            "why": absence.why,
            "steps": _span(absence.step, absence.until),
            "seconds": _length(absence.seconds, absence.until_seconds),
        }
        for times in summary.absences.values()
        for absence in times
    ]
    text = (
        "A neighbour that is away keeps nobody from going on: the weight of its link moves to this "
        "owner's own agents until it is back."
    )
    chart = timeline(summary.absences, first, last)
    sections.append(Section("Who was away when", text, [chart], away))
    text = f"Between this owner and each neighbour, since it joined last. {NOT_PRIVATE}"
    sections.append(
        Section("Neighbours", text, [traffic_bars(summary.traffic)], summary.neighbours)
    )
    if summary.turned_away:
        text = "Connections that were refused before they could speak."
        sections.append(Section("Turned away", text, table=summary.turned_away))
    return sections


def _span(start: int, until: int | None) -> str:
    return f"{start:,} to {'the end' if until is None else f'{until:,}'}"


def _length(start: float, until: float | None) -> str:
    return "–" if until is None else f"{until - start:.1f}"


def _against_each_axis(summary: OwnerSummary, curves: Curves) -> Tabs:
    pictures = {}
    for axis, along in summary.axes.items():
        words = AXIS_WORDS[axis]
        pictures["steps" if axis == "step" else axis] = convergence(
            {label: (along, values) for label, values in curves.values.items()},
            words,
            curves.label,
            name=f"{curves.name}-{axis}",
            title=f"{curves.label} against {words}",
        )
    return Tabs("Against", pictures)
