"""The protocol between owners, by threads: who starts when, who is away, and what is refused.

Members average numbers in a way that shows every frame that only one of two ends used; see
averaging.py. Faults are placed by step or by condition, so that a busy machine changes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hobnob as hb
from hobnob.core.algorithm import Scale
from hobnob.ground.errors import PeerError
from hobnob.runtimes.peers.frames import HEAD, FrameKind, read_head
from hobnob.runtimes.peers.notes.link import Edge
from hobnob.runtimes.peers.rounds import Parcel
from tests.peers.averaging import NAMES, Averager, Party, federation, wait_for

Make = Callable[..., Party]


@pytest.fixture
def make() -> Iterator[Make]:
    parties: list[Party] = []

    def party(network: hb.Network | None = None, **rules: Any) -> Party:
        parties.append(Party(network or hb.ring(5), **rules))
        return parties[-1]

    yield party
    for one in parties:
        one.close()


@pytest.fixture
def party(make: Make) -> Party:
    """A ring of five."""
    return make()


# --- the start -----------------------------------------------------------------------------------


def test_nobody_starts_before_the_last_is_there(party: Party) -> None:
    party.start(NAMES[:4])
    time.sleep(0.3)
    assert [member.began for member in party.members.values()] == [-1] * 4
    party.start(["eva"])
    party.assert_exact()
    party.assert_nobody_was_away()
    for member in party.members.values():
        assert member.began == 0
        assert member.scale == Scale(14.0, 3.0)  # the largest, and the mean of the smallest
        assert member.refused == {}


def test_who_does_not_arrive_is_named(make: Make) -> None:
    party = make(arrival=2.0)
    party.start(["ana", "ben", "dan"])
    for member in party.members.values():
        member.join(60)
        assert isinstance(member.error, PeerError)
    said = [str(member.error) for member in party.members.values()]
    assert any("cho" in words and "eva" in words for words in said), said  # the first to give up


@pytest.mark.parametrize("network", [hb.star(6), hb.path(4)], ids=["star", "path"])
def test_the_first_step_is_the_latest_that_anybody_can_begin_with(
    make: Make, network: hb.Network
) -> None:
    party = make(network)
    firsts = [0, 7, 3, 12, 0, 1][: network.size]
    for name, first in zip(NAMES, firsts, strict=False):
        party.start([name], first=first)
    party.assert_exact()
    party.assert_nobody_was_away()
    assert {member.began for member in party.members.values()} == {12}


def test_a_process_that_restarts_before_the_start_counts_as_the_new_one(make: Make) -> None:
    party = make(arrival=60.0)
    party.start(NAMES[:4], first=5)
    time.sleep(0.2)
    party["ben"].die()
    party.start(["ben"], first=9)
    time.sleep(0.1)
    party.start(["eva"])
    party.assert_exact()
    assert {member.began for member in party.members.values()} == {9}


# --- away and back -------------------------------------------------------------------------------


def test_a_member_dies_and_returns_at_a_later_step(party: Party) -> None:
    party.start()
    party.go_on(50)
    died_at = party["cho"].step
    party["cho"].die()
    for name in ("ben", "dan"):
        # The board tells at once; who waits a grace for a return gives up after it.
        wait_for(lambda name=name: party[name].sees("cho") is Edge.DOWN, "noticed")
    party.go_on(100, ["ana", "ben", "dan", "eva"])
    party.start(["cho"], first=20, value=7.0)  # from an old checkpoint, with other data
    party.assert_exact()
    assert party.mean == (0 + 1 + 7 + 3 + 4) / 5
    assert party["cho"].began > died_at + 100
    for name in ("ben", "dan"):
        (absence,) = party[name].talk.company.absences
        assert absence.who == "cho"
        assert absence.until is not None
        assert absence.step <= died_at + 2
        assert absence.until >= party["cho"].began
        assert absence.until_seconds is not None
        assert absence.until_seconds > absence.seconds
        assert [line for line in party[name].log if "is away" in line]
        assert [line for line in party[name].log if "is back after" in line]
    assert party["ana"].absences == party["eva"].absences == []


def test_a_cut_within_the_grace_changes_nothing(make: Make) -> None:
    party = make(grace=5.0, deadline=10.0)
    party.start()
    for pair in (("ana", "ben"), ("eva", "ana"), ("cho", "dan")):
        party.go_on(20)
        party.board.cut(*pair)
        time.sleep(0.1)
        made = party["ana"].made
        assert made <= party["cho"].made + 3  # all wait
        party.board.heal(*pair)
    party.assert_exact()
    party.assert_nobody_was_away()


def test_a_cut_past_the_grace_is_an_absence(party: Party) -> None:
    party.start()
    party.go_on(20)
    party.board.cut("ana", "ben")
    wait_for(lambda: party["ana"].sees("ben") is party["ben"].sees("ana") is Edge.DOWN, "noticed")
    party.go_on(50)
    party.board.heal("ana", "ben")
    party.assert_exact()
    assert party["ana"].absences == [("ben", "the connection was lost")]
    assert party["ben"].absences == [("ana", "the connection was lost")]
    assert party["cho"].absences == []


def test_silence_ends_by_the_deadline(party: Party) -> None:
    party.start()
    party.go_on(20)
    party.board.silence("cho", "dan")
    took = wait_for(
        lambda: party["cho"].sees("dan") is party["dan"].sees("cho") is Edge.DOWN, "noticed"
    )
    assert took > 0.5
    party.go_on(50)
    party.board.heal("cho", "dan")
    party.assert_exact()
    whys = {why for name in ("cho", "dan") for _, why in party[name].absences}
    assert whys <= {"no word for 3 s", "it went on without us"}


@pytest.mark.parametrize("how", ["cut", "silence"])
def test_a_partition_and_its_healing(party: Party, how: str) -> None:
    party.start()
    party.go_on(20)
    fault = party.board.cut if how == "cut" else party.board.silence
    lines = [("ana", "ben"), ("cho", "dan")]
    for pair in lines:
        fault(*pair)
    for a, b in lines:
        wait_for(lambda a=a, b=b: party[a].sees(b) is party[b].sees(a) is Edge.DOWN, "noticed")
    party.go_on(200)
    for half in (("ben", "cho"), ("dan", "eva", "ana")):  # each comes to its own mean
        mean = np.mean([party[name].value for name in half])
        np.testing.assert_allclose([party[name].x for name in half], mean, rtol=0, atol=1e-9)
    for pair in lines:
        party.board.heal(*pair)
    party.assert_exact()


def test_a_frozen_member_is_given_up_and_comes_back(party: Party) -> None:
    party.start()
    party.go_on(20)
    with party["dan"].talk.changed:  # nothing of it can move, as after SIGSTOP
        for name in ("cho", "eva"):
            wait_for(lambda name=name: party[name].sees("dan") is Edge.DOWN, "noticed")
        party.go_on(30, ["ana", "ben", "cho", "eva"])
    party.assert_exact()
    assert party["cho"].absences
    assert party["cho"].absences[0] == ("dan", "no word for 3 s")


def test_everybody_waits_for_a_slow_member(party: Party) -> None:
    """Chains of waiting: who waits for somebody who waits does not count as away."""
    party.start(NAMES[:4])
    party.start(["eva"], pause=0.35)  # of a deadline of 3
    party.go_on(4)
    assert max(m.made for m in party.members.values()) <= party["eva"].made + 5
    party["eva"].pause = 0.0
    party.assert_exact()
    party.assert_nobody_was_away()


def held(until: threading.Event) -> None:
    assert until.wait(60)


def test_a_chain_that_waits_longer_than_the_deadline(make: Make) -> None:
    """On a path, a member at one end that computes: those far from it only hear of waiting."""
    party = make(hb.path(5), deadline=3.0)
    hold = threading.Event()
    party.start(NAMES[:4])
    party.start(["eva"], before={30: lambda: held(hold)})
    party.go_on(5, NAMES[:4])
    wait_for(lambda: party["dan"].sees("eva") is Edge.DOWN, "noticed")
    party.go_on(20, NAMES[:4])
    hold.set()
    party.assert_exact()
    assert {n: party[n].absences for n in NAMES[:3]} == {"ana": [], "ben": [], "cho": []}
    assert party["dan"].absences[0][0] == "eva"


def test_all_links_of_one_member_cut_at_once(party: Party) -> None:
    """It goes on alone, and finds the others again at their step."""
    party.start()
    party.go_on(20)
    for other in ("ana", "cho"):
        party.board.cut("ben", other)
    wait_for(lambda: party["ben"].sees("ana") is party["ben"].sees("cho") is Edge.DOWN, "noticed")
    party["ben"].pause = 0.05  # it falls behind
    party.go_on(200, ["ana", "cho", "dan", "eva"])
    party["ben"].pause = 0.0
    for other in ("ana", "cho"):
        party.board.heal("ben", other)
    party.assert_exact()


def test_all_die_but_one_and_return(party: Party) -> None:
    party.start()
    party.go_on(20)
    for name in ("ana", "cho", "dan", "eva"):
        party[name].die()
    party.go_on(20, ["ben"])
    party["ben"].pause = 0.001  # alone it makes thousands of steps a second
    for name in ("eva", "dan", "cho", "ana"):
        party.start([name], first=3)
    party.assert_exact()


# --- the end -------------------------------------------------------------------------------------


def test_one_asks_and_all_stop_at_one_step(make: Make) -> None:
    party = make(hb.path(6))
    party.start()
    party.go_on(30)
    asked_at = party["fay"].step
    party["fay"].stop_all()
    for member in party.members.values():
        member.join(60)
        assert member.finished
    assert {member.step for member in party.members.values()} == {party["ana"].step}
    assert asked_at < party["ana"].step <= asked_at + 2 + 6 + 2
    party.assert_nobody_was_away()


def test_all_stop_after_the_agreed_time(make: Make) -> None:
    party = make(seconds=0.8)
    party.start()
    for member in party.members.values():
        member.join(60)
        assert member.finished
    assert len({member.step for member in party.members.values()}) == 1


def test_who_leaves_says_so_and_may_return(party: Party) -> None:
    party.start()
    party.go_on(20)
    party["cho"].leave()
    party["cho"].join(60)
    assert not party["cho"].finished
    for name in ("ben", "dan"):
        wait_for(lambda name=name: party[name].sees("cho") is Edge.DOWN, "noticed", 1.0)
    party.go_on(30, ["ana", "ben", "dan", "eva"])
    party.start(["cho"], first=20)
    party.assert_exact()
    assert party["ben"].absences == [("cho", "it left")]


# --- what the wire does to frames ----------------------------------------------------------------


class Meddler:
    """Does something to a few frames: of all kinds, or of numbers only."""

    def __init__(self, do: Callable[[bytes], list[bytes]], chance: float, seed: int):
        self.done = 0
        self._do, self._chance, self._rng = do, chance, np.random.default_rng(seed)
        self._lock = threading.Lock()

    def __call__(self, sender: str, receiver: str, frame: bytes) -> list[bytes]:
        with self._lock:
            if self._rng.random() >= self._chance:
                return [frame]
            self.done += 1
        return self._do(frame)


def held_back() -> Callable[[str, str, bytes], list[bytes]]:
    """Every 50th frame of a direction comes after the one that follows it."""
    counts: dict[tuple[str, str], int] = {}
    kept: dict[tuple[str, str], bytes] = {}

    def hook(sender: str, receiver: str, frame: bytes) -> list[bytes]:
        way = sender, receiver
        counts[way] = counts.get(way, 0) + 1
        if way in kept:
            return [frame, kept.pop(way)]
        if counts[way] % 50 == 0:
            kept[way] = frame
            return []
        return [frame]

    return hook


def altered(frame: bytes) -> list[bytes]:
    place = HEAD + 3 if len(frame) > HEAD + 19 else 20
    return [frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]]


MEDDLERS = {
    "dropped": (lambda frame: [], {"out of order"}),
    "doubled": (lambda frame: [frame, frame], {"replayed"}),
    "altered": (altered, {"forged or altered", "out of order"}),
    "truncated": (lambda frame: [frame[:-5]], {"truncated", "out of order"}),
    "empty": (lambda frame: [b""], {"truncated", "out of order"}),
    "longer": (lambda frame: [frame + b"x"], {"truncated", "out of order"}),
}


@pytest.mark.parametrize("kind", MEDDLERS)
def test_frames_that_the_wire_changed_are_refused_and_sent_again(make: Make, kind: str) -> None:
    do, reasons = MEDDLERS[kind]
    party = make(deadline=10.0, grace=5.0)
    party.board.tamper = meddler = Meddler(do, 0.004, seed=len(kind))
    party.start()
    wait_for(lambda: meddler.done >= 4, "frames changed")
    party.board.tamper = None
    party.assert_exact()
    party.assert_nobody_was_away()
    found = {reason for member in party.members.values() for reason in member.refused}
    assert found & reasons


def test_frames_out_of_order_are_refused_and_sent_again(make: Make) -> None:
    party = make(deadline=10.0, grace=5.0)
    party.board.tamper = held_back()
    party.start()
    wait_for(
        lambda: sum(m.refused.get("out of order", 0) for m in party.members.values()) >= 4,
        "frames out of order",
    )
    party.board.tamper = None
    party.assert_exact()
    party.assert_nobody_was_away()


def test_replayed_frames_of_an_old_session_change_nothing(make: Make) -> None:
    """All that ana once said to ben is said again later, also after a new handshake."""
    party = make(grace=5.0, deadline=10.0)
    said: list[bytes] = []

    def record(sender: str, receiver: str, frame: bytes) -> list[bytes]:
        if (sender, receiver) == ("ana", "ben"):
            said.append(frame)
        return [frame]

    party.board.tamper = record
    party.start()
    party.go_on(30)
    party.board.tamper = None
    party.board.cut("ana", "ben")
    party.board.heal("ana", "ben")
    party.go_on(20)
    replayed = list(said)

    def replay(sender: str, receiver: str, frame: bytes) -> list[bytes]:
        if (sender, receiver) == ("ana", "ben") and replayed:
            return [replayed.pop(0), frame]
        return [frame]

    party.board.tamper = replay
    wait_for(lambda: not replayed, "all replayed")
    party.board.tamper = None
    party.assert_exact()
    party.assert_nobody_was_away()
    assert sum(party["ben"].of("ana").refused.values()) >= len(said) // 2


# --- members that misbehave ----------------------------------------------------------------------


def test_a_member_with_another_file_is_refused_by_name(make: Make) -> None:
    party = make(arrival=60.0)
    stale = federation(party.federation.network, note="another step size", arrival=1.0)
    assert stale.id != party.federation.id
    party.start(["ana", "ben", "dan", "eva"])
    party.start(["cho"], federation=stale)
    wait_for(lambda: bool(party["ben"].of("cho").refused), "refused")
    (reason,) = party["ben"].of("cho").refused
    assert "another federation file" in reason
    line = next(line for line in party["ben"].log if "another federation file" in line)
    assert "cho" in line
    wait_for(
        lambda: any("ben" in line and "federation file" in line for line in party["cho"].log),
        "the other side says so, too",
    )
    # With the right file it is let in.
    party["cho"].join(60)
    assert isinstance(party["cho"].error, PeerError)
    party.start(["cho"])
    party.assert_exact()


class Misbehaving:
    """Puts something else in place of what one member sends in one round."""

    def __init__(self, member: Averager, parcel: Parcel, kind: FrameKind = FrameKind.ROUND):
        self._member, self._own, self.done = member, member._exchange, False
        self._parcel, self._kind = parcel, kind
        member._exchange = self.exchange  # type: ignore[method-assign]

    def exchange(self) -> dict[int, np.ndarray]:
        self._member._exchange = self._own  # type: ignore[method-assign]
        dtype, rounds = self._parcel.pieces[0].dtype, self._member.rounds
        parcels = dict.fromkeys(self._member.talk.links, self._parcel)
        rounds._fits = lambda *_: True  # type: ignore[method-assign]
        found = rounds.exchange(self._kind, dtype, parcels)
        del rounds._fits
        self.done = True
        return found


WRONG = {
    "NaN": (Parcel([np.array([1.0, np.nan, 0.0, 0.0])], 32), FrameKind.ROUND, "not finite"),
    "infinity": (Parcel([np.array([1.0, np.inf, 0.0, 0.0])], 32), FrameKind.ROUND, "not finite"),
    "float32": (Parcel([np.zeros(8, np.float32)], 32), FrameKind.ROUND, "wrong dtype"),
    "too small": (Parcel([np.zeros(3)], 32), FrameKind.ROUND, "wrong size"),
    "too large": (Parcel([np.zeros(5)], 32), FrameKind.ROUND, "wrong size"),
    "another kind": (Parcel([np.zeros(4)], 32), FrameKind.REPORT, "wrong kind"),
    "oversized": (Parcel([np.zeros(20_000)], 32), FrameKind.ROUND, "oversized"),
}


@pytest.mark.parametrize("case", WRONG)
def test_numbers_that_cannot_be_used_take_the_link_down(make: Make, case: str) -> None:
    parcel, kind, reason = WRONG[case]
    party = make(hb.ring(4))
    party.start()
    party.go_on(20)
    wrong = Misbehaving(party["cho"], parcel, kind)
    wait_for(lambda: wrong.done, "sent")
    for name in ("ben", "dan"):
        wait_for(lambda name=name: party[name].absences != [], "down")
    party.go_on(20, ["ana", "ben", "dan"])
    if case == "NaN":
        party.assert_exact()  # it is let in again later
    for name in ("ben", "dan"):
        assert party[name].of("cho").refused[reason] >= 1
        assert any(f"refused a frame of cho: {reason}" in line for line in party[name].log)


def test_every_time_that_numbers_are_unusable_the_link_stays_down_longer(party: Party) -> None:
    party.start()
    party.go_on(5)
    link = party["ben"].talk.links[2]
    stayed = []
    for _ in range(3):
        with party["ben"].talk.changed:
            party["ben"].talk.distrust(link, "not finite")
            stayed.append(round(link.shunned_until - time.monotonic()))
    assert stayed == [1, 2, 4]


def test_a_flood_is_refused_and_counted_and_not_logged_line_by_line(party: Party) -> None:
    party.start()
    party.go_on(20)
    sender = party["cho"].talk._transport
    frames = [b"", b"x" * 40, bytes(500), b"HOB1" + bytes(200), b"x" * 500_000]
    for i in range(5_000):
        sender.send("ben", frames[i % 5])
    party.assert_exact()
    party.assert_nobody_was_away()
    refused = party["ben"].of("cho").refused
    assert sum(refused.values()) == 5_000
    assert len([line for line in party["ben"].log if "refused" in line]) < 20


def test_a_flood_of_other_runs_has_one_reason(party: Party) -> None:
    """What a stranger writes into a head must not fill memory or the log."""
    party.start()
    party.go_on(20)
    frames: list[bytes] = []

    def record(sender: str, receiver: str, frame: bytes) -> list[bytes]:
        frames.append(frame)
        return [frame]

    party.board.tamper = record
    party.go_on(5)
    party.board.tamper = None
    head = read_head(frames[0], 10**6)
    rng = np.random.default_rng(0)
    at = frames[0].index(head.run)
    for _ in range(300):
        forged = frames[0][:at] + rng.bytes(16) + frames[0][at + 16 :]
        party["cho"].talk._transport.send("ben", forged)
    wait_for(lambda: sum(party["ben"].of("cho").refused.values()) >= 300, "refused")
    assert len(party["ben"].of("cho").refused) <= 3
    assert len([line for line in party["ben"].log if "refused" in line]) < 20
    party.assert_exact()


def test_a_neighbour_cannot_speak_for_another(party: Party) -> None:
    """Frames of dan, with dan's name in their head, sent by ben: cho refuses them."""
    party.start()
    party.go_on(20)
    of_dan: list[bytes] = []

    def swap(sender: str, receiver: str, frame: bytes) -> list[bytes]:
        if (sender, receiver) == ("dan", "cho"):
            of_dan.append(frame)
        if (sender, receiver) == ("ben", "cho") and of_dan:
            return [of_dan.pop(), frame]
        return [frame]

    party.board.tamper = swap
    wait_for(lambda: party["cho"].of("ben").refused.get("another member's name", 0) > 5, "refused")
    party.board.tamper = None
    party.assert_exact()
    party.assert_nobody_was_away()


