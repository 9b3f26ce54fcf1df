"""Convergence: a measurement against steps, samples, bytes or seconds."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import cycle, product
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from hobnob.ground.errors import HobnobError
from hobnob.report import style
from hobnob.report.picture import Picture, to_csv

Array = NDArray[np.float64]
UNITS = {"bytes": "B", "seconds": "s", "steps": "", "step": "", "samples": ""}
AXES = {  # column of a history -> what an axis is called
    "step": "steps",
    "samples": "samples per agent",
    "bytes": "bytes sent per agent",
    "seconds": "seconds",
}
BAND = (0.1, 0.9)
HEIGHT = 2.9
_FAINT = 0.5


def convergence(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    axis: str,
    metric: str,
    *,
    log_x: bool = False,
    log_y: bool | None = None,
    slope: float | None = None,
    reference: tuple[float, str] | None = None,
    middle: Literal["median", "mean"] = "median",
    muted: Collection[str] = (),
    name: str | None = None,
    title: str | None = None,
) -> Picture:
    """Curves of `metric` against `axis`.

    curves: label -> (x [R], y [R]), or y [S, R] for S seeds, drawn as their `middle` and a band.
    log_y: None chooses a logarithmic axis when all values are positive and span 1.5 decades.
    slope: also draw x to this power, just above where the first curve ends.
    reference: (value, label) of a horizontal line.
    muted: labels of curves that are drawn in grey behind the others.
    """
    if not curves:
        raise HobnobError(f"There is no curve to draw for {metric}: give at least one.")
    data = {label: _checked(label, x, y) for label, (x, y) in curves.items()}
    every = np.concatenate([y.ravel() for _, y in data.values()])
    finite = every[np.isfinite(every)]
    if log_y is None:
        log_y = bool(finite.size and finite.min() > 0 and finite.max() > 10**1.5 * finite.min())
    # A logarithmic axis needs something positive to show.
    log_y = log_y and bool((finite > 0).any())
    log_x = log_x and any((x > 0).any() for x, _ in data.values())

    with style.theme():
        drawing = style.figure(HEIGHT)
        ax = drawing.add_subplot()
        looks = cycle(product(("-", "--", ":"), style.SERIES))
        for label in muted:
            x, y = data[label]
            _draw_muted(ax, x, _spread(y, middle).middle, log_x, log_y)
        for label in (label for label in data if label not in muted):
            x, y = data[label]
            _draw(ax, label, x, _spread(y, middle), *next(looks), log_x, log_y)
        if muted:
            ax.plot([], [], color=style.MUTED, alpha=_FAINT, linewidth=1, label="others")
        if reference is not None and np.isfinite(reference[0]) and (reference[0] > 0 or not log_y):
            style.reference_line(ax, *reference)
        ax.margins(x=0.02)
        style.scale(ax, "x", log_x, UNITS.get(axis.partition(" ")[0]))
        style.scale(ax, "y", log_y)
        if slope is not None:
            x, y = next(iter(data.values()))
            _draw_slope(ax, x, _spread(y, middle).middle, slope)
        ax.set_xlabel(axis)
        ax.set_ylabel(metric)
        style.legend(drawing, ax, HEIGHT)
        style.settle(drawing)

    return Picture(
        name=name or re.sub(r"\W+", "-", f"convergence {metric} {axis}").lower(),
        title=title or f"{metric} against {axis}",
        caption=_caption(data, middle, log_x, log_y, muted),
        csv=_csv(data, axis, metric),
        figure=drawing,
    )


def _checked(label: str, x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """x as [R] and y as [S, R]."""
    x, y = np.asarray(x), np.asarray(y)
    if x.ndim != 1 or y.ndim not in (1, 2) or y.shape[-1] != x.size or not y.size:
        raise HobnobError(
            f"Curve {label!r} has x of shape {x.shape} and y of shape {y.shape}: "
            "x must be [R] and y [R] or [seeds, R], with at least one value."
        )
    return x, np.atleast_2d(y)


class _Spread(NamedTuple):
    middle: Array
    low: Array
    high: Array
    seeds: int


def _spread(y: Array, middle: Literal["median", "mean"]) -> _Spread:
    """The middle and the band over seeds.

    A seed that diverged counts as infinite: leaving it out would make the others look better. With
    few seeds the band goes from the smallest to the largest.
    """
    y = np.where(np.isfinite(y), y, np.inf)
    low, high = np.quantile(y, BAND, axis=0, method="nearest")
    return _Spread(getattr(np, middle)(y, axis=0), low, high, len(y))


def _shown(values: Array, log: bool) -> Array:
    """The values that can be drawn. Others are NaN, which leaves a gap."""
    return np.where(np.isfinite(values) & ((values > 0) | (not log)), values, np.nan)


def _draw(
    ax: Axes, label: str, x: Array, y: _Spread, line: str, colour: str, log_x: bool, log_y: bool
) -> None:
    middle, low, high, seeds = y
    x, middle, high = _shown(x, log_x), _shown(middle, log_y), _shown(high, log_y)
    # A line through a single point is invisible.
    marker = "o" if np.isfinite(x + middle).sum() == 1 else ""
    ax.plot(x, middle, line, color=colour, marker=marker, label=style.shorten(label, 40))
    if seeds > 1 and np.isfinite(high).any():
        # On a log axis, a band that reaches zero is drawn down to the lowest value shown.
        floor = np.nanmin(np.concatenate([_shown(low, log_y), high]))
        low = np.where(np.isfinite(low), np.maximum(low, floor), np.nan)
        ax.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)


def _draw_muted(ax: Axes, x: Array, middle: Array, log_x: bool, log_y: bool) -> None:
    x, middle = _shown(x, log_x), _shown(middle, log_y)
    ax.plot(x, middle, color=style.MUTED, alpha=_FAINT, linewidth=1)


def _draw_slope(ax: Axes, x: Array, middle: Array, slope: float) -> None:
    """c x^slope over the last two thirds of the first curve, without widening the axes."""
    usable = np.flatnonzero((x > 0) & np.isfinite(middle) & (middle > 0))
    if usable.size < 2:
        return
    first, last = x[usable[0]], x[usable[-1]]
    across = np.geomspace(first ** (2 / 3) * last ** (1 / 3), last, 60)
    line = 1.5 * middle[usable[-1]] * (across / last) ** slope
    style.slope_line(ax, across, line, "theory: slope", slope)


def _caption(
    data: Mapping[str, tuple[Array, Array]],
    middle: str,
    log_x: bool,
    log_y: bool,
    muted: Collection[str],
) -> str:
    sentences = [f"Grey: {', '.join(muted)}."] if muted else []
    seeds = sorted({len(y) for _, y in data.values() if len(y) > 1})
    if seeds:
        count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        spread = "all of them" if seeds[-1] < 6 else "the middle 80 %"
        sentences.append(f"{middle.capitalize()} of {count} seeds; the band holds {spread}.")
    ys = np.concatenate([y.ravel() for _, y in data.values()])
    bad = int((~np.isfinite(ys)).sum())
    if bad:
        sentences.append(f"{bad:,} of {ys.size:,} values are not finite and count as infinite.")
    if log_y and (low := int((ys <= 0).sum())):
        sentences.append(f"{low:,} of {ys.size:,} values are zero or less: below this axis.")
    if log_x and any((x <= 0).any() for x, _ in data.values()):
        sentences.append("The start, at 0, is left of this axis.")
    return " ".join(sentences)


def _csv(data: Mapping[str, tuple[Array, Array]], axis: str, metric: str) -> str:
    rows = (
        (label, seed, *point)
        for label, (x, y) in data.items()
        for seed, values in enumerate(y)
        for point in zip(x.tolist(), values.tolist(), strict=True)
    )
    return to_csv(("curve", "seed", axis, metric), rows)
