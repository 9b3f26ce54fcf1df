"""Picture: a drawing, its caption and its numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from matplotlib.figure import Figure

from hobnob.ground.files import write_whole
from hobnob.report import style


@dataclass(frozen=True)
class Picture:
    """One drawing. `svg` is for a page, `csv` has all its numbers, `save` writes files."""

    name: str  # of its files, without the ending
    title: str
    caption: str
    csv: str
    figure: Figure = field(repr=False, compare=False)

    @cached_property
    def standalone(self) -> str:
        """The SVG as a file of its own, in light colours."""
        return style.standalone(self.figure, self.title)

    @cached_property
    def svg(self) -> str:
        """The SVG for inside a page: it scales and follows light and dark."""
        return style.inline(self.standalone)

    def png(self, dpi: int = 200) -> bytes:
        return style.png(self.figure, dpi)

    def save(self, folder: str | Path) -> list[Path]:
        """Write `name`.svg, .png and .csv into a folder, which is created if it is missing."""
        folder = Path(folder)
        contents = {
            "svg": self.standalone.encode(),
            "png": self.png(),
            "csv": self.csv.encode(),
        }
        paths = []
        for ending, content in contents.items():
            paths.append(folder / f"{self.name}.{ending}")
            write_whole(paths[-1], content)
        return paths


def to_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows of Python numbers and names as CSV; `repr` of a float gives back the same float."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()
