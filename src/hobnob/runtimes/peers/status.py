"""Status: where a member is, and what it knows of everybody, passed on by all neighbours.

That is how members without a leader learn that all have arrived, which step to begin with, and the
largest and smallest curvature among them.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from hobnob.runtimes.peers.frames import Refusal

_FIXED = struct.Struct("<QBBBxI8sqQ")
ROW = np.dtype(
    [
        ("born", "<u8"),  # when the process started: a later one replaces an earlier one
        ("here", "u1"),  # it has met all its neighbours
        ("ready", "<i8"),  # the step that it can begin with; -1: not yet
        ("largest", "<f8"),  # curvature of its inner loss
        ("smallest", "<f8"),
    ]
)


class Phase(IntEnum):
    ARRIVING = 0  # not yet able to make a step
    READY = 1  # to begin, with the others or where they are
    RUNNING = 2
    ENDING = 3


class Status(NamedTuple):
    """One member's own state, and its table of all members."""

    born: int  # which process of the member this is
    phase: int
    waiting: bool  # for frames of others
    up: bool  # its end of the link to the receiver is up, or will be
    epoch: int  # of that link
    generation: bytes  # which start of the run it belongs to
    step: int
    expected: int  # the next frame of numbers that it needs over that link
    table: np.ndarray

    def pack(self) -> bytes:
        fixed = _FIXED.pack(
            self.born,
            self.phase,
            self.waiting,
            self.up,
            self.epoch,
            self.generation,
            self.step,
            self.expected,
        )
        return fixed + self.table.tobytes()

    @classmethod
    def unpack(cls, payload: bytes, members: int) -> Status:
        if len(payload) != _FIXED.size + members * ROW.itemsize:
            raise Refusal("wrong size")
        born, phase, waiting, up, epoch, generation, step, expected = _FIXED.unpack_from(payload)
        table = np.frombuffer(payload, ROW, members, _FIXED.size)
        return cls(born, phase, bool(waiting), bool(up), epoch, generation, step, expected, table)


class Table:
    """What one member knows of all members."""

    def __init__(self, members: int, me: int, born: int):
        self.rows = np.zeros(members, ROW)
        self.rows["ready"] = -1
        self.rows[me]["born"] = born
        self._me = me

    def merge(self, heard: np.ndarray) -> bool:
        """Take what is newer. True if anything changed. Of itself a member knows best."""
        before = self.rows.copy()
        newer = heard["born"] > self.rows["born"]
        more = (heard["born"] == self.rows["born"]) & (
            (heard["here"] > self.rows["here"]) | (heard["ready"] > self.rows["ready"])
        )
        taken = newer | more
        taken[self._me] = False
        self.rows[taken] = heard[taken]
        return bool((before != self.rows).any())

    @property
    def all_here(self) -> bool:
        return bool(self.rows["here"].all())

    @property
    def all_ready(self) -> bool:
        return bool((self.rows["ready"] >= 0).all())

    @property
    def generation(self) -> bytes:
        """Which processes these are: the same for all members that start together."""
        return sha256(self.rows["born"].tobytes()).digest()[:8]

    @property
    def first_step(self) -> int:
        return int(self.rows["ready"].max())

    def missing(self, column: str) -> list[int]:
        absent = self.rows["ready"] < 0 if column == "ready" else self.rows["here"] == 0
        return np.flatnonzero(absent).tolist()
