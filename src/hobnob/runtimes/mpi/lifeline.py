"""Lifeline: every rank says once a second that it is alive, and all end if one falls silent.

MPI itself may wait for ever for a rank that was killed, is frozen or has stopped with an error. So
each rank has a thread with a socket to rank 0 beside MPI. A connection that breaks, a silence, an
error that only some ranks have, or a wait that is too long ends all ranks with one message.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

LOST = 3  # the exit code of ranks that end because of another
_BEAT = 1.0  # seconds between two signs of life
_TICK = 0.1
_CONNECTING = 20.0  # seconds for all ranks to find rank 0
_SETTLING = 3.0  # seconds for the others to tell that they have the same error


class Lifeline:
    """The thread and the sockets of one rank.

    Args:
        comm: an mpi4py communicator.
        who: "rank 2 (agents 4, 5)" for each rank.
        silence: seconds after which a rank that is not heard of counts as lost.
        patience: seconds that a rank may wait for others that do live.
    """

    def __init__(self, comm: Any, who: list[str], silence: float, patience: float):
        self._rank, self._size, self._who = comm.rank, comm.size, who
        self._silence, self._patience = silence, patience
        self._waiting: tuple[str, float] | None = None
        self._over = False
        self._failed: dict[int, str] = {}
        self._failed_at, self._details = 0.0, ""
        self._settled, self._parted = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._processes = comm.allgather((socket.gethostname(), os.getpid()))
        near = len({host for host, _ in self._processes}) == 1
        self._peers: dict[int, _Peer] = _connected(comm, near) if comm.size > 1 else {}
        self._signals = _Signals()
        self._thread = threading.Thread(target=self._watch, name="lifeline", daemon=True)
        self._thread.start()

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Wraps every wait for other ranks, which may take at most `patience`."""
        self.wait_began(what)
        try:
            yield
        finally:
            self.wait_ended()

    def wait_began(self, what: str) -> None:
        self._waiting = what, time.monotonic()

    def wait_ended(self) -> None:
        self._waiting = None

    def hang_up(self) -> None:
        """This rank is done. The line stays open until all others are too."""
        self._say({"bye": True})
        if self._peers:
            self._parted.wait(_SETTLING)
        self._close()

    def fail(self, words: str, details: str = "") -> None:
        """Report an error of this rank. Returns if every rank has the same one; otherwise all end.

        `details`, such as a traceback, are told here and only if the error is this rank's alone.
        """
        self._details = details
        if self._size > 1:
            with self._lock:
                self._note_failure(self._rank, words)
            if self._rank:
                self._say({"failed": words})
            self._settled.wait(self._silence + 2 * _SETTLING)
        self._close()

    def despair(self, words: str) -> None:
        """MPI has failed. The cause is most likely another rank, which will be noticed."""
        time.sleep(self._silence + 2 * _BEAT)
        self._end(f"{_capital(self._who[self._rank])} cannot go on: {words}", aloud=True)

    # --- the thread ----------------------------------------------------------------------------

    def _watch(self) -> None:
        beat = 0.0
        while not self._over:
            now = time.monotonic()
            if now - beat >= _BEAT:
                self._say({"beat": True})
                beat = now
            self._listen()
            self._judge(time.monotonic())

    def _listen(self) -> None:
        sockets = [peer.socket for peer in self._peers.values() if peer.open]
        try:
            ready, _, _ = select.select([*sockets, self._signals.ear], [], [], _TICK)
        except (OSError, ValueError):  # closed meanwhile
            return
        for rank, peer in self._peers.items():
            if peer.open and peer.socket in ready:
                for message in peer.read():
                    self._hear(rank, message)
        if self._signals.ear in ready:
            self._signals.note()

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        if "end" in message:
            self._say(message)  # rank 0 passes it on
            self._end(message["end"], aloud=False)
        elif "failed" in message:
            with self._lock:
                self._note_failure(rank, message["failed"])
        elif "same" in message:
            self._settled.set()
        elif "bye" in message:
            self._peers[rank].leaves = True
            if all(peer.leaves for peer in self._peers.values()):
                self._parted.set()

    def _judge(self, now: float) -> None:
        for rank, peer in self._peers.items():
            if peer.leaves:
                continue
            if peer.gone:
                self._lost(rank, "is gone: it was killed or has crashed")
            elif peer.open and now - peer.heard > self._silence:
                self._bury(rank)
                self._lost(rank, f"has not been heard of for {self._silence:g} s: it is frozen")
        if self._rank == 0 and self._failed:
            self._judge_failures(now)
        waiting = self._waiting
        if waiting and now - waiting[1] > self._patience:
            self._verdict(
                f"{_capital(self._who[self._rank])} has waited {self._patience:g} s for "
                f"{waiting[0]}. All ranks live: if that can take so long, give "
                f"hb.Mpi(patience=...) more."
            )
        if self._signals.terminated and now - self._signals.at > 0.5:
            self._signals.obey()

    def _judge_failures(self, now: float) -> None:
        if len(self._failed) == self._size and len(set(self._failed.values())) == 1:
            for peer in self._peers.values():
                peer.leaves = True  # as soon as it hears this
            self._say({"same": True})
            self._settled.set()
            self._failed = {}
        elif now - self._failed_at > _SETTLING:
            rank, words = min(self._failed.items())
            self._verdict(f"{_capital(self._who[rank])} has stopped: {words}")

    def _note_failure(self, rank: int, words: str) -> None:
        self._failed_at = self._failed_at if self._failed else time.monotonic()
        self._failed[rank] = words

    def _lost(self, rank: int, how: str) -> None:
        if self._failed:  # somebody has told why, or all have
            self._settled.set()
            return
        words = (
            f"{_capital(self._who[rank])} {how}. All other ranks end now. The last checkpoint, if "
            f"there is one, is good: go on from it with resume=True."
        )
        self._say({"end": words})
        # Everyone sees that rank 0 is lost: rank 1 says so.
        self._end(words, aloud=rank > 0 or self._rank == 1)

    def _bury(self, rank: int) -> None:
        """Kill a frozen process: not every launcher would."""
        host, process = self._processes[rank]
        if host == socket.gethostname():
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)

    def _verdict(self, words: str) -> None:
        self._say({"end": words})
        self._end(words, aloud=True)

    def _end(self, words: str, aloud: bool) -> None:
        if aloud:
            print(f"hobnob: {words}", file=sys.stderr)
        print(end=self._details, file=sys.stderr, flush=True)
        os._exit(LOST)

    def _say(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        for peer in self._peers.values():
            peer.write(line)

    def _close(self) -> None:
        self._over = True
        if threading.current_thread() is not self._thread:
            self._thread.join(10 * _TICK + 1)
        for peer in self._peers.values():
            peer.leave()
        self._signals.restore()


class _Peer:
    """The other end of a socket."""

    def __init__(self, sock: socket.socket):
        sock.settimeout(5.0)
        self.socket = sock
        self.heard = time.monotonic()
        self.open, self.gone, self.leaves = True, False, False
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        try:
            received = self.socket.recv(65536)
        except OSError:
            received = b""
        if not received:
            self.open, self.gone = False, True
            return []
        self.heard = time.monotonic()
        *lines, self._rest = (self._rest + received).split(b"\n")
        return [json.loads(line) for line in lines]

    def write(self, line: bytes) -> None:
        if self.open:
            with suppress(OSError):  # reading will show that it is gone
                self.socket.sendall(line)

    def leave(self) -> None:
        self.open = False
        self.socket.close()


class _Signals:
    """Holds back SIGTERM, which a launcher sends when a rank dies, until the reason is printed."""

    def __init__(self) -> None:
        self.ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self.terminated, self.at = False, 0.0
        self._old: Callable[[], None] = lambda: None
        if threading.current_thread() is threading.main_thread():
            handler = signal.signal(signal.SIGTERM, lambda number, frame: None)
            wakeup = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
            self._old = lambda: self._put_back(handler, wakeup)

    def note(self) -> None:
        numbers = self.ear.recv(64)
        if signal.SIGTERM in numbers and not self.terminated:
            self.terminated, self.at = True, time.monotonic()

    def obey(self) -> None:
        os._exit(128 + signal.SIGTERM)

    def restore(self) -> None:
        self._old()
        self.ear.close()
        self._mouth.close()

    def _put_back(self, handler: Any, wakeup: int) -> None:
        signal.signal(signal.SIGTERM, handler)
        signal.set_wakeup_fd(wakeup)


def _connected(comm: Any, near: bool) -> dict[int, _Peer]:
    """Connections of rank 0 to all others; `near` is True if all are on one machine."""
    if comm.rank:
        hosts, port, password = comm.bcast(None)
        peer = _Peer(_reached(hosts, port))
        peer.write(json.dumps([password, comm.rank]).encode() + b"\n")
        comm.Barrier()
        return {0: peer}
    hosts = ["127.0.0.1"] if near else [socket.gethostname(), socket.getfqdn()]
    password = secrets.token_hex(16)
    with socket.create_server((hosts[0] if near else "", 0), backlog=comm.size) as listener:
        comm.bcast((hosts, listener.getsockname()[1], password))
        listener.settimeout(_CONNECTING)
        peers: dict[int, _Peer] = {}
        while len(peers) < comm.size - 1:
            peer = _Peer(listener.accept()[0])
            with suppress(OSError, ValueError):  # a stranger
                given, rank = json.loads(peer.socket.makefile().readline(200))
                if secrets.compare_digest(str(given), password):
                    peers[int(rank)] = peer
    comm.Barrier()
    return peers


def _reached(hosts: list[str], port: int) -> socket.socket:
    error: OSError | None = None
    for host in hosts:
        try:
            return socket.create_connection((host, port), timeout=_CONNECTING)
        except OSError as failed:
            error = failed
    raise error or OSError("no address")


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
