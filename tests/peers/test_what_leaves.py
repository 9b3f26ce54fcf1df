"""All that leaves a member's process, byte by byte: what it is, how much, and to whom."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import hobnob as hb
from hobnob.runtimes.peers.frames import HEAD, NUMBERS, TAG, FrameKind, Head, read_head
from hobnob.runtimes.peers.notes.status import Status
from tests.peers import federations
from tests.peers.processes import Town, problem

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hostile")]

NAMES = ["ana", "ben", "cho"]  # ana - ben - cho: ana and cho are not neighbours
STEPS, EVERY = 60, 20
MIXED = 5 + 2 * 6  # x, y and z
REPORTED = 5 + 3  # x, and three running means


class Frame(NamedTuple):
    way: str
    other: str
    head: Head
    payload: bytes
    size: int


class Leaving(NamedTuple):
    """Of one member: its frames in both directions, and what it reported."""

    frames: list[Frame]
    ended: dict[str, Any]

    def sent(self, *kinds: FrameKind) -> list[Frame]:
        return [f for f in self.frames if f.way == "to" and (not kinds or f.head.kind in kinds)]

    def came(self, *kinds: FrameKind) -> list[Frame]:
        return [f for f in self.frames if f.way == "from" and (not kinds or f.head.kind in kinds)]


def read(path: Path) -> list[Frame]:
    frames = []
    for line in path.read_text().splitlines():
        way, other, hexed = json.loads(line)
        frame = bytes.fromhex(hexed)
        frames.append(
            Frame(way, other, read_head(frame, 2**30), frame[HEAD : len(frame) - TAG], len(frame))
        )
    return frames


@pytest.fixture(scope="module")
def leaving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Leaving]]:
    folder = tmp_path_factory.mktemp("secret-folder-name")
    federations.made(folder, hb.path(3))
    town = Town(folder, NAMES, steps=STEPS, record_every=EVERY)
    try:
        for name in NAMES:
            town.start(name, capture=str(folder / f"{name}.frames"), checkpoint=str(folder / name))
        ends = {name: town[name].end() for name in NAMES}
        yield {name: Leaving(read(folder / f"{name}.frames"), ends[name]) for name in NAMES}
    finally:
        town.close()


def test_every_byte_is_accounted_for(leaving: dict[str, Leaving]) -> None:
    for name, member in leaving.items():
        neighbours = member.ended["company"]["neighbours"]
        assert set(neighbours) == ({"ana", "cho"} if name == "ben" else {"ben"})
        for other, counts in neighbours.items():
            between = [f for f in member.frames if f.other == other]
            payload = {
                way: sum(
                    len(f.payload)
                    for f in between
                    if f.way == way and f.head.kind == FrameKind.ROUND
                )
                for way in ("to", "from")
            }
            assert (counts["sent"], counts["received"]) == (payload["to"], payload["from"])
            whole = sum(f.size for f in between)
            assert counts["sent"] + counts["received"] + counts["overhead"] == whole
            assert counts["refused"] == {}


def test_the_payload_is_what_the_ledger_says(leaving: dict[str, Leaving]) -> None:
    for member in leaving.values():
        payload = sum(len(f.payload) for f in member.sent(FrameKind.ROUND))
        assert [payload] == member.ended["bytes"]
        links = len(member.ended["company"]["neighbours"])
        assert payload == STEPS * links * MIXED * 8


def test_frames_go_to_neighbours_and_say_nothing_else(leaving: dict[str, Leaving]) -> None:
    numbers = {name: i for i, name in enumerate(NAMES)}
    for name, member in leaving.items():
        for frame in member.frames:
            mine, theirs = numbers[name], numbers[frame.other]
            ends = (mine, theirs) if frame.way == "to" else (theirs, mine)
            assert (frame.head.sender, frame.head.receiver) == ends
            assert abs(mine - theirs) == 1
        links = len(member.ended["company"]["neighbours"])
        counts = Counter(FrameKind(f.head.kind).name for f in member.sent())
        assert set(counts) <= {"HELLO", "PROOF", "STATUS", "ROUND", "REPORT", "BYE"}
        assert counts["ROUND"] == STEPS * links
        assert counts["REPORT"] == (STEPS // EVERY) * links
        for frame in member.sent(FrameKind.ROUND):
            assert len(frame.payload) == MIXED * 8
        for frame in member.sent(FrameKind.REPORT):
            assert len(frame.payload) == REPORTED * 8
        for frame in member.sent(FrameKind.STATUS):
            status = Status.unpack(frame.payload, len(NAMES))
            # Of others it passes on when they started, whether they are here, and which step
            # they can begin with.
            assert np.isin(status.table["here"], (0, 1)).all()
            assert (status.table["ready"] <= 0).all()
            assert (status.table["largest"] == 0).all()  # an algorithm was given
        for frame in member.sent(FrameKind.BYE):
            assert frame.payload == b""


def words(frames: list[Frame]) -> set[bytes]:
    """All doubles in their payloads but 0."""
    found = {f.payload[i : i + 8] for f in frames for i in range(0, len(f.payload) - 7, 8)}
    return found - {bytes(8)}


def test_no_records_no_names_no_state_of_others(leaving: dict[str, Leaving]) -> None:
    data = problem(3)
    records = {
        array.reshape(-1)[i : i + 1].tobytes()
        for source in (data.outer_data, data.inner_data)
        for array in source.arrays.values()  # type: ignore[union-attr]
        for i in range(array.size)
    }
    for member in leaving.values():
        frames = member.sent(*NUMBERS)
        assert not words(frames) & records
        whole = b"".join(f.payload for f in member.sent())
        for text in ("secret-folder-name", "keys", "federation", ".toml", "checkpoint", *NAMES):
            assert text.encode() not in whole
    # What ben hears of ana it does not pass on to cho, and the other way round.
    ben = leaving["ben"]
    for heard, told in (("ana", "cho"), ("cho", "ana")):
        states = words([f for f in ben.came(FrameKind.ROUND) if f.other == heard])
        passed = words([f for f in ben.sent(*NUMBERS) if f.other == told])
        assert len(states) > STEPS
        assert not states & passed


def test_keys_and_signatures_are_new_in_every_handshake(leaving: dict[str, Leaving]) -> None:
    hellos = [f.payload for member in leaving.values() for f in member.sent(FrameKind.HELLO)]
    assert all(len(hello) == 48 for hello in hellos)
    assert len({hello[:32] for hello in hellos}) >= 4  # one a link and side
