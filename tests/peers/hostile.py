"""A hostile process: the key of a real member, and code that misbehaves.

    python -m tests.peers.hostile '{"folder": ..., "name": "dan", "victim": "ana", ...}'

It shakes hands as hobnob does. Each line in names a misdeed: ["replay"]; out comes ["done", time].
With `minted` it has a certificate in another member's name that its own key signed; with `file` it
has another federation file. Then it only tries to shake hands.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from hobnob.core.algorithm import Scale
from hobnob.ground.errors import PeerError
from hobnob.runtimes.peers.certificates import Identity
from hobnob.runtimes.peers.conversation import Conversation
from hobnob.runtimes.peers.federation import Federation
from hobnob.runtimes.peers.frames import FrameKind, Head, write_head
from hobnob.runtimes.peers.notes.link import Edge, payload_of
from hobnob.runtimes.peers.notes.status import Phase
from hobnob.runtimes.peers.rounds import Rounds
from hobnob.runtimes.peers.session import empty_frame
from hobnob.runtimes.peers.zenoh_tls import ZenohTransport
from tests.peers.tell import tell


class Recording:
    """A transport that remembers what it sent."""

    def __init__(self, transport: ZenohTransport):
        self.transport, self.refused = transport, transport.refused
        self.sent: list[bytes] = []
        self.heard: list[bytes] = []
        self.silent = False

    def open(self, heard: Any, wired: Any) -> None:
        def listen(name: str, frame: bytes) -> None:
            self.heard.append(frame)
            heard(name, frame)

        self.transport.open(listen, wired)

    def send(self, to: str, frame: Any) -> bool:
        self.sent.append(bytes(frame))
        return self.silent or self.transport.send(to, frame)

    def close(self) -> None:
        self.transport.close()


class Hostile:
    """A member that has met its victim."""

    def __init__(self, given: dict[str, Any]):
        folder = Path(given["folder"])
        federation = Federation.read(folder / given.get("file", "federation.toml"))
        me, self.victim = federation.number(given["name"]), given["victim"]
        self.others = [federation.number(name) for name in given.get("others", [])]
        identity = Identity.load(given["name"], folder / given.get("keys", "keys"))
        known = federation.members[federation.number(self.victim)]
        transport = ZenohTransport(
            identity,
            {known.name: (known.endpoint, known.certificate)},
            [known.name],
            lambda line: tell("log", line),
            listen=given.get("listen", ""),
        )
        self.wire = Recording(transport)
        self.talk = Conversation(
            federation, me, identity, self.wire, lambda line: tell("log", line)
        )
        self.rounds = Rounds(self.talk)
        self.link = next(k for k in self.talk.links.values() if k.name == self.victim)

    def begin(self) -> None:
        """Start with the others, and make no step."""
        self.talk.open()
        self.rounds.gather(Scale(1.0, 1.0))
        self.rounds.begin(0)
        self.talk.phase = Phase.ARRIVING  # nobody invites it
        tell("begun")

    # --- misdeeds ------------------------------------------------------------------------------

    def sealed(self, kind: FrameKind = FrameKind.STATUS) -> bytes:
        """A frame as it should be."""
        with self.talk.changed:
            assert self.link.session is not None
            payload = self.talk._status(self.link).pack() if kind == FrameKind.STATUS else b""
            frame = empty_frame(len(payload))
            payload_of(frame)[:] = payload
            head = self.talk.head(self.link, kind, size=len(payload))
            return bytes(self.link.session.seal(frame, head))

    def send(self, frame: bytes) -> None:
        assert self.wire.transport.send(self.victim, frame)

    def replay(self) -> None:
        for frame in self.wire.sent[-30:]:
            self.send(frame)

    def echo(self) -> None:
        """Send the victim its own frames."""
        for frame in self.wire.heard[-30:]:
            self.send(frame)

    def reorder(self) -> None:
        first, second = self.sealed(), self.sealed()
        self.send(second)
        self.send(first)

    def double(self) -> None:
        frame = self.sealed()
        self.send(frame)
        self.send(frame)

    def truncate(self) -> None:
        self.send(self.sealed()[:-5])
        self.send(b"HOB1")

    def alter(self) -> None:
        for _ in range(6):  # after a gap the first of a new session shows it
            frame = bytearray(self.sealed())
            frame[100] ^= 1
            self.send(bytes(frame))
            time.sleep(0.3)

    def oversize(self) -> None:
        frame = empty_frame(20_000_000)
        write_head(frame, Head(FrameKind.ROUND, self.talk._run, self.talk.me, 0, size=20_000_000))
        self.send(bytes(frame))

    def pose(self) -> None:
        """Frames with another member's name in their heads, on the own wire."""
        for other in self.others:
            frame = empty_frame(0)
            head = Head(FrameKind.STATUS, self.talk._run, other, self.link.number)
            write_head(frame, head)
            self.send(bytes(frame))

    def flood(self) -> None:
        junk = [b"", b"x" * 40, bytes(300), b"HOB1" + bytes(200), b"y" * 100_000]
        hello = empty_frame(48)
        write_head(
            hello, Head(FrameKind.HELLO, self.talk._run, self.talk.me, self.link.number, size=48)
        )
        for i in range(20_000):
            payload_of(hello)[:8] = i.to_bytes(8, "little")
            self.send(bytes(hello) if i % 6 == 5 else junk[i % 6])

    def lie(self) -> None:
        """A status that is too short."""
        frame = empty_frame(10)
        head = self.talk.head(self.link, FrameKind.STATUS, size=10)
        with self.talk.changed:
            assert self.link.session is not None
            self.send(bytes(self.link.session.seal(frame, head)))

    def numbers(self, values: list[float], dtype: str, code: int) -> None:
        """Take part again, and send these as the first numbers."""
        self.talk.phase = Phase.RUNNING
        limit = time.monotonic() + 60
        while self.link.edge is not Edge.DUE and time.monotonic() < limit:
            time.sleep(0.005)
        step = self.rounds.next_step(0)
        self.rounds.enter(step)
        rows = np.array([float(v) for v in values], dtype)
        frame = empty_frame(rows.nbytes)
        payload_of(frame)[:] = rows.tobytes()
        head = self.talk.head(self.link, FrameKind.ROUND, size=rows.nbytes, dtype=code, sequence=0)
        with self.talk.changed:
            assert self.link.session is not None
            self.send(bytes(self.link.session.seal(frame, head)))
        while self.link.edge is not Edge.DOWN and time.monotonic() < limit:
            time.sleep(0.005)
        self.talk.phase = Phase.ARRIVING

    def stall(self) -> None:
        """Let itself be invited again and again, and never send a number."""
        self.talk.phase, self.talk.step = Phase.RUNNING, 0

    def rest(self) -> None:
        self.talk.phase = Phase.ARRIVING


def main(given: dict[str, Any]) -> None:
    hostile = Hostile(given)
    try:
        if given.get("begins", True):
            hostile.begin()
        else:
            hostile.talk.open()
            tell("open")
    except PeerError as error:
        tell("failed", str(error))
        return
    for line in sys.stdin:
        word, *details = json.loads(line)
        try:
            getattr(hostile, word)(*details)
            tell("done", word)
        except Exception as error:
            tell("done", word, repr(error))


if __name__ == "__main__":
    threading.current_thread().name = "hostile"
    main(json.loads(sys.argv[1]))
