"""Rounds per second of bare Zenoh over mutual TLS, on which the runtime between owners is built.

Five processes form a ring on loopback. In a round each sends one message to both neighbours and
waits for both of theirs. TLS is configured as for members of a run. There is nothing of hobnob's
around it: no frames, no tags, no pieces, no access control.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.peers.federations import free_ports

from hobnob.runtimes.peers.certificates import Identity
from hobnob.runtimes.peers.zenoh_tls import configuration, import_zenoh

SIZES = {"112 B": 112, "313 kB": 313_000, "8 MB": 8_000_000}
MEMBERS = 5
WARM_UP = 0.5  # seconds
START = 30.0  # seconds that the ring may take to form


def rates(sizes: Iterable[int], seconds: float) -> dict[int, float]:
    """Rounds per second for messages of each size, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        for number, port in enumerate(free_ports(MEMBERS)):
            Identity.create(f"m{number}", f"127.0.0.1:{port}", Path(folder))
        return {size: _ring(Path(folder), size, seconds) for size in sizes}


def _ring(folder: Path, size: int, seconds: float) -> float:
    """Start a ring, wait until every member has measured, and end it. The slowest counts."""
    command = [sys.executable, "-m", "benchmarks.bare_zenoh", str(folder), str(size), str(seconds)]
    members = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(MEMBERS)
    ]
    too_late = threading.Timer(START + 2 * seconds, lambda: [m.kill() for m in members])
    too_late.start()
    try:
        found = [member.stdout.readline() for member in members if member.stdout]
        assert all(found), f"the ring made no rounds of {size} bytes"
        return min(float(line) for line in found)
    finally:
        too_late.cancel()
        for member in members:
            member.kill()
            member.wait()
            if member.stdout:
                member.stdout.close()


def _member(folder: Path, size: int, seconds: float, number: int) -> None:
    zenoh = import_zenoh()
    me = Identity.load(f"m{number}", folder)
    before, after = (Identity.load(f"m{(number + i) % MEMBERS}", folder) for i in (-1, 1))
    roots = folder / f"{me.name}.roots"
    roots.write_text(before.certificate + after.certificate)
    session = zenoh.open(zenoh.Config.from_json5(json.dumps(_bare(me, roots, after.endpoint))))
    subscribers = [
        session.declare_subscriber(f"{other.name}/{me.name}", zenoh.handlers.FifoChannel(16))
        for other in (before, after)
    ]
    publishers = [
        session.declare_publisher(
            f"{me.name}/{other.name}", congestion_control=zenoh.CongestionControl.BLOCK
        )
        for other in (before, after)
    ]
    end = time.monotonic() + START
    while not all(publisher.matching_status.matching for publisher in publishers):
        assert time.monotonic() < end, "the ring did not form"
        time.sleep(0.02)
    message = bytes(size)

    def rounds(duration: float) -> float:
        clock, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - clock) < duration:
            for publisher in publishers:
                publisher.put(message)
            for subscriber in subscribers:
                subscriber.recv().payload.to_bytes()
            count += 1
        return count / passed

    rounds(WARM_UP)
    print(rounds(seconds), flush=True)
    rounds(START)  # the others still measure; the parent ends all


def _bare(me: Identity, roots: Path, dialled: str) -> dict[str, Any]:
    """The members' configuration, but with whole messages of any size."""
    settings = configuration(me, roots, me.endpoint, [dialled])
    link = settings["transport"]["link"]
    link["rx"]["max_message_size"] = 2**30
    link["tx"]["queue"]["congestion_control"]["block"]["wait_before_close"] = 30_000_000
    return settings


def main() -> None:
    found = rates(SIZES.values(), 3.0)
    for name, size in SIZES.items():
        print(f"{name:>7}  {found[size]:10.1f} rounds/s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _member(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
