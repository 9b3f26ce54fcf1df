"""Dot charts: one row for each method, one panel for each cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from hobnob.ground.errors import HobnobError
from hobnob.report import style
from hobnob.report.intervals import Measured
from hobnob.report.picture import Picture, to_csv

_NOTHING = (np.nan, np.nan, np.nan)


def dots(
    panels: Mapping[str, Mapping[str, Measured]],
    units: Mapping[str, str],
    *,
    name: str,
    title: str,
    caption: str = "",
) -> Picture:
    """panel -> row -> (value, low, high), all on logarithmic axes.

    The lowest value of a panel is highlighted. An infinite one is an open mark at the right edge.
    units: panel -> unit of its values, such as "B".
    """
    rows = list(dict.fromkeys(row for points in panels.values() for row in points))
    if not rows:
        raise HobnobError(f"There is nothing to draw for {title}: give at least one row.")
    with style.theme():
        drawing = style.figure(0.9 + 0.2 * len(rows))
        axes = drawing.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for ax, (panel, points) in zip(axes, panels.items(), strict=True):
            _draw(ax, [points.get(row, _NOTHING) for row in rows], units.get(panel, ""))
            ax.set_title(panel, fontsize=8.5, color=style.INK)
        axes[0].set_yticks(range(len(rows)), [style.shorten(row, 22) for row in rows])
        axes[0].set_ylim(len(rows) - 0.5, -0.5)
        axes[0].tick_params(axis="y", labelcolor=style.INK)
        style.settle(drawing)
    lines = ((panel, row, *m) for panel, points in panels.items() for row, m in points.items())
    table = to_csv(("cost", "series", "value", "low", "high"), lines)
    return Picture(name, title, caption, table, drawing)


def _draw(ax: Axes, points: list[Measured], unit: str) -> None:
    value, low, high = np.array(points, float).T
    drawn = np.isfinite(value) & (value > 0)
    row = np.arange(len(points))
    if drawn.any():
        middle = np.where(drawn, value, 0.0)  # avoids inf - inf
        reach = np.nan_to_num([middle - low, high - middle], nan=0.0, posinf=0.0)
        best = row == np.argmin(np.where(drawn, value, np.inf))
        for chosen, colour in ((drawn & ~best, style.SERIES[0]), (best, style.SERIES[1])):
            ax.errorbar(
                value[chosen],
                row[chosen],
                xerr=np.maximum(reach[:, chosen], 0),
                fmt="o",
                markersize=4.5,
                color=colour,
                elinewidth=1.6,
            )
        ax.set_xscale("log")
        low_end, high_end = ax.get_xlim()
        while high_end / low_end < 30:  # so that every axis shows two round numbers
            low_end, high_end = low_end / 1.5, high_end * 1.5
        ax.set_xlim(low_end, high_end)
        ax.xaxis.set_major_locator(LogLocator(numticks=4))
        ax.xaxis.set_major_formatter(EngFormatter(unit=unit, sep="\u2009" if unit else ""))
    else:
        ax.set_xticks([])
    ax.xaxis.set_minor_locator(NullLocator())
    never = np.isinf(value)
    (marks,) = ax.plot(
        np.full(int(never.sum()), 0.97),
        row[never],
        ">",
        markersize=4.5,
        markerfacecolor=style.PAPER,
        markeredgecolor=style.MUTED,
        transform=ax.get_yaxis_transform(),
        clip_on=False,
    )
    marks.set_in_layout(False)  # an empty set of marks would count as one at the origin
