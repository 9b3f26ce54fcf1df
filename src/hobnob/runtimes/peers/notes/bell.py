"""Bell: wakes the run's thread in a round."""

from __future__ import annotations

import threading
from contextlib import suppress


class Bell:
    """Rung twice, it is heard once. A condition would wake its listener into a held lock."""

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        with suppress(RuntimeError):  # it rings already
            self._silent.release()

    def wait(self, seconds: float) -> None:
        self._silent.acquire(timeout=seconds)
