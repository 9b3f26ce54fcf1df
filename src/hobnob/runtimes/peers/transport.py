"""How frames travel between members. One implementation is for tests, one for the real thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

Heard = Callable[[str, bytes], None]  # (neighbour's name, frame): called from any thread
Wired = Callable[[str, bool], None]  # (neighbour's name, whether the wire to it is up)


class Transport(Protocol):
    """How frames travel between neighbouring members. A frame may be lost, or come late.

    A frame arrives whole or not at all. Frames of one neighbour arrive in the order they were sent.
    """

    refused: Counter[str]  # connections turned away below our frames, by reason

    def open(self, heard: Heard, wired: Wired) -> None:
        """Start. Both callbacks must return soon: what they hold up is the wire itself."""
        ...

    def send(self, to: str, frame: bytes | bytearray | memoryview) -> bool:
        """Hand a frame over. False if the wire is down. Never waits past a fixed deadline."""
        ...

    def close(self) -> None:
        """Hang up. Neighbours see the wire go down. A callback that is running may still end."""
        ...
