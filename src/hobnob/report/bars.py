"""Bar charts: tuned weights by feature, and bytes by part of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from hobnob.ground.errors import HobnobError
from hobnob.report import style
from hobnob.report.picture import Picture, to_csv

MOST_FEATURES = 60  # more rows are unreadable; the CSV has all of them


def weights_chart(
    names: Sequence[str],
    before: ArrayLike,
    after: ArrayLike,
    best: ArrayLike | None = None,
    *,
    axis: str = "weight",
    name: str = "weights",
    title: str = "The weights, before and after",
) -> Picture:
    """One row for each feature, largest weight first: `before`, `after` and a mark at `best`."""
    columns = {"before": np.asarray(before), "after": np.asarray(after)}
    if best is not None:
        columns["best"] = np.asarray(best)
    for column, values in columns.items():
        if values.shape != (len(names),) or not len(names):
            raise HobnobError(
                f"{len(names)} features are named and {column!r} has shape {values.shape}: "
                "there must be one number per name, and at least one name."
            )
    rows = zip(names, *(values.tolist() for values in columns.values()), strict=True)
    table = to_csv(("feature", *columns), rows)

    order = np.argsort(-columns["after"], kind="stable")
    caption = "Sorted by the tuned weight."
    if order.size > MOST_FEATURES:
        moved = np.argsort(-_moved(columns["before"], columns["after"]), kind="stable")
        order = order[np.isin(order, moved[:MOST_FEATURES])]
        caption += f" The {MOST_FEATURES} of {len(names):,} features that moved the most are shown."
    drawn = {column: values[order] for column, values in columns.items()}
    every = np.concatenate(list(drawn.values()))
    every = every[np.isfinite(every)]
    log = bool(every.size and every.min() > 0 and every.max() > 100 * every.min())

    with style.theme():
        drawing = style.figure(1.0 + 0.19 * order.size)
        ax = drawing.add_subplot()
        row = np.arange(order.size)
        ax.hlines(row, drawn["before"], drawn["after"], color=style.SERIES[0], alpha=0.35, lw=2.5)
        ax.plot(drawn["before"], row, "o", ms=4.5, mfc=style.PAPER, mec=style.MUTED, label="before")
        ax.plot(drawn["after"], row, "o", ms=6, color=style.SERIES[0], label="after")
        if best is not None:
            label = "best, with pooled data"
            ax.plot(drawn["best"], row, "|", ms=9, mew=2, color=style.SERIES[1], label=label)
        style.scale(ax, "x", log)
        ax.set_yticks(row, [style.shorten(names[i], 26) for i in order])
        ax.tick_params(axis="y", labelcolor=style.INK)
        ax.set_ylim(order.size - 0.4, -0.6)
        ax.set_xlabel(axis)
        drawing.legend(loc="outside upper right", ncols=3)
        style.settle(drawing)
    return Picture(name, title, caption, table, drawing)


def _moved(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """How far each weight moved: the ratio if all are positive, otherwise the difference."""
    if (before > 0).all() and (after > 0).all():
        before, after = np.log(before), np.log(after)
    return np.nan_to_num(np.abs(after - before), nan=np.inf)


def bytes_by_part(
    parts: Mapping[str, float], *, name: str = "bytes", title: str = "What an agent sent"
) -> Picture:
    """One bar for each part of an agent's messages, the largest first."""
    ordered = dict(sorted(parts.items(), key=lambda part: -part[1]))
    total = sum(ordered.values())
    with style.theme():
        drawing = style.figure(0.35 + 0.28 * max(1, len(ordered)))
        ax = drawing.add_subplot()
        bars = ax.barh(range(len(ordered)), list(ordered.values()), 0.66, color=style.SERIES[0])
        labels = [
            style.amount(value) + (f", {100 * value / total:.3g} %" if value > total / 1e3 else "")
            for value in ordered.values()
        ]
        ax.bar_label(bars, labels, padding=5, color=style.MUTED)
        ax.set_yticks(range(len(ordered)), [style.shorten(part) for part in ordered])
        ax.tick_params(axis="y", labelcolor=style.INK)
        ax.set_xlim(0, 1.4 * max([*ordered.values(), 0]) or 1)  # room for the longest bar's label
        ax.invert_yaxis()
        ax.xaxis.set_visible(False)
        ax.grid(visible=False)
        ax.spines.bottom.set_visible(False)
        style.settle(drawing)
    caption = f"{style.amount(total)} an agent." if total else "Nothing was sent."
    return Picture(name, title, caption, to_csv(("part", "bytes"), ordered.items()), drawing)