# --- random faults -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_faults_of_the_wire_lose_nothing(make: Make, seed: int) -> None:
    """With a long grace nobody is given up, whatever happens to frames and wires."""
    rng = np.random.default_rng([19, seed])
    network = [hb.ring(5), hb.path(4), hb.star(5), hb.complete(4)][seed]
    party = make(network, deadline=15.0, grace=10.0)
    party.board.tamper = Meddler(_anything(rng), 0.003, seed)
    party.start()
    names = [member.name for member in party.federation.members]
    links = [(names[a], names[b]) for a, b in network.ends]
    party.go_on(5)
    for _ in range(5):
        pair = links[rng.integers(len(links))]
        party.board.cut(*pair)
        time.sleep(float(rng.uniform(0, 0.1)))
        party.board.heal(*pair)
        time.sleep(float(rng.uniform(0, 0.1)))
    party.board.tamper = None
    party.assert_exact()
    party.assert_nobody_was_away()


def _anything(rng: np.random.Generator) -> Callable[[bytes], list[bytes]]:
    every = [do for do, _ in MEDDLERS.values()]
    return lambda frame: every[rng.integers(len(every))](frame)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_after_any_faults_all_come_to_the_mean_of_all(make: Make, seed: int) -> None:
    rng = np.random.default_rng([20, seed])
    network = [hb.ring(5), hb.star(4), hb.complete(4), hb.path(4)][seed]
    party = make(network, deadline=0.3, grace=0.05)
    party.board.tamper = Meddler(_anything(rng), 0.001, seed)
    party.start()
    names = [member.name for member in party.federation.members]
    links = [(names[a], names[b]) for a, b in network.ends]
    party.go_on(5)
    for _ in range(6):
        fault = rng.choice(["cut", "silence", "die", "freeze", "leave"])
        name, pair = names[rng.integers(len(names))], links[rng.integers(len(links))]
        lasting = float(rng.choice([0.01, 0.1, 0.45]))
        if fault in ("cut", "silence"):
            (party.board.cut if fault == "cut" else party.board.silence)(*pair)
            time.sleep(lasting)
            party.board.heal(*pair)
        elif fault == "freeze":
            with party[name].talk.changed:
                time.sleep(lasting)
        else:
            party[name].die() if fault == "die" else party[name].leave()
            party[name].join(60)
            time.sleep(lasting)
            party.start([name], first=int(rng.integers(30)), value=float(rng.normal()))
    party.board.tamper = None
    party.assert_exact()
