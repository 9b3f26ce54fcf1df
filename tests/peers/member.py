"""One member in a process of its own: a ZenohTransport that a test steers by lines of JSON.

    python -m tests.peers.member '{"name": "ana", "folder": ..., "neighbours": ["ben"], ...}'

In: ["send", to, size, times], ["refused"], ["close"]. Out: one line an event, with its time.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from hobnob.runtimes.peers.certificates import Identity
from hobnob.runtimes.peers.zenoh_tls import ZenohTransport


def tell(event: str, *details: Any) -> None:
    print(json.dumps([event, time.time(), *details]), flush=True)


def pattern(size: int, number: int) -> bytes:
    """A frame that differs from others of its size."""
    return (b"%08d" % number * (size // 8 + 1))[:size]


def digest(frame: bytes) -> str:
    return hashlib.sha256(frame).hexdigest()[:16]


def main(settings: dict[str, Any]) -> None:
    folder = Path(settings["folder"])
    known = {name: (folder / f"{name}.crt").read_text() for name in settings["neighbours"]}
    transport = ZenohTransport(
        Identity.load(settings["name"], folder),
        {name: (settings["endpoints"][name], pem) for name, pem in known.items()},
        settings["dials"],
        lambda line: print(line, file=sys.stderr, flush=True),
        authority=settings.get("authority", ""),
        deadline=settings.get("deadline", 30.0),
        largest=settings.get("largest", 2**30),
    )
    transport.open(
        lambda name, frame: tell("heard", name, len(frame), digest(frame)),
        lambda name, up: tell("wired", name, up),
    )
    tell("open")
    for line in sys.stdin:
        word, *details = json.loads(line)
        if word == "send":
            to, size, times = details
            for number in range(times):
                tell("sent", to, transport.send(to, pattern(size, number)))
        elif word == "refused":
            tell("refused", dict(transport.refused))
        elif word == "close":
            transport.close()
            tell("closed")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
