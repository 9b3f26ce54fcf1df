"""Frames: what travels between two members, byte by byte.

A frame is a fixed head, a payload and a tag. The head says whose frame this is, which run and which
step it belongs to, and how long it is, so that a receiver can refuse it before it looks further.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

MAGIC = b"HOB1"
NEVER = 2**62  # a step that no run reaches
TAG = 16  # bytes
_HEAD = struct.Struct("<4sBB2x16sHHIQQqqQ")
HEAD = _HEAD.size
OVERHEAD = HEAD + TAG


class Kind(IntEnum):
    HELLO = 1  # a fresh key and who says so, not yet proven
    PROOF = 2  # signs both hellos
    STATUS = 3  # where I am, and what I know of everybody
    INVITE = 4  # let the link come up at a step
    ACCEPT = 5
    CANCEL = 6
    BYE = 7  # I leave, or have all I need
    ROUND = 8  # the rows of a round
    FLOWS = 9  # what flowed over a link that comes up
    REPORT = 10  # what a recorded step tells the neighbours


NUMBERS = frozenset({Kind.ROUND, Kind.FLOWS, Kind.REPORT})  # in the order of the run, both ways
_KINDS = frozenset(int(kind) for kind in Kind)
_DTYPES = {1: np.dtype(np.float64), 2: np.dtype(np.float32), 3: np.dtype(np.uint8)}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class Refusal(Exception):
    """A frame is not used, for this reason."""


class Head(NamedTuple):
    """`epoch` counts how often the link came up, `sequence` the frames of numbers since then,
    `counter` all frames of a session. `stop` is the step at which all are to stop."""

    kind: int
    run: bytes
    sender: int
    receiver: int
    dtype: int = 0
    epoch: int = 0
    counter: int = 0
    sequence: int = 0
    step: int = 0
    stop: int = NEVER
    size: int = 0


def code_of(dtype: np.dtype[Any]) -> int:
    """How a head names a dtype. Arrays of mixed types travel as bytes."""
    return _CODES[np.dtype(dtype)]


def write_head(frame: bytearray | memoryview, head: Head) -> None:
    _HEAD.pack_into(
        frame,
        0,
        MAGIC,
        head.kind,
        head.dtype,
        head.run,
        head.sender,
        head.receiver,
        head.epoch,
        head.counter,
        head.sequence,
        head.step,
        head.stop,
        head.size,
    )


def read_head(frame: bytes, largest: int) -> Head:
    """The head of a frame whose length is right, or a `Refusal`."""
    if len(frame) < OVERHEAD:
        raise Refusal("truncated")
    magic, kind, dtype, *rest = _HEAD.unpack_from(frame)
    if magic != MAGIC or kind not in _KINDS:
        raise Refusal("not a frame of this version")
    run, sender, receiver, epoch, counter, sequence, step, stop, size = rest
    if size > largest or len(frame) > OVERHEAD + largest:
        raise Refusal("oversized")
    if len(frame) != OVERHEAD + size:
        raise Refusal("truncated")
    return Head(kind, run, sender, receiver, dtype, epoch, counter, sequence, step, stop, size)


def numbers_in(frame: bytes, head: Head) -> np.ndarray:
    """The payload of a frame as finite numbers."""
    dtype = _DTYPES.get(head.dtype)
    if dtype is None or head.size % dtype.itemsize:
        raise Refusal("wrong dtype")
    numbers = np.frombuffer(frame, dtype, head.size // dtype.itemsize, HEAD)
    if dtype.kind == "f" and not np.isfinite(numbers).all():
        raise Refusal("not finite")
    return numbers
