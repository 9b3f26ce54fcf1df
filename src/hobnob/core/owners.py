"""Owners: what a run must ask others for when its agents belong to several owners.

There is no leader and nobody sees all data or all states. Each owner's process runs its own agents
and keeps its own history. Steps are common: a process that was away comes back at a later step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

Tree = Any  # a pytree of arrays


class Absence(NamedTuple):
    """A neighbour was away: from which step and second of this run, until when, and why.

    `until` and `until_seconds` are None if it did not come back.
    """

    who: str
    why: str
    step: int
    seconds: float
    until: int | None = None
    until_seconds: float | None = None


class Neighbour(NamedTuple):
    """What went over the wire to one neighbour and back, in bytes, and what was refused of it.

    sent, received   payload: the numbers that agents send each other
    overhead         what frames add to it in both directions: heads, tags and control frames
    refused          reason -> number of frames
    """

    name: str
    sent: int
    received: int
    overhead: int
    refused: Mapping[str, int]


class Company(NamedTuple):
    """Whom a process ran with.

    turned_away   reason -> connections that were refused before any frame could be sent
    """

    me: str
    neighbours: tuple[Neighbour, ...]
    absences: tuple[Absence, ...]
    turned_away: Mapping[str, int]


class Report(NamedTuple):
    """What one agent here heard of one of its neighbours, which may be here, too."""

    place: int  # which of the agents here
    other: int  # the neighbour's number
    epoch: int  # counts how often the link came up
    weight: float
    row: np.ndarray


class Owners(Protocol):
    """The other owners, as the loop of one owner's process sees them.

    Nobody waits without a deadline: who does not answer counts as away, and the run goes on.
    """

    @property
    def company(self) -> Company: ...

    @property
    def up(self) -> list[int]:
        """The neighbours whose link is up now."""
        ...

    @property
    def sent(self) -> tuple[int, int]:
        """(messages, bytes of payload) that this process has sent for its agents' steps."""
        ...

    def begin(self, step: int) -> int:
        """Wait until all are ready, or find those who run already. Returns the first step."""
        ...

    def next_step(self, step: int) -> int:
        """The step to make next: `step`, or a later one where the others are."""
        ...

    def enter(self, step: int, state: Tree) -> Tree:
        """Links that come up with this step do so now. The memories of flows agree after it."""
        ...

    def stays(self, step: int) -> bool:
        """True if this step can be made now, with the links as they are. It has then begun."""
        ...

    def over(self, step: int) -> bool:
        """True if all agreed to stop before this step."""
        ...

    def ask_to_stop(self) -> None:
        """Ask all members to stop at a common step."""
        ...

    def report(self, rows: np.ndarray) -> list[Report]:
        """Exchange one row of numbers an agent with the neighbours at a recorded step.

        Returns one for each of the two directions of every link that is up.
        """
        ...

    def end(self, finished: bool) -> None:
        """Say goodbye. After `finished`, wait for the neighbours to have all they need."""
        ...
