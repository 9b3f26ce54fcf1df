"""Progress on a terminal: steps, rate, time left and the latest metrics."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import numpy as np

_SHOWN = ("objective", "outer_loss", "gradient_norm", "consensus_x")


def watched(shown: bool | None) -> bool:
    """Whether to speak on standard error; None asks whether somebody watches it."""
    return sys.stderr.isatty() if shown is None else shown


def say(text: str, shown: bool | None) -> None:
    if watched(shown):
        print(text, file=sys.stderr)


class Bar:
    """A bar on standard error; silent where `shown` is False, or is None and nobody watches."""

    def __init__(self, make: Callable[[], Any], shown: bool | None):
        self._bar: Any = make() if watched(shown) else None

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()


class Progress(Bar):
    """The bar of one run."""

    def __init__(self, steps: int, start: int, shown: bool | None):
        super().__init__(_make_bar, shown)
        if self._bar:
            self._task = self._bar.add_task(
                "compiling", total=steps, completed=start, latest="", rate=""
            )

    def update(self, step: int, rate: float, row: dict[str, np.ndarray]) -> None:
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


def _make_bar() -> Any:
    # rich is only needed where somebody watches.
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
