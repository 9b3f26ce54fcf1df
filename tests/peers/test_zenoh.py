"""Real processes, real TLS: frames, faults and strangers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hobnob.ground.errors import PeerError, SettingError
from hobnob.runtimes.peers import zenoh_log, zenoh_tls
from hobnob.runtimes.peers.certificates import Authority, Identity, create_authority, expires
from hobnob.runtimes.peers.zenoh_tls import PIECE, ZenohTransport, access_control, key
from tests.peers.federations import free_ports
from tests.peers.member import digest, pattern

ROOT = Path(__file__).parents[2]
LIMIT = 40.0  # seconds: more than any of these takes
LATE = 15.0  # seconds: what takes a moment on a quiet machine; `make chaos` measures
SPOKEN = [key(name, "ana") for name in ("ben", "carl", "eve")]  # what a stranger may try


def free_endpoint() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


def started(module: str, settings: dict[str, Any], **streams: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.peers.{module}", json.dumps(settings)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
        **streams,
    )


class Member:
    """A member's process, and all that it told."""

    def __init__(self, settings: dict[str, Any]):
        self.process = started("member", settings, stdin=-1, stderr=-1)
        self.log: list[str] = []
        self._told: list[Any] = []
        self._news = threading.Condition()
        self._threads = [threading.Thread(target=read) for read in (self._read, self._read_log)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._news:
                self._told.append(json.loads(line))
                self._news.notify_all()

    def _read_log(self) -> None:
        assert self.process.stderr
        self.log.extend(self.process.stderr)

    def do(self, *words: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def next(self, *words: Any) -> list[Any]:
        """Wait for an event that begins with these words. Each is returned once."""

        def fitting() -> list[Any] | None:
            fits = (e for e in self._told if [e[0], *e[2:]][: len(words)] == list(words))
            return next(fits, None)

        with self._news:
            assert self._news.wait_for(fitting, LIMIT), (words, self._told[-5:], self.log[-5:])
            event = fitting()
            assert event
            self._told.remove(event)
            return event

    def refused(self, reason: str) -> int:
        """Wait until something was refused for this reason."""
        end = time.monotonic() + LIMIT
        while True:
            self.do("refused")
            refused = self.next("refused")[2]
            if reason in refused or time.monotonic() > end:
                return refused.get(reason, 0)
            time.sleep(0.05)

    def signal(self, number: int) -> float:
        os.kill(self.process.pid, number)
        return time.time()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream
            stream.close()


class Town:
    """Members of one run. Ana listens, ben and carl are her neighbours, eve is nobody's."""

    graph: ClassVar = {"ana": ["ben", "carl"], "ben": ["ana"], "carl": ["ana"]}

    def __init__(self, folder: Path):
        self.folder = folder
        self.endpoints = {name: free_endpoint() for name in (*self.graph, "eve")}
        self.authority: Authority | None = None
        self._started: list[Member] = []

    def make(self, *names: str) -> None:
        for name in names:
            Identity.create(name, self.endpoints[name], self.folder, authority=self.authority)

    def start(self, name: str, **more: Any) -> Member:
        neighbours = [
            other for other in self.graph[name] if (self.folder / f"{other}.crt").exists()
        ]
        settings = {
            "name": name,
            "folder": str(self.folder),
            "neighbours": neighbours,
            "endpoints": self.endpoints,
            "dials": [other for other in neighbours if other < name],
            "authority": self.authority[0] if self.authority else "",
        }
        member = Member(settings | more)
        self._started.append(member)
        return member

    def stranger(self, certificate: str = "", **more: Any) -> dict[str, Any]:
        """Let a hostile process try to be heard by ana, and return what became of it."""
        settings: dict[str, Any] = {
            "endpoint": self.endpoints["ana"],
            "keys": [*SPOKEN, "hobnob/**"],
        }
        settings["roots"] = str(self.folder / "ana.crt")
        if certificate:
            settings["certificate"] = str(self.folder / f"{certificate}.crt")
            settings["private_key"] = str(self.folder / f"{certificate}.key")
        process = started("stranger", settings | more)
        out, _ = process.communicate(timeout=LIMIT)
        return json.loads(out.splitlines()[-1])

    def end(self) -> None:
        for member in self._started:
            member.end()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    town = Town(tmp_path)
    yield town
    town.end()


@pytest.fixture
def pair(town: Town) -> tuple[Member, Member]:
    town.make("ana", "ben")
    ana, ben = town.start("ana"), town.start("ben")
    ana.next("wired", "ben", True)
    ben.next("wired", "ana", True)
    return ana, ben


def goes_on(ana: Member, ben: Member) -> None:
    """Frames still travel both ways, and nothing else was heard."""
    for sender, receiver, to, name in ((ana, ben, "ben", "ana"), (ben, ana, "ana", "ben")):
        sender.do("send", to, 1000, 1)
        assert receiver.next("heard")[2:] == [name, 1000, digest(pattern(1000, 0))]


# --- frames -------------------------------------------------------------------------------------


def test_frames_of_all_sizes_in_order(pair: tuple[Member, Member]) -> None:
    ana, ben = pair
    plan = [(0, 1), (100, 20), (313_000, 5), (PIECE, 1), (PIECE + 1, 1), (8_000_000, 2), (7, 3)]
    for sender, receiver, to, name in ((ana, ben, "ben", "ana"), (ben, ana, "ana", "ben")):
        for size, times in plan:
            sender.do("send", to, size, times)
        for size, times in plan:
            for number in range(times):
                expected = [name, size, digest(pattern(size, number))]
                assert receiver.next("heard")[2:] == expected


@pytest.mark.slow
def test_a_frame_of_64_megabytes(pair: tuple[Member, Member]) -> None:
    ana, ben = pair
    ana.do("send", "ben", 64_000_000, 1)
    assert ben.next("heard")[2:] == ["ana", 64_000_000, digest(pattern(64_000_000, 0))]


def test_a_frame_larger_than_agreed_is_dropped(town: Town) -> None:
    town.make("ana", "ben")
    ana, ben = town.start("ana", largest=1_000_000), town.start("ben")
    ben.next("wired", "ana", True)
    ana.next("wired", "ben", True)
    ben.do("send", "ana", 2_000_000, 1)
    goes_on(ana, ben)


# --- faults -------------------------------------------------------------------------------------


def test_a_killed_member_is_missed_and_returns(town: Town, pair: tuple[Member, Member]) -> None:
    ana, ben = pair
    killed = ben.signal(signal.SIGKILL)
    assert ana.next("wired", "ben", False)[1] - killed < LATE
    ana.do("send", "ben", 100, 1)
    assert ana.next("sent")[2:] == ["ben", False]
    clock = time.time()
    again = town.start("ben")
    assert ana.next("wired", "ben", True)[1] - clock < LATE
    again.next("wired", "ana", True)
    goes_on(ana, again)


def test_the_side_that_dials_finds_a_restarted_member(
    town: Town, pair: tuple[Member, Member]
) -> None:
    ana, ben = pair
    killed = ana.signal(signal.SIGKILL)
    assert ben.next("wired", "ana", False)[1] - killed < LATE
    ana.process.wait()
    clock = time.time()
    again = town.start("ana")
    assert ben.next("wired", "ana", True)[1] - clock < LATE
    again.next("wired", "ben", True)
    goes_on(again, ben)


def test_a_frozen_member_is_missed_and_wakes(pair: tuple[Member, Member]) -> None:
    ana, ben = pair
    frozen = ben.signal(signal.SIGSTOP)
    assert 0.5 < ana.next("wired", "ben", False)[1] - frozen < LATE
    awake = ben.signal(signal.SIGCONT)
    assert ana.next("wired", "ben", True)[1] - awake < LATE
    ben.next("wired", "ana", False)
    ben.next("wired", "ana", True)
    goes_on(ana, ben)


@pytest.mark.slow
def test_a_member_frozen_within_a_frame_holds_up_nobody_else(town: Town) -> None:
    town.make("ana", "ben", "carl")
    ana, ben, carl = (town.start(name) for name in ("ana", "ben", "carl"))
    for member, other in ((ana, "ben"), (ana, "carl"), (ben, "ana"), (carl, "ana")):
        member.next("wired", other, True)
    frozen = ben.signal(signal.SIGSTOP)
    ana.do("send", "ben", 64_000_000, 1)
    ana.do("send", "carl", 100, 1)
    assert ana.next("sent", "ben")[2:] == ["ben", False]
    assert carl.next("heard")[1] - frozen < LATE
    assert ana.next("wired", "ben", False)[1] - frozen < LATE
    time.sleep(1.5)  # longer than a lease
    ana.do("send", "carl", 200, 1)
    assert carl.next("heard")[2:] == ["ana", 200, digest(pattern(200, 0))]
    awake = ben.signal(signal.SIGCONT)
    assert ana.next("wired", "ben", True)[1] - awake < LATE
    assert not [event for event in carl._told if event[0] == "wired"]


def test_closing_is_noticed(pair: tuple[Member, Member]) -> None:
    ana, ben = pair
    ben.do("close")
    closed = ben.next("closed")[1]
    assert ana.next("wired", "ben", False)[1] - closed < LATE
    assert not [event for event in ben._told if event[0] == "wired"]


# --- strangers ----------------------------------------------------------------------------------


def no_certificate(town: Town) -> dict[str, Any]:
    return town.stranger()


def not_a_neighbour(town: Town) -> dict[str, Any]:
    town.make("eve")
    return town.stranger("eve")


def same_name_other_key(town: Town) -> dict[str, Any]:
    Identity.create("ben", town.endpoints["ben"], town.folder / "false")
    return town.stranger("false/ben")


def wrong_authority(town: Town) -> dict[str, Any]:
    authority = create_authority("forgers", town.folder / "forgers")
    Identity.create("eve", town.endpoints["eve"], town.folder, authority=authority)
    return town.stranger("eve")


def plain_tcp(town: Town) -> dict[str, Any]:
    return town.stranger(protocol="tcp")


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (no_certificate, "no certificate"),
        (not_a_neighbour, "unknown certificate"),
        (same_name_other_key, "unknown certificate"),
        (wrong_authority, "unknown certificate"),
        (plain_tcp, "not TLS"),
    ],
)
def test_who_does_not_pass_tls(
    attempt: Callable[[Town], dict[str, Any]],
    reason: str,
    town: Town,
    pair: tuple[Member, Member],
) -> None:
    ana, ben = pair
    assert attempt(town) == {"connected": False, "overheard": []}
    assert ana.refused(reason) > 0
    assert any(f"turned a connection away: {reason}" in line for line in ana.log)
    goes_on(ana, ben)


