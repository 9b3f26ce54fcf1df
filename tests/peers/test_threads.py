"""The transport of the unit tests: order, notice of the wire, and faults on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from hobnob.runtimes.peers.threads import Switchboard, ThreadTransport
from hobnob.runtimes.peers.transport import Transport

LIMIT = 5.0  # seconds
QUIET = 0.05  # seconds in which nothing may come


class Member:
    """A transport, and all that its callbacks were told, in order."""

    def __init__(self, transport: Transport):
        self.transport = transport
        self.told: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.threads: set[int] = set()
        transport.open(self._note, self._note)

    def _note(self, name: str, what: Any) -> None:
        self.threads.add(threading.get_ident())
        self.told.put((name, what))

    def next(self) -> tuple[str, Any]:
        return self.told.get(timeout=LIMIT)

    def quiet(self) -> bool:
        try:
            self.told.get(timeout=QUIET)
        except Empty:
            return True
        return False


@pytest.fixture
def board() -> Switchboard:
    return Switchboard()


@pytest.fixture
def pair(board: Switchboard) -> Iterator[tuple[Member, Member]]:
    ana = Member(ThreadTransport(board, "ana", ["ben"]))
    assert not ana.transport.send("ben", b"too early")
    ben = Member(ThreadTransport(board, "ben", ["ana"]))
    assert ana.next() == ("ben", True)
    assert ben.next() == ("ana", True)
    yield ana, ben
    ana.transport.close()
    ben.transport.close()


def test_frames_come_in_order(pair: tuple[Member, Member]) -> None:
    ana, ben = pair
    frames = [bytes([i]) * i for i in range(100)]
    for frame in frames:
        assert ana.transport.send("ben", memoryview(frame))
    assert [ben.next() for _ in frames] == [("ana", frame) for frame in frames]
    assert threading.get_ident() not in ben.threads
    assert ana.quiet()


def test_the_sender_may_reuse_its_buffer(pair: tuple[Member, Member]) -> None:
    ana, ben = pair
    buffer = bytearray(b"one")
    ana.transport.send("ben", buffer)
    buffer[:] = b"two"
    assert ben.next() == ("ana", b"one")


def test_a_cut_is_told_and_healed(board: Switchboard, pair: tuple[Member, Member]) -> None:
    ana, ben = pair
    for _ in range(3):
        board.cut("ben", "ana")
        assert not ana.transport.send("ben", b"lost")
        assert ana.next() == ("ben", False)
        assert ben.next() == ("ana", False)
        board.heal("ana", "ben")
        assert ana.next() == ("ben", True)
        assert ben.next() == ("ana", True)
    ben.transport.send("ana", b"again")
    assert ana.next() == ("ben", b"again")


def test_frames_in_flight_are_lost_at_a_cut(board: Switchboard) -> None:
    busy, go_on, heard = threading.Event(), threading.Event(), []

    def slow(_: str, frame: bytes) -> None:
        heard.append(frame)
        busy.set()
        go_on.wait(LIMIT)

    ana = ThreadTransport(board, "ana", ["ben"])
    ana.open(lambda *_: None, lambda *_: None)
    down = threading.Event()
    ThreadTransport(board, "ben", ["ana"]).open(slow, lambda _, up: None if up else down.set())
    for frame in (b"1", b"2", b"3"):
        ana.send("ben", frame)
    assert busy.wait(LIMIT)
    board.cut("ana", "ben")
    go_on.set()
    assert down.wait(LIMIT)
    assert heard == [b"1"]


def test_silence_is_not_told(board: Switchboard, pair: tuple[Member, Member]) -> None:
    ana, ben = pair
    board.silence("ana", "ben")
    assert ana.transport.send("ben", b"lost")
    assert ana.quiet()
    assert ben.quiet()
    board.heal("ana", "ben")
    ana.transport.send("ben", b"found")
    assert ben.next() == ("ana", b"found")


@pytest.mark.parametrize("end", ["kill", "close"])
def test_a_member_leaves_and_returns(
    end: str, board: Switchboard, pair: tuple[Member, Member]
) -> None:
    ana, ben = pair
    board.kill("ben") if end == "kill" else ben.transport.close()
    assert ana.next() == ("ben", False)
    assert not ana.transport.send("ben", b"lost")
    assert not ben.transport.send("ana", b"from beyond")
    assert ben.quiet()
    again = Member(ThreadTransport(board, "ben", ["ana"]))
    assert ana.next() == ("ben", True)
    assert again.next() == ("ana", True)
    again.transport.send("ana", b"here")
    assert ana.next() == ("ben", b"here")
    assert ben.quiet()
    again.transport.close()


def doubled(_a: str, _b: str, frame: bytes) -> list[bytes]:
    return [frame, frame]


def altered(_a: str, _b: str, frame: bytes) -> list[bytes]:
    return [b"x" + frame[1:]]


def held_back() -> Callable[[str, str, bytes], list[bytes]]:
    held: list[bytes] = []

    def hook(_a: str, _b: str, frame: bytes) -> list[bytes]:
        held.append(frame)
        return held[::-1] if len(held) == 2 else []

    return hook


@pytest.mark.parametrize(
    ("tamper", "received"),
    [
        (lambda *_: [], []),
        (doubled, [b"ab", b"ab", b"cd", b"cd"]),
        (altered, [b"xb", b"xd"]),
        (held_back(), [b"cd", b"ab"]),
    ],
)
def test_tampering(
    tamper: Any, received: list[bytes], board: Switchboard, pair: tuple[Member, Member]
) -> None:
    ana, ben = pair
    board.tamper = tamper
    assert ana.transport.send("ben", b"ab")
    assert ana.transport.send("ben", b"cd")
    assert [ben.next() for _ in received] == [("ana", frame) for frame in received]
    assert ben.quiet()


def test_strangers_have_no_wire(board: Switchboard, pair: tuple[Member, Member]) -> None:
    """It takes both ends to name each other."""
    ana, _ = pair
    eve = Member(ThreadTransport(board, "eve", ["ana"]))
    assert not eve.transport.send("ana", b"hello")
    assert ana.quiet()
    assert eve.quiet()
