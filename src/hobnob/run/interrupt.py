"""Ctrl-C and SIGUSR1 end a run between two chunks of steps, not in the middle of one."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = tuple(getattr(signal, n) for n in ("SIGINT", "SIGUSR1") if hasattr(signal, n))


class Interrupt:
    """Inside it, the first Ctrl-C sets `requested`; a second one ends the run at once.

    SIGUSR1 is what launchers such as mpirun and SLURM pass on to the processes of a job.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[Any, Any] = {}
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._main:
            self._previous = {n: signal.signal(n, self._handle) for n in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._main:
            for number, handler in self._previous.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
