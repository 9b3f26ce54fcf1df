"""A process in front of the members' ports that can spoil their connections.

    python -m tests.peers.relay '{"ana": [PORT, PORT BEHIND], ...}'

In: [WORD, NAME], for all connections that others dialled to this member:

    reset      end them at once; new ones are let through
    swallow    carry nothing any more, in either direction, and tell nobody: a cut cable
    refuse     end them and let no new ones through
    delay N    carry everything N seconds late
    heal       carry everything again. What was swallowed is lost, so old connections end.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from tests.peers.tell import tell

_RESET = struct.pack("ii", 1, 0)  # linger for 0 seconds: the other side is told of a reset


class Gate:
    """All connections to one member."""

    def __init__(self, name: str, port: int, behind: int):
        self.name, self._behind = name, behind
        self.mode, self.late = "carry", 0.0
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._ended: dict[tuple[socket.socket, socket.socket], int] = {}  # directions
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._server.accept()
            if self.mode == "refuse":
                _reset(near)
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._behind), timeout=2)
            except OSError:
                _reset(near)
                continue
            far.settimeout(None)
            pair = near, far
            for one in pair:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add(pair)
            for way in (pair, pair[::-1]):
                threading.Thread(target=self._carry, args=(pair, *way), daemon=True).start()

    def _carry(self, pair: Any, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError, ValueError):
            while data := source.recv(65536):
                if self.late:
                    time.sleep(self.late)
                while self.mode == "swallow":
                    # Not even an end is passed on.
                    select.select([], [], [], 0.02)
                target.sendall(data)
        while self.mode == "swallow":
            time.sleep(0.02)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)  # what was sent before still arrives
        with self._lock:
            self._ended[pair] = self._ended.get(pair, 0) + 1
            both = self._ended[pair] == 2
        if both:
            self._end(pair)

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
            self._ended.pop(pair, None)
        for one in pair:
            with suppress(OSError):
                one.close()

    def reset(self) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            for one in pair:
                _reset(one)

    def do(self, word: str, late: float = 0.0) -> None:
        if word in ("reset", "refuse"):
            self.mode = "refuse" if word == "refuse" else self.mode
            self.reset()
        elif word == "swallow":
            self.mode = "swallow"
        elif word == "delay":
            self.late = late
        elif word == "heal":
            swallowed, self.mode, self.late = self.mode == "swallow", "carry", 0.0
            if swallowed:
                self.reset()


def _reset(connection: socket.socket) -> None:
    """Tell the other side of a reset, and wake the thread that reads here."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.shutdown(socket.SHUT_RD)
        connection.close()


def main(ports: dict[str, list[int]]) -> None:
    gates = {name: Gate(name, *pair) for name, pair in ports.items()}
    tell("open")
    for line in sys.stdin:
        word, name, *more = json.loads(line)
        gates[name].do(word, *more)
        tell("done", word, name)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
