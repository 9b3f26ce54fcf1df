"""Conversation: one member's talk with its neighbours. It proves, checks, refuses and agrees.

Three kinds of threads meet here. The transport's call `heard` and `wired`; they only change state
under the lock and never send, so that nobody who sends can hold up who listens. The keeper sends
what they asked for and looks at the clock. The run's own thread makes rounds; see rounds.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from hobnob.core.owners import Company, Neighbour
from hobnob.runtimes.peers.certificates import Identity
from hobnob.runtimes.peers.federation import Federation
from hobnob.runtimes.peers.frames import (
    NEVER,
    NUMBERS,
    FrameKind,
    Head,
    Refusal,
    numbers_in,
    read_head,
    write_head,
)
from hobnob.runtimes.peers.notes.bell import Bell
from hobnob.runtimes.peers.notes.journal import Journal
from hobnob.runtimes.peers.notes.link import Edge, Link, payload_of
from hobnob.runtimes.peers.notes.status import Phase, Roster, Status
from hobnob.runtimes.peers.session import HELLO, Handshake, empty_frame
from hobnob.runtimes.peers.transport import Transport

_TICK = 0.05  # seconds between two looks at the clock
_HELLO_AGAIN, _STATUS_AGAIN = 0.25, 0.5
_MOST_HELLOS = 20  # in a while: each costs a signature
_SMALL = 65536  # bytes that any frame may have, so that control frames always fit


class Conversation:
    """What one member knows of all others, and the state of its links."""

    def __init__(
        self,
        federation: Federation,
        me: int,
        identity: Identity,
        transport: Transport,
        log: Callable[[str], None],
    ):
        members = federation.members
        self.federation, self.me, self.rules = federation, me, federation.rules
        self.links = {n: Link(n, members[n]) for n in federation.neighbours(me)}
        self.changed = threading.Condition()  # its lock guards everything here
        self.born = time.time_ns()
        self.table = Roster(len(members), me, self.born)
        self.phase, self.step, self.stop, self.waiting = Phase.ARRIVING, 0, NEVER, False
        self.awaited: set[int] = set()  # the neighbours that the present round has not heard yet
        self.bell = Bell()
        self.generation, self.curved = bytes(8), False
        self.journal = Journal(log)
        self._run = federation.id[:16]
        self._identity, self._transport = identity, transport
        self._by_name = {link.name: link for link in self.links.values()}
        self._largest = _SMALL + self.table.rows.nbytes
        self._posts: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._open, self._often = False, min(_STATUS_AGAIN, self.rules.deadline / 4)
        self._keeper = threading.Thread(target=self._keep, name="hobnob keeper", daemon=True)

    # --- for the run's thread ------------------------------------------------------------------

    def open(self) -> None:
        self._open = True
        self._keeper.start()
        self._transport.open(self.heard, self.wired)

    def close(self) -> None:
        self._open = False
        if self._keeper.is_alive():
            self._keeper.join(5)
        self._transport.close()

    def allow(self, size: int) -> None:
        """Frames of numbers may be this large."""
        self._largest = max(self._largest, size)

    def head(self, link: Link, kind: FrameKind, *, size: int = 0, **more: int) -> Head:
        given = {"epoch": link.epoch, "step": self.step, "stop": self.stop, **more}
        return Head(kind, self._run, self.me, link.number, size=size, **given)

    def arrive(self) -> None:
        """Say that this member is here, once it has met its neighbours and knows its curvature.

        Earlier, others would take the numbers that are not there yet for its own.
        """
        if self.curved and all(link.met for link in self.links.values()):
            self.table.rows[self.me]["here"] = 1
            self.tell_all()

    def tell_all(self) -> None:
        """Say where this member is to everybody that it has met."""
        for link in self.links.values():
            self.tell(link)

    def tell(self, link: Link) -> None:
        if link.met:
            self.post(link, FrameKind.STATUS)

    def post(self, link: Link, kind: FrameKind, payload: bytes = b"", **more: int) -> None:
        """Have the keeper send a control frame."""
        self._posts.put(lambda: self._send_control(link, kind, payload, **more))

    def give_up(self, link: Link, why: str) -> None:
        """Go on without a neighbour. Its weight is the agents' own until it is back."""
        missed = link.edge is Edge.UP and self.phase is not Phase.ENDING
        link.drop()
        if missed:
            self.journal.away(link, why, self.step)
        self.tell(link)
        self.changed.notify_all()
        self.bell.ring()

    def distrust(self, link: Link, why: str) -> None:
        """Its own numbers could not be used: the link stays down for a while."""
        link.shun()
        if link.edge is not Edge.DOWN:
            self.give_up(link, f"it sent numbers that can't be used: {why}")

    @property
    def company(self) -> Company:
        with self.changed:
            neighbours = tuple(
                Neighbour(k.name, k.sent, k.received, k.overhead, dict(k.refused))
                for k in self.links.values()
            )
            me = self.federation.members[self.me].name
            away = tuple(self.journal.absences)
        return Company(me, neighbours, away, dict(self._transport.refused))

    # --- for the transport's threads -----------------------------------------------------------

    def wired(self, name: str, up: bool) -> None:
        link = self._by_name.get(name)
        if link is None:
            return
        with self.changed:
            link.lose_wire()
            link.wired = up
            if up:
                self._shake(link)
            self.changed.notify_all()

    def heard(self, name: str, frame: bytes) -> None:
        link = self._by_name.get(name)
        if link is None:
            return
        try:
            head = read_head(frame, self._largest)
            if head.run != self._run:
                raise Refusal("another federation file")  # its hash would be the sender's choice
            if (head.sender, head.receiver) != (link.number, self.me):
                raise Refusal("another member's name")
            if head.kind == FrameKind.HELLO:
                self._on_hello(link, bytes(payload_of(frame)))
            elif head.kind == FrameKind.PROOF:
                self._on_proof(link, bytes(payload_of(frame)))
            else:
                self._on_tagged(link, head, frame)
        except Refusal as refusal:
            with self.changed:
                self.journal.refused(link, str(refusal), self.step)

    # --- how a session begins ------------------------------------------------------------------

    def _shake(self, link: Link) -> None:
        """Begin a handshake, unless one is under way. An old session serves until it succeeds."""
        if link.handshake is None:
            link.handshake = Handshake(self._identity, self._run, self.me, link.number)
            self._say_hello(link)

    def _say_hello(self, link: Link) -> None:
        assert link.handshake is not None
        link.hello_at = time.monotonic()
        self.post(link, FrameKind.HELLO, link.handshake.hello)

    def _on_hello(self, link: Link, theirs: bytes) -> None:
        with self.changed:
            link.count(len(theirs), FrameKind.HELLO, came=True)
            if len(theirs) != HELLO:
                raise Refusal("wrong size")
            if theirs == link.their_hello and link.proof:
                self.post(link, FrameKind.PROOF, link.proof)  # they have not got it
                return
            if link.hellos > _MOST_HELLOS:
                raise Refusal("too many hellos")
            self._prove(link, theirs)

    def _prove(self, link: Link, theirs: bytes) -> None:
        self._shake(link)
        assert link.handshake is not None
        link.their_hello, link.hellos = theirs, link.hellos + 1
        link.proof = link.handshake.hello + theirs + link.handshake.proof(theirs)
        self.post(link, FrameKind.PROOF, link.proof)

    def _on_proof(self, link: Link, payload: bytes) -> None:
        theirs, ours, proof = payload[:HELLO], payload[HELLO : 2 * HELLO], payload[2 * HELLO :]
        with self.changed:
            link.count(len(payload), FrameKind.PROOF, came=True)
            if link.handshake is None or ours != link.handshake.hello:
                raise Refusal("late")  # it answers an earlier hello
            session = link.handshake.session(theirs, proof, link.certificate)
            if theirs != link.their_hello:
                self._prove(link, theirs)
            link.session, link.handshake = session, None
            link.sessions += 1
            link.heard_at = time.monotonic()
            self.arrive()
            self.tell(link)
            self.changed.notify_all()

    # --- what is said in a session -------------------------------------------------------------

    def _on_tagged(self, link: Link, head: Head, frame: bytes) -> None:
        session = link.session
        if session is None:
            raise Refusal("before a handshake")
        try:
            session.check(frame, head)
        except Refusal as refusal:
            if "out of order" in str(refusal):  # what is missing comes in a new session
                with self.changed:
                    self._shake(link)
            raise
        numbers = status = None
        try:
            if head.kind in NUMBERS:
                numbers = numbers_in(frame, head)
            elif head.kind == FrameKind.STATUS:
                status = Status.unpack(bytes(payload_of(frame)), len(self.table.rows))
        except Refusal as refusal:
            with self.changed:
                self.distrust(link, str(refusal))
            raise
        with self.changed:
            self.stop = min(self.stop, head.stop)
            link.count(head.size, head.kind, came=True)
            if numbers is not None:
                link.take_in(head, numbers)
                self.awaited.discard(link.number)
            else:
                self._on_control(link, head, status)
                self.changed.notify_all()
        # Outside the lock, and not for a frame that leaves the round waiting for others: waking up
        # costs as much as a frame.
        if not self.awaited:
            self.bell.ring()

    def _on_control(self, link: Link, head: Head, status: Status | None) -> None:
        if status is not None:
            self._on_status(link, status)
        elif head.kind == FrameKind.INVITE:
            self._on_invite(link, head)
        elif head.kind == FrameKind.ACCEPT:
            self._on_accept(link, head)
        elif head.kind == FrameKind.CANCEL and head.epoch == link.epoch:
            link.drop()
        elif head.kind == FrameKind.BYE:
            link.done = True
            if head.step != NEVER and link.edge is not Edge.DOWN:
                self.give_up(link, "it left")

    def _on_status(self, link: Link, status: Status) -> None:
        new = link.heard(status)
        if self.table.merge(status.table):
            self.tell_all()
        if link.edge is not Edge.DOWN:
            if new:
                self.give_up(link, "it started again")
            elif link.given_up_by(status):
                self.give_up(link, "it went on without us")
            elif status.up and status.epoch == link.epoch:
                self._send_again(link, status.expected)
        self._invite(link)

    def _send_again(self, link: Link, expected: int) -> None:
        """In a new session: what the neighbour has not got of the old one."""
        if link.resent_in == link.sessions:
            return
        link.resent_in = link.sessions
        missing = [(head, frame) for head, frame in link.kept if head.sequence >= expected]
        if link.next_out > expected + len(missing):
            self.give_up(link, "frames are lost")
            return
        for head, frame in missing:
            link.overhead += len(frame)
            self._posts.put(lambda head=head, frame=frame: self.send(link, frame, head))

    def _invite(self, link: Link) -> None:
        """The earlier of two members proposes the step at which their link comes up."""
        status = link.status
        if self.me > link.number or link.edge is not Edge.DOWN or link.done or not link.met:
            return
        if status is None or status.up or time.monotonic() < link.shunned_until:
            return
        phases = self.phase, status.phase
        if min(phases) < Phase.READY or max(phases) != Phase.RUNNING:
            return
        latest = max(self.step, status.step)
        if link.invited > latest and link.invited_in == link.sessions:
            return  # the answer is on its way
        if link.invited >= 0:
            link.margin = min(2 * link.margin, 4096)
        link.invited, link.invited_in = latest + link.margin, link.sessions
        link.invited_epoch = max(link.epoch, status.epoch) + 1
        self.post(link, FrameKind.INVITE, step=link.invited, epoch=link.invited_epoch)

    def _on_invite(self, link: Link, head: Head) -> None:
        if link.edge is not Edge.DOWN:
            self.give_up(link, "it went on without us")
        ready = (
            self.phase in (Phase.READY, Phase.RUNNING) and time.monotonic() >= link.shunned_until
        )
        if ready and head.step > self.step and head.epoch > link.epoch:
            link.agree(head.step, head.epoch)
            self.post(link, FrameKind.ACCEPT, step=head.step, epoch=head.epoch)
        else:
            self.tell(link)

    def _on_accept(self, link: Link, head: Head) -> None:
        agreed = (head.step, head.epoch) == (link.invited, link.invited_epoch)
        if agreed and link.edge is Edge.DOWN and head.step > self.step:
            link.agree(head.step, head.epoch)
            return
        self.post(link, FrameKind.CANCEL, epoch=head.epoch)
        self._invite(link)

    # --- the keeper ----------------------------------------------------------------------------

    def _keep(self) -> None:
        looked = 0.0
        while self._open:
            with suppress(Empty):
                self._posts.get(timeout=_TICK)()
            if time.monotonic() - looked >= _TICK:
                looked = time.monotonic()
                with self.changed:
                    self._look()
        while not self._posts.empty():  # goodbyes
            self._posts.get()()

    def _look(self) -> None:
        now = time.monotonic()
        for link in self.links.values():
            if link.handshake is not None and now - link.hello_at > _HELLO_AGAIN:
                self._say_hello(link)
            cut = link.edge is not Edge.DOWN and not link.wired and not link.done
            if cut and now - link.lost_at > self.rules.grace:
                self.give_up(link, "the connection was lost")
            link.hellos = max(0.0, link.hellos - 10 * _TICK)
            quiet = link.edge is Edge.UP and not self.waiting
            if link.met and not quiet and now - link.told_at > self._often:
                link.told_at = now
                self.tell(link)

    def _send_control(self, link: Link, kind: FrameKind, payload: bytes, **more: int) -> None:
        with self.changed:
            if kind == FrameKind.STATUS:  # as things are now, not when it was asked for
                payload = self._status(link).pack()
            head = self.head(link, kind, size=len(payload), **more)
        frame = empty_frame(len(payload))
        payload_of(frame)[:] = payload
        if kind in (FrameKind.HELLO, FrameKind.PROOF):
            write_head(frame, head)
            sent = self._transport.send(link.name, frame)
        else:
            sent = self.send(link, frame, head)
        if sent:
            with self.changed:
                link.count(head.size, kind)

    def _status(self, link: Link) -> Status:
        return Status(
            self.born,
            self.phase,
            self.waiting,
            link.edge is not Edge.DOWN,
            link.epoch,
            self.generation,
            self.step,
            link.next_in,
            self.table.rows.copy(),
        )

    def send(self, link: Link, frame: bytearray, head: Head) -> bool:
        with link.sending:
            session = link.session
            sealed = session and session.seal(frame, head)
            return sealed is not None and self._transport.send(link.name, sealed)
