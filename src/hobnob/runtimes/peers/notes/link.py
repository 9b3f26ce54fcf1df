"""Link: all that one member keeps of one neighbour. The conversation's lock guards it."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from enum import Enum

import numpy as np

from hobnob.runtimes.peers.federation import Member
from hobnob.runtimes.peers.frames import HEAD, OVERHEAD, TAG, FrameKind, Head, Refusal
from hobnob.runtimes.peers.notes.status import Phase, Status
from hobnob.runtimes.peers.session import Handshake, Session

WINDOW = 4  # frames of numbers that may wait: a neighbour can be one round ahead, no more
_FORGIVEN = 100  # frames of numbers after which earlier faults of a neighbour no longer count
KEPT = 2  # sent frames that may have to be sent again


class Edge(Enum):
    DOWN = "down"
    DUE = "due"  # comes up at an agreed step
    UP = "up"


class Link:
    """One neighbour: its wire, the session on it, and the link of the network that they carry."""

    def __init__(self, number: int, member: Member):
        self.number, self.name, self.certificate = number, member.name, member.certificate
        # --- the wire and the session
        self.wired, self.lost_at = False, time.monotonic()
        self.handshake: Handshake | None = None  # one that has not led to a session yet
        self.their_hello = self.proof = b""  # and our answer to it
        self.session: Session | None = None
        self.sessions = 0
        self.hello_at = self.told_at = 0.0
        self.hellos = 0.0  # that came lately
        self.sending = threading.Lock()  # frames go out in the order of their counters
        # --- what it last said
        self.status: Status | None = None
        self.heard_at = time.monotonic()  # the last sign of progress
        self.done = False  # it needs nothing more
        # --- the link of the network
        self.edge, self.epoch, self.due = Edge.DOWN, 0, 0
        self.invited, self.invited_epoch = -1, 0  # the step that it was invited for
        self.margin = 4  # steps ahead that it is invited for
        # The sessions in which things happened: a new session may have lost what was said before.
        self.accepted_in = self.resent_in = self.invited_in = 0
        self.shunned_until, self.faults = 0.0, 0  # after numbers that could not be used
        self.next_out = self.next_in = 0
        self.inbox: dict[int, tuple[Head, np.ndarray]] = {}
        self.early: list[tuple[Head, np.ndarray]] = []  # of an epoch that we have not agreed to yet
        self.kept: deque[tuple[Head, bytearray]] = deque(maxlen=KEPT)
        # --- counts
        self.sent = self.received = self.messages = self.overhead = 0
        self.refused: Counter[str] = Counter()

    @property
    def met(self) -> bool:
        return self.wired and self.session is not None

    def lose_wire(self) -> None:
        self.wired, self.lost_at = False, time.monotonic()
        self.session = self.handshake = None
        self.their_hello = self.proof = b""

    def heard(self, status: Status) -> bool:
        """Keep what the neighbour said. True if another process of it says so than before."""
        before, self.status = self.status, status
        if status.waiting or before is None or status.step != before.step:
            self.heard_at = time.monotonic()
        new = before is not None and status.born != before.born
        if new:
            self.done = False  # that was said by the process before
        return new

    def given_up_by(self, status: Status) -> bool:
        """Whether the neighbour goes on without us. At the start it may not have begun yet."""
        if status.up or (status.phase < Phase.RUNNING and status.epoch < self.epoch == 1):
            return False
        return status.epoch == self.epoch or self.accepted_in < self.sessions

    def agree(self, step: int, epoch: int) -> None:
        """The link comes up at this step."""
        self.edge, self.due, self.epoch, self.invited = Edge.DUE, step, epoch, -1
        self.accepted_in = self.resent_in = self.sessions
        self.margin = 4
        self.next_out = self.next_in = 0
        self.done = False
        self.inbox = {head.sequence: (head, n) for head, n in self.early if head.epoch == epoch}
        self.early = []
        self.kept.clear()
        self.heard_at = time.monotonic()

    def drop(self) -> None:
        self.edge = Edge.DOWN
        self.inbox.clear()
        self.kept.clear()

    def shun(self) -> None:
        """Numbers of it could not be used, or did not come: longer each time, the link stays down.

        After a while without such a fault all is forgiven.
        """
        self.faults += 1
        self.shunned_until = time.monotonic() + min(60.0, 2.0 ** (self.faults - 1))

    def take_in(self, head: Head, numbers: np.ndarray) -> None:
        """Keep a frame of numbers until the round that needs it."""
        if head.epoch > self.epoch and len(self.early) < WINDOW:
            self.early.append((head, numbers))
            return
        if self.edge is Edge.DOWN or head.epoch != self.epoch:
            raise Refusal("late")  # of a link that was given up
        if head.sequence < self.next_in or head.sequence in self.inbox:
            raise Refusal("doubled")
        if head.sequence >= self.next_in + WINDOW:
            raise Refusal("too far ahead")
        self.inbox[head.sequence] = head, numbers
        if head.sequence == _FORGIVEN:
            self.faults = 0
        self.heard_at = time.monotonic()

    def take_out(self) -> tuple[Head, np.ndarray] | None:
        """The frame that the present round needs, if it is here."""
        return self.inbox.get(self.next_in)

    def count(self, size: int, kind: int, came: bool = False) -> None:
        """Bytes of a round's numbers are payload, all others overhead."""
        payload = size if kind == FrameKind.ROUND else 0
        self.overhead += OVERHEAD + size - payload
        if came:
            self.received += payload
        else:
            self.sent += payload
            self.messages += kind == FrameKind.ROUND


def payload_of(frame: bytes | bytearray) -> memoryview:
    return memoryview(frame)[HEAD : len(frame) - TAG]
