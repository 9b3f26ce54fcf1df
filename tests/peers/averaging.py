"""Members as threads of one process that average a number each, to test the protocol alone.

Member k holds r_k and shows x_k = r_k - sum_j m_kj. In every round m_kj += w_kj (x_k - x_j), so
that all x come to the mean of all r. When a link goes down or comes up its m starts at 0 again.

That is a strict test. If one end used a frame that the other did not, and the link stayed up, the
two m of a link would not cancel, and the mean would be wrong for good.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import hobnob as hb
from hobnob.core.algorithm import Scale
from hobnob.core.owners import Neighbour
from hobnob.runtimes.peers.certificates import Identity
from hobnob.runtimes.peers.conversation import Conversation
from hobnob.runtimes.peers.federation import Federation, MeetingRules, Member
from hobnob.runtimes.peers.frames import NEVER, FrameKind
from hobnob.runtimes.peers.notes.link import Edge
from hobnob.runtimes.peers.rounds import Parcel, Rounds
from hobnob.runtimes.peers.threads import Switchboard, ThreadTransport

NAMES = ("ana", "ben", "cho", "dan", "eva", "fay", "gil")
LIMIT = 60.0  # seconds that anything may take on a busy machine; most take less than one
_DOUBLE = np.dtype(np.float64)


@cache
def identities() -> tuple[Identity, ...]:
    with tempfile.TemporaryDirectory() as folder:  # all that they sign with is in memory
        return tuple(
            Identity.create(name, f"127.0.0.1:{7000 + i}", Path(folder))
            for i, name in enumerate(NAMES)
        )


def federation(network: hb.Network, note: str = "", **rules: Any) -> Federation:
    """`note` makes a file that says something else."""
    given = {"deadline": 3.0, "grace": 0.3, "arrival": 60.0, **rules}
    members = [Member(i.name, i.endpoint, i.certificate) for i in identities()[: network.size]]
    return Federation(tuple(members), network, MeetingRules(**given), settings={"note": note})


def wait_for(true: Callable[[], bool], what: str, limit: float = LIMIT) -> float:
    """Seconds until it is true."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < limit, f"not within {limit:g} s: {what}"
        time.sleep(0.002)
    return time.monotonic() - began


class Averager(threading.Thread):
    """One member. `before` maps a step to what happens before it, in this thread."""

    def __init__(
        self,
        party: Party,
        name: str,
        first: int = 0,
        value: float | None = None,
        pause: float = 0.0,
        before: dict[int, Callable[[], None]] | None = None,
        federation: Federation | None = None,
    ):
        super().__init__(name=name, daemon=True)
        self.federation = federation or party.federation
        self.number = self.federation.number(name)
        self.value = float(self.number) if value is None else value
        self.first, self.pause, self.before = first, pause, before or {}
        self.log: list[str] = []
        neighbours = [NAMES[n] for n in self.federation.neighbours(self.number)]
        transport = ThreadTransport(party.board, name, neighbours)
        self.talk = Conversation(
            self.federation, self.number, identities()[self.number], transport, self.log.append
        )
        self.rounds = Rounds(self.talk)
        self._board, self._leaving, self._dead = party.board, False, False
        self.x, self.step, self.made = self.value, -1, 0
        self.began = -1  # the first step
        self.scale: Scale | None = None
        self.error: Exception | None = None
        self.finished = False

    # --- its own thread ------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self.talk.open()
            self.scale = self.rounds.gather(Scale(10.0 + self.number, 1.0 + self.number))
            self._average()
        except Exception as error:
            self.error = error
        finally:
            if self._dead:
                self.talk.close()  # no goodbyes
            else:
                self.rounds.end(self.finished)

    def _average(self) -> None:
        weights = self.federation.network.matrix[self.number]
        flowed: dict[int, float] = {}
        step = self.began = self.rounds.begin(self.first)
        while not self._dead and not self._leaving:
            step = self.rounds.next_step(step)
            if self.rounds.over(step):
                self.finished = True
                break
            for when in [when for when in self.before if when <= step]:
                self.before.pop(when)()
            flowed |= {link.number: 0.0 for link in self.rounds.enter(step)}
            heard = self._exchange()
            flowed = {
                j: flowed[j] + weights[j] * (self.x - float(row[0])) for j, row in heard.items()
            }
            self.x = self.value - sum(flowed.values())
            step, self.made = step + 1, self.made + 1
            self.step = step
            if self.pause:
                time.sleep(self.pause)

    def _exchange(self) -> dict[int, np.ndarray]:
        row = np.full(4, self.x)
        parcels = {n: Parcel([row], row.nbytes) for n in self.talk.links}
        return self.rounds.exchange(FrameKind.ROUND, _DOUBLE, parcels)

    # --- for tests -----------------------------------------------------------------------------

    def die(self) -> None:
        """As by kill -9: nothing is said, and nothing is heard any more."""
        self._dead = True
        self._board.kill(self.name)
        with self.talk.changed:  # let its thread end, if it waits for the start
            for link in self.talk.links.values():
                link.status = None
            rows = self.talk.table.rows
            rows["here"], rows["ready"] = 1, 0

    def leave(self) -> None:
        self._leaving = True

    def stop_all(self) -> None:
        self.rounds.ask_to_stop()

    def sees(self, name: str) -> Edge:
        return self.talk.links[self.federation.number(name)].edge

    def of(self, name: str) -> Neighbour:
        return next(n for n in self.talk.company.neighbours if n.name == name)

    @property
    def absences(self) -> list[tuple[str, str]]:
        return [(a.who, a.why) for a in self.talk.company.absences]

    @property
    def refused(self) -> dict[str, int]:
        """Of all neighbours, without what happens by nobody's fault."""
        counts: dict[str, int] = {}
        for neighbour in self.talk.company.neighbours:
            for reason, count in neighbour.refused.items():
                counts[reason] = counts.get(reason, 0) + count
        return counts


