"""Group: the processes of one owner's run. `OneProcess` here; MPI's is in `runtimes/mpi`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from hobnob.core.owners import Owners

T = TypeVar("T")


class Group(Protocol):
    """Who else takes part. All processes make the same calls in the same order.

    parts     the agents of each process, by its rank
    rank      which of them this process is; rank 0 leads: it measures, writes and prints
    crowded   True if processes of this run fill the cores of this machine
    owners    the other owners, if some agents are theirs; None if this group has all agents
    """

    parts: list[np.ndarray]
    rank: int
    crowded: bool
    owners: Owners | None

    @property
    def leads(self) -> bool: ...

    @property
    def alone(self) -> bool:
        """True if this owner has no other process."""
        ...

    @property
    def here(self) -> np.ndarray:
        """The agents of this process."""
        ...

    def from_leader(self, act: Callable[[], T]) -> T:
        """What `act` returns or raises at the leader, for everyone. Only the leader calls it."""
        ...

    def gather(self, value: T) -> list[T] | None:
        """Everyone's value, by rank, at the leader; None elsewhere."""
        ...

    def allgather(self, value: T) -> list[T]:
        """Everyone's value, by rank, for everyone."""
        ...

    def scatter(self, values: list[T] | None) -> T:
        """One of the leader's values for each, by rank."""
        ...


class OneProcess:
    """All agents of one owner in this process: all there are, unless there are other owners."""

    crowded = False
    leads = alone = True
    rank = 0

    def __init__(self, agents: np.ndarray, owners: Owners | None = None):
        self.here, self.owners = agents, owners
        self.parts = [self.here]

    def from_leader(self, act: Callable[[], T]) -> T:
        return act()

    def gather(self, value: T) -> list[T]:
        return [value]

    def allgather(self, value: T) -> list[T]:
        return [value]

    def scatter(self, values: list[T] | None) -> T:
        assert values is not None
        return values[0]
