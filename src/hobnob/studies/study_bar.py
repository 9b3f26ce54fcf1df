"""The progress bar of a study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hobnob.ground.terminal import Bar
from hobnob.studies.cell import Cell


class StudyBar(Bar):
    """The bar of all cells of a study."""

    def __init__(self, cells: Sequence[Cell], shown: bool | None):
        super().__init__(_make_bar, shown)
        self._parts = {cell.name: 0.0 for cell in cells}
        if self._bar:
            total = sum(cell.work for cell in cells)
            self._task = self._bar.add_task("", total=total, cells=f"0/{len(cells)}", latest="")

    def update(self, cell: Cell, part: float) -> None:
        """Show that `part` of the cell, from 0 to 1, is done."""
        more = max(0.0, part - self._parts[cell.name])
        self._parts[cell.name] += more
        if self._bar:
            done = sum(part >= 1 for part in self._parts.values())
            cells = f"{done}/{len(self._parts)}"
            self._bar.update(self._task, advance=more * cell.work, cells=cells, latest=cell.name)


def _make_bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("measuring"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[cells]} runs"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[latest]}"),
        # The first cells compile, so the rate of the last minutes says more.
        speed_estimate_period=600,
        console=Console(stderr=True),
    )
