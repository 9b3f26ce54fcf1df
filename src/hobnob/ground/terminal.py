"""Messages and progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self


def is_watched(shown: bool | None) -> bool:
    """True if progress should be shown; None asks whether standard error is a terminal."""
    return sys.stderr.isatty() if shown is None else shown


def say(text: str, shown: bool | None) -> None:
    if is_watched(shown):
        print(text, file=sys.stderr)


class Bar:
    """A progress bar on standard error. Silent if `shown` is False, or None off a terminal."""

    def __init__(self, make: Callable[[], Any], shown: bool | None):
        # `make` imports rich, which is only needed if the bar is shown.
        self._bar: Any = make() if is_watched(shown) else None

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
