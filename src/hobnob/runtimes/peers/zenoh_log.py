"""Connections that TLS turned away, as Zenoh's log tells them.

Zenoh refuses such a connection inside its own code and has no call that tells of it: the one trace
is a line of its log, which it can only write to standard output. So that output is led through a
pipe. A thread takes out the lines of Zenoh's log and passes on everything else. Python's own
`sys.stdout` goes around the pipe, and stays a terminal if it was one.

The lines have a reason. They have no address of the other side, except where this side dialled.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

Refusal = Callable[[str, str], None]  # (reason, what Zenoh wrote)

# What rustls says, from the first that fits.
_REASONS = {
    "peer sent no certificates": "no certificate",
    "certificate expired": "expired certificate",
    "invalid peer certificate": "unknown certificate",
    "received corrupt message": "not TLS",
    "unexpected message": "not TLS",
    "handshake eof": "handshake cut short",
    "fatal alert": "our certificate was refused",
}
OTHER = "other TLS error"

_FILTER = "zenoh_link_tls::unicast=warn,zenoh::net::runtime::orchestrator=debug"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT\S+Z +(TRACE|DEBUG|INFO|WARN|ERROR) .*zenoh")
_ACCEPTING = re.compile(r"zenoh_link_tls::unicast: (.*)\. Hint: ")
_DIALLING = re.compile(r"Unable to connect to configured peer tls/(\S+)! .*?: (.*)")


def refusal(line: str) -> tuple[str, str] | None:
    """(reason, details) if a line of Zenoh's log tells of a connection that TLS turned away."""
    if found := _ACCEPTING.search(line):
        words = found[1]
        return _reason(words) or OTHER, words
    if found := _DIALLING.search(line):
        reason = _reason(found[2])  # None if nobody answered, which is no refusal
        return (reason, f"{found[1]}: {found[2].split(' at /')[0]}") if reason else None
    return None


def _reason(words: str) -> str | None:
    return next((reason for part, reason in _REASONS.items() if part in words), None)


class ZenohLog:
    """Zenoh's log of this process. Every listener hears of every refusal.

    The log does not say which session it speaks of, so a process should hold one.
    """

    def __init__(self, zenoh: Any) -> None:
        self.listeners: list[Refusal] = []
        self._keep_lines = "RUST_LOG" in os.environ  # someone wants to read them
        self._outside = os.dup(1)
        if _fileno(sys.stdout) == 1:
            sys.stdout.flush()
            sys.stdout = open(  # noqa: SIM115, it lives as long as the process
                self._outside, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors,
                buffering=1, closefd=False,
            )  # fmt: skip
        self._inside, write = os.pipe()
        os.dup2(write, 1)
        os.close(write)
        self._thread = threading.Thread(target=self._read, name="zenoh log", daemon=True)
        self._thread.start()
        atexit.register(self._end)
        if self._keep_lines:
            os.environ["RUST_LOG"] += f",{_FILTER}"
        zenoh.init_log_from_env_or(_FILTER)

    def _read(self) -> None:
        with open(self._inside, "rb") as lines:
            for raw in lines:
                line = _COLOUR.sub("", raw.decode(errors="replace"))
                of_zenoh = _LOG_LINE.match(line)
                if of_zenoh and (told := refusal(line.rstrip())):
                    for listener in tuple(self.listeners):
                        listener(*told)
                if not of_zenoh or self._keep_lines:
                    os.write(self._outside, raw)

    def _end(self) -> None:
        """Put standard output back, and let the thread pass on what is left."""
        os.dup2(self._outside, 1)
        self._thread.join(1.0)


def _fileno(stream: Any) -> int | None:
    try:
        return stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None


_lock = threading.Lock()
_log: ZenohLog | None = None


def zenoh_log(zenoh: Any) -> ZenohLog:
    """The log of this process. The first call leads it here."""
    global _log
    with _lock:
        if _log is None:
            _log = ZenohLog(zenoh)
        return _log
