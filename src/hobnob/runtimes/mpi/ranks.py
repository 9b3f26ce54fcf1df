"""MpiGroup: the ranks of an MPI job as the group of a run."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from hobnob.runtimes.mpi.wire import MpiWire

T = TypeVar("T")


class MpiGroup:
    """The ranks of one job. Every call here waits for all of them."""

    owners = None

    def __init__(self, wire: MpiWire, parts: list[np.ndarray]):
        self._wire, self.parts = wire, parts
        self.rank, self.crowded = wire.rank, wire.crowded

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return len(self.parts) == 1

    @property
    def here(self) -> np.ndarray:
        return self.parts[self.rank]

    def from_leader(self, act: Callable[[], T]) -> T:
        outcome: tuple[Any, bytes | None] | None = None
        if self.leads:
            try:
                outcome = act(), None
            except Exception as error:
                self._wire.bcast((None, _packed(error)))
                raise
        value, failed = self._wire.bcast(outcome)
        if failed:
            raise _unpacked(failed)
        return value

    def gather(self, value: T) -> list[T] | None:
        return self._wire.gather(value)

    def allgather(self, value: T) -> list[T]:
        return self._wire.allgather(value)

    def scatter(self, values: list[T] | None) -> T:
        return self._wire.scatter(values)


def _packed(error: Exception) -> bytes:
    try:
        parts = pickle.dumps((type(error), error.args, vars(error)))
        pickle.loads(parts)
        return parts
    except Exception:  # a class, or contents, that only rank 0 knows
        return pickle.dumps((RuntimeError, (f"{type(error).__name__}: {error}",), {}))


def _unpacked(parts: bytes) -> Exception:
    kind, args, more = pickle.loads(parts)
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(more)
    return error
