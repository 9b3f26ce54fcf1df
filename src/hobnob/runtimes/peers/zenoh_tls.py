"""Frames between owners: Zenoh over mutual TLS, from neighbour to neighbour, without a server.

Each member has one Zenoh session. It publishes frames on hobnob/FROM/TO and subscribes to what
its neighbours address to it. Of the two ends of an edge one dials; the other listens.

Who may connect: TLS accepts the neighbours' own certificates, or those that an authority signed.
Who may say what: access control compares each key with the common name of the certificate. A
process that passes TLS but is no neighbour is neither heard nor told anything. This matters twice:
an authority signs for non-neighbours too, and when Zenoh dials it also trusts the authorities of
the web. Access control knows names, not keys: a neighbour can sign a certificate in another
neighbour's name. So the frames above need a handshake signed with the pinned key.

Large frames travel in pieces. While Zenoh waits to hand over a message to a neighbour that froze,
it holds a lock that all its wires need, and sends no signs of life to others either. So no message
may wait as long as a lease, and a piece is small enough for slow lines to take it in time.

A limit: after every connection that TLS turns away Zenoh pauses for 0.1 s before it accepts the
next. Twenty such connections a second, which need no certificate, keep new ones out; wires that are
up go on. A firewall that admits only the neighbours' addresses prevents it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from hobnob.ground.errors import PeerError, SettingError
from hobnob.runtimes.peers.certificates import Identity, join_endpoint
from hobnob.runtimes.peers.transport import Heard, Wired
from hobnob.runtimes.peers.zenoh_log import zenoh_log

LEASE = 1.0  # seconds of silence after which a wire counts as down
PATIENCE = 0.5  # seconds that a piece may wait before the wire is closed
PIECE = 256 * 1024  # bytes: a line of 5 Mbit/s takes as much within PATIENCE
_PLACE = struct.Struct("<QQ")  # beside a piece: where it begins, and the size of its frame
_LOG_EVERY = 10.0  # seconds between two lines about the same reason


class ZenohTransport:
    """A member's wires to its neighbours. A process holds one.

    Args:
        identity: who this member is. Zenoh reads the key from its file.
        neighbours: for each neighbour's name its endpoint HOST:PORT and its certificate (PEM).
        dials: the neighbours that this side dials. The others dial this one.
        log: called with a line when a connection was turned away.
        authority: certificate (PEM) of an authority that signs members. Without one, only the
            neighbours' own certificates are accepted.
        listen: HOST:PORT to listen at, if not the identity's endpoint.
        deadline: seconds that `send` may take for one frame on a slow line.
        largest: bytes of the largest frame. Larger ones are dropped.

    `refused` counts connections that were turned away, by reason: "no certificate", "unknown
    certificate", "expired certificate", "not a neighbour", "not TLS", "handshake cut short", "our
    certificate was refused", "other TLS error". Each is also named in the log. A
    frame may be heard just before the news that the wire is up, or just after that it is down.
    """

    def __init__(
        self,
        identity: Identity,
        neighbours: Mapping[str, tuple[str, str]],
        dials: Collection[str],
        log: Callable[[str], None],
        *,
        authority: str = "",
        listen: str = "",
        deadline: float = 30.0,
        largest: int = 2**30,
    ):
        self.name = identity.name
        self.refused: Counter[str] = Counter()
        self._identity, self._neighbours, self._say = identity, dict(neighbours), log
        self._roots = authority or "".join(pem for _, pem in neighbours.values())
        self._dialled = [neighbours[name][0] for name in dials]
        self._listen = listen or identity.endpoint
        self._deadline, self._largest = deadline, largest
        self._up: set[str] = set()
        self._publishers: dict[str, Any] = {}
        self._turns = {name: threading.Lock() for name in neighbours}
        self._said: dict[str, float] = {}  # when a reason was last named in the log
        self._entities: list[Any] = []  # Zenoh ends those that nobody holds

    def open(self, heard: Heard, wired: Wired) -> None:
        zenoh = import_zenoh()
        self._folder = Path(tempfile.mkdtemp(prefix="hobnob-"))
        self._log = zenoh_log(zenoh)
        self._log.listeners.append(self._refuse)
        try:
            (self._folder / "roots.pem").write_text(self._roots)
            configured = configuration(
                self._identity,
                self._folder / "roots.pem",
                self._listen,
                self._dialled,
            ) | {"access_control": access_control(self.name, self._neighbours)}
            self._session = zenoh.open(zenoh.Config.from_json5(json.dumps(configured)))
        except (zenoh.ZError, OSError) as error:
            self._clean_up()
            raise PeerError(
                f"{self.name} cannot listen at {self._listen}: {error}. Is another process using "
                f"the port, or is this another machine's address?"
            ) from error
        links = self._session.info.declare_link_events_listener(self._linked, history=True)
        self._entities.append(links)
        for name in self._neighbours:
            self._attach(zenoh, name, heard, wired)

    def send(self, to: str, frame: bytes | bytearray | memoryview) -> bool:
        end = time.monotonic() + self._deadline
        turn = self._turns[to]
        if to not in self._up or not turn.acquire(timeout=self._deadline):
            return False
        try:
            if len(frame) <= PIECE:
                return self._put(to, bytes(frame) if isinstance(frame, memoryview) else frame, None)
            view = memoryview(frame)
            for start in range(0, len(frame), PIECE):
                place = _PLACE.pack(start, len(frame))
                sent = self._put(to, bytes(view[start : start + PIECE]), place)
                if not sent or time.monotonic() > end:
                    return False
            return True
        finally:
            turn.release()

    def _put(self, to: str, piece: bytes | bytearray, place: bytes | None) -> bool:
        clock = time.monotonic()
        self._publishers[to].put(piece, attachment=place)
        gave_up = time.monotonic() - clock > 0.9 * PATIENCE
        return to in self._up and not gave_up

    def close(self) -> None:
        self._session.close()
        self._clean_up()

    def _clean_up(self) -> None:
        self._log.listeners.remove(self._refuse)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _attach(self, zenoh: Any, name: str, heard: Heard, wired: Wired) -> None:
        """Make the wire to one neighbour. A token at each end tells the other that it is there."""
        session, mine = self._session, key(self.name, name)
        theirs = key(name, self.name)

        pieces = _Pieces(self._largest)

        def hear(sample: Any) -> None:
            payload, place = sample.payload.to_bytes(), sample.attachment
            frame = pieces.add(payload, place.to_bytes()) if place is not None else payload
            if frame is not None:
                heard(name, frame)

        def notice(sample: Any) -> None:
            up = sample.kind == zenoh.SampleKind.PUT
            if up != (name in self._up):
                (self._up.add if up else self._up.discard)(name)
                wired(name, up)

        self._publishers[name] = session.declare_publisher(
            mine, congestion_control=zenoh.CongestionControl.BLOCK, express=True
        )
        self._entities += [
            session.declare_subscriber(theirs, hear),
            session.liveliness().declare_subscriber(theirs, notice, history=True),
            # Last, since whoever sees it may send at once.
            session.liveliness().declare_token(mine),
        ]

    def _linked(self, event: Any) -> None:
        """A connection passed TLS. Only an authority lets in others than neighbours."""
        if str(event.kind).endswith("PUT"):
            limit_silence(event.link.src, event.link.dst)
            if event.link.auth_identifier not in self._neighbours:
                self._refuse("not a neighbour", f"{event.link.auth_identifier}, {event.link.dst}")

    def _refuse(self, reason: str, details: str) -> None:
        self.refused[reason] += 1
        now = time.monotonic()
        if now - self._said.get(reason, -_LOG_EVERY) >= _LOG_EVERY:
            self._said[reason] = now
            count = self.refused[reason]
            self._say(f"turned a connection away: {reason} ({details}; {count:,} so far).")


class _Pieces:
    """The pieces of one neighbour's frame, until it is whole. A piece that does not fit ends it."""

    def __init__(self, largest: int):
        self._largest, self._total, self._size = largest, 0, 0
        self._parts: list[bytes] = []

    def add(self, piece: bytes, place: bytes) -> bytes | None:
        start, total = _PLACE.unpack(place) if len(place) == _PLACE.size else (-1, 0)
        if start == 0:
            self._parts, self._total, self._size = [], total, 0
        if start != self._size or total != self._total or not len(piece) <= total <= self._largest:
            self._parts, self._total, self._size = [], 0, 0
            return None
        self._parts.append(piece)
        self._size += len(piece)
        if self._size < total:
            return None
        frame, self._parts = b"".join(self._parts), []
        self._total = self._size = 0
        return frame if len(frame) == total else None


