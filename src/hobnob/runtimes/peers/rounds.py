"""Rounds: what the run's own thread does in a conversation. It begins, exchanges and ends.

Every wait has a deadline. Who does not answer in time counts as away, and the run goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hobnob.core.algorithm import Scale
from hobnob.ground.errors import PeerError
from hobnob.runtimes.peers import combined
from hobnob.runtimes.peers.conversation import Conversation
from hobnob.runtimes.peers.frames import NEVER, OVERHEAD, FrameKind, code_of
from hobnob.runtimes.peers.notes.link import Edge, Link, payload_of
from hobnob.runtimes.peers.notes.status import Phase
from hobnob.runtimes.peers.session import empty_frame

_LOOK = 0.05  # seconds between two looks at the clock while waiting
_LONGEST_PAUSE = 1.0  # seconds between two steps of a member that is alone


class Parcel(NamedTuple):
    """What one neighbour gets in a round, and how many bytes come back."""

    pieces: list[np.ndarray]
    expected: int


class Rounds:
    """One member's side of the rounds that it makes with its neighbours."""

    def __init__(self, conversation: Conversation):
        self.talk = conversation
        self._up_last = 0  # links that were up when the last stretch of steps began
        self._begun, self._usual = time.monotonic(), 0.0  # the last step, and what one takes

    # --- the start -----------------------------------------------------------------------------

    def gather(self, own: Scale) -> Scale:
        """Wait until all members have arrived. Returns the curvature of them all.

        The mean of the members' smallest curvatures is a lower bound for the mean of their losses.
        """
        talk = self.talk
        with talk.changed:
            row = talk.table.rows[talk.me]
            row["largest"], row["smallest"] = own.smoothness, own.strong_convexity
            talk.curved = True
            talk.arrive()
            self._wait(lambda: talk.table.all_here, "here")
            rows = talk.table.rows
            return combined([Scale(float(r["largest"]), float(r["smallest"])) for r in rows])

    def begin(self, step: int) -> int:
        """Wait until all are ready, or until somebody who runs already lets us in.

        Returns the first step: the latest that anybody can begin with.
        """
        talk = self.talk
        with talk.changed:
            talk.step, talk.phase = step, Phase.READY
            talk.table.rows[talk.me]["ready"] = step
            talk.tell_all()
            self._wait(lambda: self._invited() or self._together(), "ready")
            if not self._invited():
                talk.generation, talk.step = talk.table.generation, talk.table.first_step
                for link in talk.links.values():
                    if link.met:
                        link.agree(talk.step, epoch=1)  # the first of two new processes
            talk.phase = Phase.RUNNING
            talk.tell_all()
            return self.next_step(talk.step)

    def _invited(self) -> bool:
        return any(link.edge is Edge.DUE for link in self.talk.links.values())

    def _together(self) -> bool:
        """All are ready, and no neighbour runs since an earlier start."""
        table = self.talk.table
        statuses = [link.status for link in self.talk.links.values() if link.met and link.status]
        elsewhere = [s for s in statuses if s.phase == Phase.RUNNING]
        return table.all_ready and all(s.generation == table.generation for s in elsewhere)

    def _wait(self, there: Callable[[], bool], column: str) -> None:
        talk, limit = self.talk, time.monotonic() + self.talk.rules.arrival
        while not there():
            if time.monotonic() > limit:
                raise PeerError(self._nobody(column))
            talk.changed.wait(_LOOK)

    def _nobody(self, column: str) -> str:
        talk = self.talk
        waited, members = f"After {talk.rules.arrival:g} s", talk.federation.members
        unmet = [link.name for link in talk.links.values() if not link.met]
        if len(unmet) == len(talk.links):
            return (
                f"{waited} no neighbour of this member is there: {', '.join(unmet)}. They may have "
                f"finished, or not have started `hobnob join`, or their ports can't be reached."
            )
        missing = [members[n].name for n in talk.table.missing(column) if n != talk.me]
        names = ", ".join(dict.fromkeys([*unmet, *missing])) or "somebody"
        return (
            f"{waited} not everybody is {column}: {names}. Ask them to start `hobnob join`, and "
            f"look whether their ports can be reached. How long to wait is `arrival` in [rules]."
        )

    # --- between steps -------------------------------------------------------------------------

    def next_step(self, step: int) -> int:
        """The same step; or, if nobody is there now, the step at which somebody will be."""
        with self.talk.changed:
            edges = [link.edge for link in self.talk.links.values()]
            dues = [link.due for link in self.talk.links.values() if link.edge is Edge.DUE]
            if Edge.UP not in edges and dues:
                step = max(step, min(dues))
            self.talk.step = step
            return step

    def enter(self, step: int) -> list[Link]:
        """Begin a step. Returns the links that come up with it."""
        talk = self.talk
        with talk.changed:
            talk.step = step
            new = []
            for link in talk.links.values():
                if link.edge is Edge.DUE and link.due <= step:
                    if link.due < step:
                        talk.post(link, FrameKind.CANCEL, epoch=link.epoch)
                        link.drop()
                        continue
                    link.edge, link.heard_at = Edge.UP, time.monotonic()
                    new.append(link)
            limit = talk.rules.seconds
            if limit and talk.journal.seconds > limit and talk.stop == NEVER:
                self.ask_to_stop()
            self._up_last = len(self.up)
            self._pace()
            return new

    def stays(self, step: int) -> bool:
        """Begin a step, unless something must be done before it: a link comes up, or all stop.

        A link that went down needs nothing here, except where its flows are to be dropped.
        """
        talk = self.talk
        with talk.changed:
            edges = [link.edge for link in talk.links.values()]
            dues = [link.due for link in talk.links.values() if link.edge is Edge.DUE]
            if any(due <= step for due in dues) or (dues and Edge.UP not in edges):
                return False
            dropped = talk.rules.duals == "dropped" and edges.count(Edge.UP) != self._up_last
            limit = talk.rules.seconds
            late = bool(limit) and talk.journal.seconds > limit and talk.stop == NEVER
            if self.over(step) or dropped or late:
                return False
            talk.step = step
            self._pace()
            return True

    def _pace(self) -> None:
        """Alone, go at half the usual pace.

        Who is behind jumps to the step of the others. Who is ahead could only wait for them.
        """
        now = time.monotonic()
        took = now - self._begun
        if self.up:
            most = 4 * self._usual or took  # waiting for somebody who is away is not usual
            self._usual += 0.1 * (min(took, most) - self._usual) if self._usual else took
        elif self.talk.links:
            wait = min(2 * self._usual - took, _LONGEST_PAUSE)
            self.talk.changed.wait_for(self._invited, max(wait, 0.0))
        self._begun = time.monotonic()

    @property
    def up(self) -> list[int]:
        return [n for n, link in self.talk.links.items() if link.edge is Edge.UP]

    # --- a round -------------------------------------------------------------------------------

    def exchange(
        self, kind: FrameKind, dtype: np.dtype[Any], parcels: Mapping[int, Parcel]
    ) -> dict[int, np.ndarray]:
        """Send each neighbour its parcel and wait for theirs. Who is missing in the answer is away.

        Neighbours whose link is down get nothing.
        """
        talk, code = self.talk, code_of(dtype)
        frames = {number: _filled(parcel.pieces) for number, parcel in parcels.items()}
        posted = []
        with talk.changed:
            for number, frame in frames.items():
                link = talk.links[number]
                if link.edge is Edge.UP:
                    size = len(frame) - OVERHEAD
                    head = talk.head(link, kind, size=size, dtype=code, sequence=link.next_out)
                    link.next_out += 1
                    link.kept.append((head, frame))  # to be sent again if it does not arrive
                    link.count(size, kind)
                    posted.append((link, head, frame))
            talk.awaited = {link.number for link, *_ in posted if not link.take_out()}
        for link, head, frame in posted:
            talk.send(link, frame, head)
        began, heard, waiting = time.monotonic(), {}, [link for link, *_ in posted]
        talk.waiting = True
        while waiting:
            with talk.changed:
                waiting = [link for link in waiting if not self._answered(link, heard, began)]
                talk.awaited = {link.number for link in waiting}
            if waiting:
                talk.bell.wait(_LOOK)
        talk.waiting = False
        return {
            number: numbers
            for number, (head, numbers) in heard.items()
            if self._fits(talk.links[number], head.kind, numbers, kind, dtype, parcels[number])
        }

    def _answered(self, link: Link, heard: dict[int, Any], began: float) -> bool:
        """True if the neighbour's frame is here, or will not come."""
        found = link.take_out() if link.edge is Edge.UP else None
        if found:
            heard[link.number] = found
            if link.next_in == 0:  # only now it is sure that both ends meant the same step
                self.talk.journal.back(link, self.talk.step)
            del link.inbox[link.next_in]
            link.next_in += 1
            return True
        now, rules = time.monotonic(), self.talk.rules
        members = len(self.talk.federation.members)
        if link.edge is Edge.UP and link.done:
            link.drop()
        elif link.edge is Edge.UP and now - max(link.heard_at, began) > rules.deadline:
            link.shun()  # it may promise numbers again at once, and hold up everybody again
            self.talk.give_up(link, f"no word for {rules.deadline:g} s")
        elif link.edge is Edge.UP and now - began > members * rules.deadline:
            # It waits for somebody who waits for somebody: that can't be all there is.
            self.talk.give_up(link, f"no numbers for {members * rules.deadline:g} s")
        return link.edge is not Edge.UP

    def _fits(
        self,
        link: Link,
        found: int,
        numbers: np.ndarray,
        kind: FrameKind,
        dtype: np.dtype[Any],
        parcel: Parcel,
    ) -> bool:
        """Whether a frame holds what this round needs. Otherwise the link goes down."""
        wrong = (
            "wrong kind"
            if found != kind
            else "wrong dtype"
            if numbers.dtype != dtype
            else "wrong size"
            if numbers.nbytes != parcel.expected
            else ""
        )
        if wrong:
            with self.talk.changed:
                self.talk.journal.refused(link, wrong, self.talk.step)
                self.talk.distrust(link, wrong)
        return not wrong

    # --- the end -------------------------------------------------------------------------------

    def over(self, step: int) -> bool:
        return step >= self.talk.stop

    def ask_to_stop(self) -> None:
        """A step by which everybody has heard of it: news travels one link a step."""
        talk = self.talk
        with talk.changed:
            talk.stop = min(talk.stop, talk.step + len(talk.federation.members) + 2)

    def end(self, finished: bool) -> None:
        """Say goodbye; after the last step, stay until the neighbours have all they need."""
        talk = self.talk
        limit = time.monotonic() + talk.rules.deadline
        with talk.changed:
            if talk.phase is Phase.ENDING:
                return
            talk.phase = Phase.ENDING
            live = [link for link in talk.links.values() if link.edge is Edge.UP]
            for link in talk.links.values():
                if link.met:
                    talk.post(link, FrameKind.BYE, step=NEVER if finished else talk.step)
            while finished and any(link.edge is Edge.UP and not link.done for link in live):
                if time.monotonic() > limit:
                    break
                talk.changed.wait(_LOOK)
            for link in talk.links.values():
                link.drop()
        talk.close()


def _filled(pieces: list[np.ndarray]) -> bytearray:
    """A frame with these as its payload."""
    frame = empty_frame(sum(piece.nbytes for piece in pieces))
    view, at = payload_of(frame), 0
    for piece in pieces:
        view[at : at + piece.nbytes] = np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data
        at += piece.nbytes
    return frame
