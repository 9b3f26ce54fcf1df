"""Rounds per second between owners: hb.Peers beside bare Zenoh and hb.Mpi, and over long distances.

A round is one `agent.mix`: on a ring of five members every one sends its vector to two neighbours
and adds up three. All run on loopback, one after the other; a relay adds latency and limits each
link to 100 Mbit/s. The best of several turns counts, since other load can only slow them down.

python -m benchmarks.peer_rounds          the whole table
python -m benchmarks peer_rounds          the rows with goals
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import tomli_w
from tests.peers.federations import free_ports

import hobnob as hb
from benchmarks import bare_zenoh
from benchmarks.mpi_rounds import SIZES, Gossip, launched, problem_of
from benchmarks.relay import relay
from benchmarks.table import Row
from hobnob.runtimes.peers.certificates import Identity, fingerprint

NAMES = ("ana", "ben", "cho", "dan", "eva")
GOAL = 0.5
LATENCIES = (0.0, 0.005, 0.020, 0.050)  # one way, in seconds
MEGABITS = 100.0
FREE = {"112 B": 1000, "313 kB": 200, "8 MB": 10}  # rounds in about two seconds
FAR = {"112 B": 60, "313 kB": 30, "8 MB": 3}


def federation(folder: Path, relayed: bool) -> tuple[dict[str, str], dict[int, int]]:
    """Keys and a federation file for a ring. Returns where members listen, and what to relay."""
    listen, ports, members = {}, {}, []
    free = free_ports(2 * len(NAMES))
    for name, own, front in zip(NAMES, free[::2], free[1::2], strict=True):
        listen[name] = f"127.0.0.1:{own}"
        ports[front] = own
        endpoint = f"127.0.0.1:{front if relayed else own}"
        identity = Identity.create(name, endpoint, folder / "keys")
        members.append(
            {
                "name": name,
                "endpoint": endpoint,
                "certificate": identity.certificate,
                "fingerprint": fingerprint(identity.certificate),
            }
        )
    ring = hb.ring(len(NAMES))
    links = [[int(a), int(b), float(ring.matrix[a, b])] for a, b in ring.ends]
    settings = {
        "format": 1,
        "network": {"agents": ring.size, "links": links},
        "member": members,
        "rules": {"deadline": 60.0},
    }
    (folder / "federation.toml").write_text(tomli_w.dumps(settings))
    return listen, ports


def peers(size: str, rounds: int, turns: int, latency: float | None = None) -> float:
    """Rounds per second of hb.Peers, the best turn."""
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        listen, ports = federation(folder, latency is not None)
        if latency is not None:
            stack.enter_context(relay(ports, latency, MEGABITS))
        command = [sys.executable, "-m", "benchmarks.peer_rounds", "--member"]
        given = [str(folder), str(SIZES[size]), str(rounds), str(turns)]
        running = [
            subprocess.Popen([*command, name, listen[name], *given], stderr=subprocess.DEVNULL)
            for name in NAMES
        ]
        try:
            for process in running:
                if process.wait(600):
                    raise RuntimeError(f"a member ended with {process.returncode}")
        finally:
            for process in running:
                process.kill()
        return max(json.loads((folder / "rates.json").read_text()))


def member(name: str, listen: str, folder: Path, numbers: int, rounds: int, turns: int) -> None:
    runtime = hb.Peers(folder / "federation.toml", name, folder / "keys", listen=listen)
    problem, network = problem_of(len(NAMES), numbers), runtime.federation.network
    result = hb.solve(
        problem,
        network,
        Gossip(),
        steps=rounds * (turns + 1),
        record_every=rounds,
        runtime=runtime,
        progress=False,
    )
    seconds = result.history["seconds"]
    if name == NAMES[0]:  # the first turn warms up
        rates = (rounds / (seconds[2:] - seconds[1:-1])).tolist()
        (folder / "rates.json").write_text(json.dumps(rates))


def rows(quick: bool) -> Iterator[Row]:
    turns = 2 if quick else 5
    bare = bare_zenoh.rates(tuple(8 * n for n in SIZES.values()), 1.0 if quick else 3.0)
    mpi = launched(len(NAMES), "rounds", 0.1)
    for size, numbers in SIZES.items():
        rate = peers(size, FREE[size], turns)
        yield Row(f"hb.Peers, ring of five, rounds of {size}", "bare Zenoh with TLS",
                  rate / bare[8 * numbers], GOAL,
                  detail=f"rounds/s: hb.Peers {rate:,.1f}, Zenoh {bare[8 * numbers]:,.1f}, "
                  f"hb.Mpi {mpi[size]['hobnob']:,.1f}")  # fmt: skip


def far_table() -> None:
    print(f"rounds/s over links of {MEGABITS:g} Mbit/s, by latency one way")
    print("latency " + "".join(f"{size:>12}" for size in SIZES))
    for latency in LATENCIES:
        cells = [peers(size, FAR[size], 2, latency) for size in SIZES]
        print(f"{1000 * latency:4.0f} ms " + "".join(f"{cell:12.2f}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--member", nargs=6)
    options = parser.parse_args()
    if options.member:
        name, listen, folder, *numbers = options.member
        member(name, listen, Path(folder), *map(int, numbers))
        return
    for row in rows(quick=False):
        print(row, flush=True)
    far_table()


if __name__ == "__main__":
    main()