def limit_silence(src: str, dst: str) -> None:
    """Let TCP give up this process's connection after a lease without a reply, where it can.

    Zenoh waits to close a connection until the other side has taken what is left. Before that it
    tells nobody that the wire is down, and does not dial again. TCP's own limit is many minutes.
    The ends are written tls/127.0.0.1:7447. Zenoh has no setting for this, so look for the socket.
    """
    if not hasattr(socket, "TCP_USER_TIMEOUT"):  # not Linux
        return
    for number in map(int, os.listdir("/dev/fd")):
        with contextlib.suppress(OSError):  # another kind of file, or just closed
            copy = os.dup(number)
            try:
                connection = socket.socket(fileno=copy)
            except OSError:
                os.close(copy)
                continue
            with connection:
                ends = connection.getsockname(), connection.getpeername()
                if [f"tls/{join_endpoint(*end[:2])}" for end in ends] == [src, dst]:
                    timeout = round(1000 * LEASE)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout)


def import_zenoh() -> Any:
    try:
        import zenoh
    except ImportError as error:
        raise SettingError(
            f"Members on machines of their own talk through Zenoh, which is missing ({error}): "
            f"pip install 'hobnob[peers]' brings it."
        ) from error
    return zenoh


def key(sender: str, receiver: str) -> str:
    """The key on which one member speaks to another."""
    return f"hobnob/{sender}/{receiver}"