def test_bytes_that_are_not_tls(town: Town, pair: tuple[Member, Member]) -> None:
    ana, ben = pair
    host, port = town.endpoints["ana"].split(":")
    for junk in (b"GET / HTTP/1.0\r\n\r\n", b"\0" * 1000, os.urandom(100_000), b"\x16\x03\x01"):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(junk)
    assert ana.refused("not TLS") > 0
    goes_on(ana, ben)


@pytest.mark.slow
def test_an_expired_certificate(town: Town) -> None:
    """Its link is closed when it expires, and it cannot come back."""
    town.make("ana")
    ben = Identity.create("ben", town.endpoints["ben"], town.folder, days=15 / 86400)
    ana, member = town.start("ana"), town.start("ben")
    ana.next("wired", "ben", True)
    ana.next("wired", "ben", False)
    assert datetime.now(UTC) - expires(ben.certificate) < timedelta(seconds=3)
    assert ana.refused("expired certificate") > 0
    member.end()
    assert town.stranger("ben") == {"connected": False, "overheard": []}


def test_a_neighbour_speaks_only_under_its_own_name(
    town: Town, pair: tuple[Member, Member]
) -> None:
    """It may use its certificate as it likes. Its other keys and wildcards are not heard."""
    ana, _ = pair
    told = town.stranger("ben", keys=[*SPOKEN[1:], "hobnob/**", "hobnob/*/ana"])
    assert told["connected"]
    assert set(told["overheard"]) <= {f"token {key('ana', 'ben')}"}
    ana.do("refused")
    ana.next("refused")
    assert not [event for event in ana._told if event[0] in ("heard", "wired")]