class Party:
    """Members that run together."""

    def __init__(self, network: hb.Network, note: str = "", **rules: Any):
        self.federation = federation(network, note, **rules)
        self.board = Switchboard()
        self.members: dict[str, Averager] = {}
        self.past: list[Averager] = []

    def start(self, names: Iterable[str] = (), **more: object) -> None:
        for name in names or [m.name for m in self.federation.members]:
            if name in self.members:
                self.past.append(self.members[name])
            self.members[name] = Averager(self, name, **more)  # type: ignore[arg-type]
            self.members[name].start()

    def __getitem__(self, name: str) -> Averager:
        return self.members[name]

    @property
    def all_up(self) -> bool:
        return all(
            link.edge is Edge.UP for m in self.members.values() for link in m.talk.links.values()
        )

    def go_on(self, steps: int, names: Iterable[str] = ()) -> None:
        """Wait until these members have made so many steps more."""
        chosen = [self.members[n] for n in names or self.members]
        goals = [member.made + steps for member in chosen]
        wait_for(
            lambda: all(m.made >= goal for m, goal in zip(chosen, goals, strict=True)),
            f"{steps} more steps",
        )

    def finish(self, steps: int = 200) -> list[float]:
        """With all links up, make so many steps more and stop together. All end at one step."""
        try:
            wait_for(lambda: self.all_up, "all links up")
            self.go_on(steps)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.summary()}") from None
        next(iter(self.members.values())).stop_all()
        for member in self.members.values():
            member.join(LIMIT)
            assert not member.is_alive(), f"{member.name} hangs"
            assert member.error is None, member.error
            assert member.finished
        assert len({member.step for member in self.members.values()}) == 1
        return [member.x for member in self.members.values()]

    def summary(self) -> str:
        lines = []
        for m in self.members.values():
            links = [
                (k.name, k.edge.value, k.epoch, k.due, k.met, k.invited, k.margin, k.faults)
                for k in m.talk.links.values()
            ]
            alive = m.is_alive()
            lines += [f"{m.name}: {alive=}, {m.step=}, {m.talk.phase=}, {m.error=}, {links}"]
            lines += [f"    {line}" for line in m.log[-6:]]
        return "\n".join(lines)

    @property
    def mean(self) -> float:
        return float(np.mean([member.value for member in self.members.values()]))

    def assert_exact(self) -> None:
        """All end at the mean of all numbers."""
        np.testing.assert_allclose(self.finish(), self.mean, rtol=0, atol=1e-12)

    def assert_nobody_was_away(self) -> None:
        away = {m.name: m.absences for m in self.members.values() if m.absences}
        assert away == {}, (away, {m.name: m.log for m in self.members.values()})

    def close(self) -> None:
        everyone = [*self.past, *self.members.values()]
        for member in everyone:
            if member.is_alive():
                member.die()
        for member in everyone:
            member.join(LIMIT)
            assert not member.is_alive(), f"{member.name} hangs"


__all__ = ["LIMIT", "NAMES", "NEVER", "Averager", "Party", "federation", "identities", "wait_for"]
