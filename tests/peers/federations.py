"""Federations for tests: keys in a folder, free ports on loopback, and the file."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import tomli_w

import hobnob as hb
from hobnob.runtimes.peers.certificates import Identity, fingerprint
from hobnob.runtimes.peers.federation import Federation

NAMES = ("ana", "ben", "cho", "dan", "eva", "fay")


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now. All are held until the last is known, so they differ."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


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