def test_a_non_neighbour_that_an_authority_signed(town: Town) -> None:
    """It passes TLS, but is neither heard nor told anything."""
    town.authority = create_authority("clinics", town.folder / "ca")
    town.make("ana", "ben", "eve")
    ana, ben = town.start("ana"), town.start("ben")
    ana.next("wired", "ben", True)
    ben.next("wired", "ana", True)
    told = town.stranger("eve", roots=str(town.folder / "ca" / "clinics.crt"))
    assert told == {"connected": True, "overheard": []}
    assert ana.refused("not a neighbour") > 0
    assert any("not a neighbour (eve, tls/127.0.0.1:" in line for line in ana.log)
    goes_on(ana, ben)


def test_the_wrong_server_is_not_believed(town: Town) -> None:
    """Somebody else sits at ana's address: ben, who dials, turns away and says so."""
    town.make("ana", "ben")
    (town.folder / "false").mkdir()
    Identity.create("ana", town.endpoints["ana"], town.folder / "false")
    (town.folder / "false" / "ben.crt").write_text((town.folder / "ben.crt").read_text())
    false, ben = town.start("ana", folder=str(town.folder / "false")), town.start("ben")
    assert ben.refused("unknown certificate") > 0
    assert any(town.endpoints["ana"] in line for line in ben.log)
    assert false.refused("our certificate was refused") > 0


