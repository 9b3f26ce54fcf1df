"""Rows, and the table, file and figure made from them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.ticker import FuncFormatter, NullLocator

from hobnob.ground.files import write_whole
from hobnob.report import style


@dataclass(frozen=True)
class Row:
    """A measured number and its goal.

    `ratio` is true if it compares two measurements of the same run, so that it can be compared
    between machines; seconds cannot.
    """

    what: str
    against: str
    value: float
    goal: float | None
    at_most: bool = False
    ratio: bool = True
    unit: str = ""
    detail: str = ""

    @property
    def margin(self) -> float | None:
        """How many times better than the goal."""
        if self.goal is None:
            return None
        return self.goal / self.value if self.at_most else self.value / self.goal

    def __str__(self) -> str:
        goal = "" if self.goal is None else f"{'<=' if self.at_most else '>='} {self.goal:g}"
        verdict = {True: "yes", False: "no", None: ""}[self.margin and self.margin >= 1]
        value = f"{self.value:.3g}{self.unit}"
        return f"{self.what:62} {self.against:32} {value:>8} {goal:>8} {verdict:>4}  {self.detail}"


HEADING = f"{'what':62} {'against':32} {'measured':>8} {'goal':>8} {'met':>4}"


def save(rows: Sequence[Row], folder: Path) -> None:
    text = json.dumps([asdict(row) for row in rows], indent=2)
    write_whole(folder / "bench.json", text.encode())
    write_whole(folder / "bench.png", _drawn(rows))


def _drawn(rows: Sequence[Row]) -> bytes:
    """One bar per row, starting at the goal; right is better."""
    shown = [(row, margin) for row in rows if (margin := row.margin) is not None]
    with style.theme():
        drawing = style.figure(0.8 + 0.22 * len(shown))
        ax = drawing.subplots()
        for place, (row, margin) in enumerate(shown):
            colour = style.SERIES[0] if margin >= 1 else style.SERIES[1]
            ax.barh(place, margin - 1, left=1, height=0.6, color=colour)
            text = f"{row.value:.3g}{row.unit}"
            ax.annotate(
                text, (margin, place), (3 if margin >= 1 else -3, 0),
                textcoords="offset points", va="center", ha="left" if margin >= 1 else "right",
                fontsize=7, color=style.INK,
            )  # fmt: skip
        ax.set_yticks(range(len(shown)), [row.what for row, _ in shown], fontsize=7)
        ax.set_ylim(len(shown) - 0.4, -0.6)
        ax.set_xscale("log")
        margins = [margin for _, margin in shown]
        ax.set_xlim(min(0.4, 0.6 * min(margins)), max(2.5, 1.6 * max(margins)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.set_xticks([0.5, 1, 2, 5])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.axvline(1, color=style.INK, linewidth=0.8)
        ax.set_xlabel("times better than the goal")
        style.settle(drawing)
        png = io.BytesIO()
        drawing.savefig(png, format="png", dpi=150, bbox_inches="tight")
    return png.getvalue()
