"""Charts of measured numbers with their confidence intervals along an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes

from hobnob.ground.errors import HobnobError
from hobnob.report import style
from hobnob.report.picture import Picture, to_csv

HEIGHT = 2.9
MARKERS = ("o", "s", "D", "^", "v", "P")

Measured = tuple[float, float, float]  # value, low, high


def intervals(
    series: Mapping[str, Mapping[object, Measured]],
    axis: str,
    metric: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    slope: float | None = None,
    reference: tuple[float, str] | None = None,
    name: str,
    title: str,
    caption: str = "",
) -> Picture:
    """`metric` along `axis`: label -> place -> (value, low, high).

    Places that are all numbers lie on a numeric axis; names, such as those of networks, lie side
    by side.
    slope: also draw x to this power, just above the first value of the first series.
    reference: (value, label) of a horizontal line.
    """
    if not any(series.values()):
        raise HobnobError(f"There is nothing to draw for {metric}: give at least one value.")
    places = list(dict.fromkeys(place for points in series.values() for place in points))
    numbers = all(isinstance(place, int | float | np.number) for place in places)
    with style.theme():
        drawing = style.figure(HEIGHT)
        ax = drawing.add_subplot()
        looks = zip(cycle(style.SERIES), cycle(MARKERS), strict=False)
        for i, ((label, points), look) in enumerate(zip(series.items(), looks, strict=False)):
            apart = 0.12 * (i - (len(series) - 1) / 2)  # so that series don't overlap
            x = [float(p) if numbers else places.index(p) + apart for p in points]  # type: ignore[arg-type]
            _draw(ax, label, x, list(points.values()), *look, joined=numbers)
        if reference is not None and np.isfinite(reference[0]) and (reference[0] > 0 or not log_y):
            style.reference_line(ax, *reference)
        style.scale(ax, "y", log_y)
        if numbers:
            ax.margins(x=0.06)
            style.scale(ax, "x", log_x)
            if len(places) <= 8:
                ax.set_xticks(places, [style.tick(float(p)) for p in places], minor=False)  # type: ignore[arg-type]
        else:
            ax.set_xticks(range(len(places)), [style.shorten(p, 16) for p in places])
            ax.set_xlim(-0.5, len(places) - 0.5)
        if slope is not None and numbers:
            _draw_slope(ax, next(iter(series.values())), slope)
        ax.set_xlabel(axis)
        ax.set_ylabel(metric)
        style.legend(drawing, ax, HEIGHT)
        style.settle(drawing)
    rows = ((label, p, *m) for label, points in series.items() for p, m in points.items())
    table = to_csv(("series", axis, metric, "low", "high"), rows)
    return Picture(name, title, caption, table, drawing)


def _draw(
    ax: Axes,
    label: str,
    x: Sequence[float],
    points: Sequence[Measured],
    colour: str,
    marker: str,
    joined: bool,
) -> None:
    value, low, high = np.array(points, float).T
    reach = np.nan_to_num([value - low, high - value], nan=0.0, posinf=0.0)
    ax.errorbar(
        x,
        value,
        yerr=np.maximum(reach, 0),
        color=colour,
        marker=marker,
        markersize=4.5,
        linewidth=1 if joined else 0,
        elinewidth=1.6,
        capsize=3,
        label=style.shorten(label, 40),
    )


def _draw_slope(ax: Axes, points: Mapping[object, Measured], slope: float) -> None:
    x = np.array([float(p) for p in points], float)  # type: ignore[arg-type]
    first = next(iter(points.values()))[0]
    style.slope_line(ax, x, 1.5 * first * (x / x[0]) ** slope, "slope", slope)