@pytest.mark.slow
def test_a_neighbour_can_mint_a_certificate_of_another_name(town: Town) -> None:
    """A limit of pinning in TLS: why frames need a handshake signed with the pinned key."""
    town.make("ana", "ben", "carl")
    ana = town.start("ana")
    ana.next("open")
    mint(town.folder, "carl", "ben")
    assert town.stranger("minted", keys=SPOKEN[1:2])["connected"]
    assert ana.next("heard")[2] == "carl"


def mint(folder: Path, name: str, issuer: str) -> None:
    """A certificate in one member's name that another member's key signed."""
    secret = serialization.load_pem_private_key((folder / f"{issuer}.key").read_bytes(), None)
    assert isinstance(secret, ec.EllipticCurvePrivateKey)
    own = ec.generate_private_key(ec.SECP256R1())
    named = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in (name, issuer)]
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(named[0]).issuer_name(named[1])
    builder = builder.public_key(own.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1))
    builder = builder.not_valid_after(now + timedelta(hours=1))
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    signed = builder.add_extension(names, critical=False).sign(secret, hashes.SHA256())
    (folder / "minted.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "minted.key").write_bytes(
        own.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


# --- in this process ------------------------------------------------------------------------------


def test_zenoh_is_missing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "zenoh", None)
    ana = Identity.create("ana", "127.0.0.1:7447", tmp_path)
    with pytest.raises(SettingError, match=r"pip install 'hobnob\[peers\]'"):
        ZenohTransport(ana, {}, [], print).open(lambda *_: None, lambda *_: None)


def test_a_port_that_is_taken(tmp_path: Path, monkeypatch) -> None:
    class Log:
        listeners: ClassVar[list[Any]] = []

    monkeypatch.setattr(
        zenoh_tls, "zenoh_log", lambda _: Log()
    )  # leave this process's output alone
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        ana = Identity.create("ana", endpoint, tmp_path)
        ben = Identity.create("ben", "127.0.0.1:1", tmp_path)
        transport = ZenohTransport(ana, {"ben": (ben.endpoint, ben.certificate)}, [], print)
        with pytest.raises(PeerError, match=f"ana cannot listen at {endpoint}.*another process"):
            transport.open(lambda *_: None, lambda *_: None)
    assert not transport._folder.exists()
    assert not Log.listeners


def test_nobody_is_allowed_more_than_its_own_wire() -> None:
    rules = access_control("ana", ["ben", "carl"])["rules"]
    assert {k for rule in rules for k in rule["key_exprs"]} == {
        key(*ends) for ends in (("ana", "ben"), ("ben", "ana"), ("ana", "carl"), ("carl", "ana"))
    }


DIALLED = "Unable to connect to configured peer"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("zenoh_link_tls::unicast: peer sent no certificates. Hint: x", "no certificate"),
        ("zenoh_link_tls::unicast: something new. Hint: x", "other TLS error"),
        (f"{DIALLED} tls/a:1! Can not: certificate expired", "expired certificate"),
        (f"{DIALLED} tls/a:1! Can not: Connection refused", None),
        ("Listener added: tls/a:1", None),
    ],
)
def test_lines_of_the_log(line: str, told: str | None) -> None:
    found = zenoh_log.refusal(line)
    assert (found and found[0]) == told


PRINTING = """
import os, sys, zenoh
from hobnob.runtimes.peers.zenoh_log import zenoh_log
print("before")
zenoh_log(zenoh)
print("after", sys.stdout.fileno() != 1)
os.write(1, b"from below\\n")
os.write(1, b"2026-01-01T00:00:00.0Z  WARN zenoh_link_tls::unicast: no. Hint: x\\n")
os.write(1, b"no end of line")
"""


def test_what_others_print_is_passed_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINTING], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    lines = sorted(done.stdout.splitlines())
    assert lines == ["after True", "before", "from below", "no end of line"]
