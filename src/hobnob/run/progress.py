"""The progress bar of a run: steps, rate, time left and the latest metrics."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hobnob.ground.terminal import is_watched
from hobnob.run.observers import Observer, Row

_SHOWN = ("objective", "outer_loss", "gradient_norm", "consensus_x")


class ProgressBar(Observer):
    """On standard error; silent if `shown` is False, or None off a terminal."""

    def __init__(self, shown: bool | None):
        self._bar = _make_bar() if is_watched(shown) else None

    def start(self, step: int, steps: int) -> None:
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task(
                "compiling", total=steps, completed=step, latest="", rate=""
            )

    def chunk(self, step: int, rate: float, row: Row) -> None:
        if not self._bar:
            return
        latest = "  ".join(
            f"{name.replace('_', ' ')} {float(np.median(row[name])):.4g}"
            for name in _SHOWN
            if name in row
        )
        per_second = f"{rate:,.0f} steps/s" if rate >= 10 else f"{rate:.2g} steps/s"
        self._bar.update(
            self._task, completed=step, description="solving", latest=latest, rate=per_second
        )

    def end(self) -> None:
        if self._bar:
            self._bar.stop()


def _make_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichBar

    return RichBar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[latest]}"),
        console=Console(stderr=True),
        # Prints of a callback go around the bar on a terminal, and stay in a file or a pipe.
        redirect_stdout=sys.stdout.isatty(),
    )
