"""A hostile process: a Zenoh session of any kind that tries to be heard by a member.

    python -m tests.peers.stranger '{"endpoint": ..., "roots": ..., "keys": [...], ...}'

It publishes on all `keys` for a while, declares tokens on them, and tells what it overheard.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import zenoh


def main(settings: dict[str, Any]) -> None:
    protocol = settings.get("protocol", "tls")
    tls: dict[str, Any] = {
        "root_ca_certificate": settings["roots"],
        "verify_name_on_connect": False,
    }
    if "certificate" in settings:
        tls |= {
            "enable_mtls": True,
            "connect_certificate": settings["certificate"],
            "connect_private_key": settings["private_key"],
        }
    configuration = {
        "mode": "peer",
        "connect": {
            "endpoints": [f"{protocol}/{settings['endpoint']}"],
            "timeout_ms": -1,
            "exit_on_failure": False,
            "retry": {"period_init_ms": 100, "period_max_ms": 200, "period_increase_factor": 1.5},
        },
        "listen": {"endpoints": []},
        "scouting": {"multicast": {"enabled": False}},
        "transport": {"link": {"protocols": [protocol], "tls": tls}},
    }
    overheard: list[str] = []
    session = zenoh.open(zenoh.Config.from_json5(json.dumps(configuration)))
    kept: list[Any] = [
        session.declare_subscriber("**", lambda sample: overheard.append(str(sample.key_expr))),
        session.liveliness().declare_subscriber(
            "**", lambda sample: overheard.append(f"token {sample.key_expr}"), history=True
        ),
    ]
    kept += [session.liveliness().declare_token(k) for k in settings["keys"] if "*" not in k]
    end = time.monotonic() + 1.0
    connected = False
    while time.monotonic() < end:
        connected = connected or bool(session.info.peers_zid())
        for expression in settings["keys"]:
            session.put(expression, b"hostile")
        time.sleep(0.05)
    own = {k for key in settings["keys"] for k in (key, f"token {key}")}
    print(json.dumps({"connected": connected, "overheard": sorted(set(overheard) - own)}))
    session.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
