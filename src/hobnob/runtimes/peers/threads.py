"""A transport inside one process, for tests. Frames travel through threads, and tests cause faults.

board = Switchboard()
ana = ThreadTransport(board, "ana", ["ben"])
ben = ThreadTransport(board, "ben", ["ana"])
ana.open(heard, wired)  # and ben's: the wire is up once both are open
board.cut("ana", "ben")
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from hobnob.runtimes.peers.transport import Heard, Wired

Tamper = Callable[[str, str, bytes], list[bytes]]


class Switchboard:
    """Joins the transports of one process.

    `tamper(sender, receiver, frame)`, if set, returns the frames to deliver in place of the one
    that was sent. So a test can drop, double, alter or hold back frames.
    """

    def __init__(self) -> None:
        self.tamper: Tamper | None = None
        self._lock = threading.RLock()
        self._members: dict[str, ThreadTransport] = {}
        self._lines: dict[tuple[str, str], _Line] = {}  # (sender, receiver), also of the past
        self._cut: set[frozenset[str]] = set()
        self._silent: set[frozenset[str]] = set()

    def cut(self, a: str, b: str) -> None:
        """Break a wire, as a reset does. Both ends are told, and frames on their way are lost."""
        with self._lock:
            self._cut.add(frozenset((a, b)))
            self._hang_up(a, b)

    def silence(self, a: str, b: str) -> None:
        """Let all frames vanish and tell nobody, as a cut cable does."""
        with self._lock:
            self._silent.add(frozenset((a, b)))

    def heal(self, a: str, b: str) -> None:
        """End a cut or a silence. After a cut both ends are told that the wire is up."""
        with self._lock:
            self._cut.discard(frozenset((a, b)))
            self._silent.discard(frozenset((a, b)))
            self._connect(a, b)

    def kill(self, name: str) -> None:
        """End a member without notice. Its neighbours are told; the member hears nothing more."""
        with self._lock:
            member = self._members.pop(name, None)
            for other in member.neighbours if member else ():
                self._hang_up(name, other)

    def _join(self, member: ThreadTransport) -> None:
        with self._lock:
            self.kill(member.name)
            self._members[member.name] = member
            for other in member.neighbours:
                self._connect(member.name, other)

    def _leave(self, member: ThreadTransport) -> None:
        with self._lock:
            if self._members.get(member.name) is member:
                self.kill(member.name)

    def _connect(self, a: str, b: str) -> None:
        one, two = self._members.get(a), self._members.get(b)
        if one is None or two is None or frozenset((a, b)) in self._cut or self._up(a, b):
            return
        if b in one.neighbours and a in two.neighbours:
            self._lines[a, b] = _Line(a, two, self._lines.get((a, b)))
            self._lines[b, a] = _Line(b, one, self._lines.get((b, a)))

    def _hang_up(self, a: str, b: str) -> None:
        for way in ((a, b), (b, a)):
            if self._up(*way):
                self._lines[way].hang_up(tell=way[1] in self._members)

    def _up(self, sender: str, receiver: str) -> bool:
        line = self._lines.get((sender, receiver))
        return line is not None and line.up

    def _send(self, sender: ThreadTransport, to: str, frame: bytes) -> bool:
        with self._lock:
            if self._members.get(sender.name) is not sender or not self._up(sender.name, to):
                return False
            frames = [frame] if self.tamper is None else self.tamper(sender.name, to, frame)
            if frozenset((sender.name, to)) not in self._silent:
                for one in frames:
                    self._lines[sender.name, to].items.put(one)
            return True


class ThreadTransport:
    """One member's end. A wire needs both ends to name each other."""

    def __init__(self, board: Switchboard, name: str, neighbours: Iterable[str]):
        self.name, self.neighbours = name, tuple(neighbours)
        self.refused: Counter[str] = Counter()
        self._board = board

    def open(self, heard: Heard, wired: Wired) -> None:
        self.heard, self.wired = heard, wired
        self._board._join(self)

    def send(self, to: str, frame: bytes | bytearray | memoryview) -> bool:
        return self._board._send(self, to, bytes(frame))

    def close(self) -> None:
        self._board._leave(self)


class _Line:
    """One direction of a wire, from its connection to its end, with a thread that delivers.

    Frames and news of the wire take the same queue. So no frame comes before the wire is up, and
    none after it went down.
    """

    def __init__(self, sender: str, receiver: ThreadTransport, before: _Line | None):
        self.up = True
        self.items: SimpleQueue[bytes] = SimpleQueue()
        self._sender, self._receiver, self._before = sender, receiver, before
        self._tell = True
        self._thread = threading.Thread(target=self._deliver, daemon=True)
        self._thread.start()

    def hang_up(self, tell: bool) -> None:
        self.up, self._tell = False, tell
        self.items.put(b"")  # wakes the thread

    def _next(self) -> tuple[bytes] | None:
        frame = self.items.get()
        return (frame,) if self.up else None

    def _deliver(self) -> None:
        if self._before is not None:
            self._before._thread.join()
            self._before = None
        if not self.up:
            return  # it went down before anyone heard that it was up
        self._receiver.wired(self._sender, True)
        while frame := self._next():
            self._receiver.heard(self._sender, frame[0])
        if self._tell:
            self._receiver.wired(self._sender, False)
