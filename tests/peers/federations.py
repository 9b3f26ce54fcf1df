"""Federations for tests: keys in a folder, free ports on loopback, and the file."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom

import tomli_w

import hobnob as hb
from hobnob.runtimes.peers.certificates import Identity, fingerprint
from hobnob.runtimes.peers.federation import Federation

NAMES = ("ana", "ben", "cho", "dan", "eva", "fay")


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now.

    They are below those that the system gives to connections: one of these could be taken again
    before a member listens at it.
    """
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            port, held = SystemRandom().randrange(10_000, 32_000), socket.socket()
            try:
                held.bind(("127.0.0.1", port))
            except OSError:
                held.close()
                continue
            stack.enter_context(held)
            found.append(port)
    return found


def made(
    folder: Path, network: hb.Network, agents: Sequence[int] | None = None, **rules: str | float
) -> Federation:
    """FOLDER/federation.toml and FOLDER/keys; `agents` of each member, 1 if not given."""
    agents = agents or [1] * network.size
    members = []
    names = NAMES[: len(agents)]
    for name, count, port in zip(names, agents, free_ports(len(agents)), strict=True):
        identity = Identity.create(name, f"127.0.0.1:{port}", folder / "keys")
        members.append(
            {
                "name": name,
                "endpoint": identity.endpoint,
                "agents": count,
                "certificate": identity.certificate,
                "fingerprint": fingerprint(identity.certificate),
            }
        )
    W = network.matrix
    settings = {
        "format": 1,
        "rules": {"deadline": 20.0, "arrival": 120.0, **rules},
        "network": {
            "agents": network.size,
            "links": [[int(a), int(b), float(W[a, b])] for a, b in network.ends],
        },
        "member": members,
    }
    path = folder / "federation.toml"
    path.write_text(tomli_w.dumps(settings))
    return Federation.read(path)