def configuration(
    identity: Identity,
    roots: Path,
    listen: str,
    dialled: Collection[str],
) -> dict[str, Any]:
    """Zenoh's: TLS and nothing else, no discovery, nothing that the federation file does not name.

    Shared memory is off since it goes around TLS, the admin space since it tells of the machine.
    """
    own = {"certificate": str(identity.certificate_path), "private_key": str(identity.key_path)}
    tls = {
        "root_ca_certificate": str(roots),
        "enable_mtls": True,
        "verify_name_on_connect": True,
        "close_link_on_expiration": True,
        **{f"{side}_{what}": path for side in ("listen", "connect") for what, path in own.items()},
    }
    retry = {"period_init_ms": 100, "period_max_ms": 200, "period_increase_factor": 1.5}
    tx = {
        "lease": round(1000 * LEASE),
        "keep_alive": 4,
        "queue": {"congestion_control": {"block": {"wait_before_close": round(1e6 * PATIENCE)}}},
    }
    return {
        "mode": "peer",
        "listen": {"endpoints": [f"tls/{listen}"]},
        "connect": {
            "endpoints": [f"tls/{endpoint}" for endpoint in dialled],
            "timeout_ms": -1,  # for ever
            "exit_on_failure": False,
            "retry": retry,
        },
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "open": {"return_conditions": {"connect_scouted": False, "declares": False}},
        "timestamping": {"enabled": False},
        "adminspace": {"enabled": False},
        "transport": {
            "shared_memory": {"enabled": False},
            "unicast": {"compression": {"enabled": False}, "accept_timeout": 3000},
            "link": {
                "protocols": ["tls"],
                "tx": tx,
                "rx": {"max_message_size": 2 * PIECE},
                "tls": tls,
            },
        },
    }


def access_control(name: str, neighbours: Collection[str]) -> dict[str, Any]:
    """Each neighbour may speak to this member, hear what is for it, and nothing more."""
    rules, policies = [], []
    for other in neighbours:
        mine, theirs = key(name, other), key(other, name)
        speaking, hearing = ["put", "liveliness_token"], [
            "declare_subscriber",
            "declare_liveliness_subscriber",
            "liveliness_query",
        ]  # fmt: skip
        for flow, said, heard in (("ingress", theirs, mine), ("egress", mine, theirs)):
            for verb, messages, expression in (("say", speaking, said), ("hear", hearing, heard)):
                rule = {
                    "id": f"{other} {flow} {verb}",
                    "permission": "allow",
                    "flows": [flow],
                    "messages": messages,
                    "key_exprs": [expression],
                }
                rules.append(rule)
        policies.append({"subjects": [other], "rules": [r["id"] for r in rules[-4:]]})
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": [{"id": other, "cert_common_names": [other]} for other in neighbours],
        "policies": policies,
    }
