"""Charts of one owner's neighbours: what went to and fro, and who was away when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hobnob.report import style
from hobnob.report.picture import Picture, to_csv

if TYPE_CHECKING:
    from hobnob.run.owned.owner_summary import Absence

ROW = 0.34  # inches
KINDS = ("sent", "received", "frames")


def traffic_bars(
    traffic: Mapping[str, tuple[int, int, int]],
    *,
    name: str = "traffic",
    title: str = "Bytes by neighbour",
) -> Picture:
    """Neighbour -> bytes sent, received, and added by frames: one bar for each, in three parts."""
    sizes = np.array(list(traffic.values()), float).reshape(-1, len(KINDS))
    height = 0.5 + ROW * max(1, len(traffic))
    with style.theme():
        drawing = style.figure(height)
        ax = drawing.add_subplot()
        start = np.zeros(len(sizes))
        rows = range(len(sizes))
        for kind, amounts, colour in zip(KINDS, sizes.T, style.SERIES, strict=False):
            bars = ax.barh(rows, amounts, 0.62, start, color=colour, label=kind)
            start = start + amounts
            if kind == KINDS[-1]:
                totals = [style.amount(total) for total in start]
                ax.bar_label(bars, totals, padding=5, color=style.MUTED)
        ax.set_yticks(rows, [style.shorten(neighbour, 20) for neighbour in traffic])
        ax.tick_params(axis="y", labelcolor=style.INK)
        ax.set_xlim(0, 1.2 * max([*start, 0]) or 1)
        ax.set_ylim(max(1, len(sizes)) - 0.5, -0.5)
        ax.xaxis.set_visible(False)
        ax.grid(visible=False)
        ax.spines.bottom.set_visible(False)
        style.legend(drawing, ax, height)
        style.settle(drawing)
    table = to_csv(("neighbour", *KINDS), [(who, *amounts) for who, amounts in traffic.items()])
    caption = (
        "Numbers that agents sent and received, and what frames and control messages added in "
        "both directions."
    )
    return Picture(name, title, caption, table, drawing)


def timeline(
    absences: Mapping[str, Sequence[Absence]],
    first: int,
    last: int,
    *,
    name: str = "away",
    title: str = "Who was away when",
) -> Picture:
    """One row for each neighbour over the steps `first` .. `last`, with gaps where it was away."""
    reach = max(last - first, 1)
    least = reach / 150  # so that a short absence can be seen
    with style.theme():
        drawing = style.figure(0.75 + ROW * max(1, len(absences)))
        ax = drawing.add_subplot()
        for row, times in enumerate(absences.values()):
            ax.barh(row, reach, 0.3, first, color=style.SERIES[0], alpha=0.55)
            for away in times:
                until = last if away.until is None else away.until
                start = min(away.step, last - least)
                ax.barh(row, max(until - start, least), 0.62, start, color=style.SERIES[1])
        ax.barh(-9, 0, color=style.SERIES[0], alpha=0.55, label="there")
        ax.barh(-9, 0, color=style.SERIES[1], label="away")
        ax.set_yticks(range(len(absences)), [style.shorten(who, 20) for who in absences])
        ax.tick_params(axis="y", labelcolor=style.INK)
        ax.set_xlim(first, first + reach)
        ax.set_ylim(max(1, len(absences)) - 0.5, -0.5)
        ax.grid(visible=False, axis="y")
        style.scale(ax, "x", False, "")
        ax.set_xlabel("steps")
        style.legend(drawing, ax, 0.75 + ROW * max(1, len(absences)))
        style.settle(drawing)
    every = [away for times in absences.values() for away in times]
    table = to_csv(("who", "why", "step", "seconds", "until", "until_seconds"), every)
    caption = "" if every else "Nobody was away."
    return Picture(name, title, caption, table, drawing)
