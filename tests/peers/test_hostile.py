"""Real hostile processes against a real run: refused, counted, named in the log, and it goes on.

Ana, ben and cho run among themselves. Dan is a member, too, and ana's neighbour; its code
misbehaves. The three must end at the optimum of those present.

What TLS alone turns away is also tested in test_zenoh.py, with bare transports.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import hobnob as hb
from hobnob.runtimes.peers.certificates import Identity, create_authority
from hobnob.runtimes.peers.federation import Federation
from tests.peers import federations
from tests.peers.processes import Process, Town, error_of, solution_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hostile")]

HONEST = ["ana", "ben", "cho"]
RULES = {"duals": "dropped", "deadline": 2.0, "arrival": 120.0}


class Attacked(Town):
    """Three honest members that run, and dan."""

    culprit: Process

    def stranger(self, certificate: str = "", victim: str = "ana", **more: Any) -> Process:
        """A process that tries to be heard, and has no part in the run."""
        federation = Federation.read(self.folder / "federation.toml")
        keys = self.folder / "keys"
        settings: dict[str, Any] = {
            "endpoint": federation.members[federation.number(victim)].endpoint,
            "keys": [f"hobnob/{name}/{victim}" for name in (*HONEST, "dan")],
            "roots": str(keys / f"{victim}.crt"),
            "seconds": 2.0,
        }
        if certificate:
            settings["certificate"] = str(self.folder / f"{certificate}.crt")
            settings["private_key"] = str(self.folder / f"{certificate}.key")
        process = Process("stranger", settings | more)
        self.all.append(process)
        return process

    def does(self, misdeed: str, *details: Any) -> None:
        began = time.time()
        self.culprit.do(misdeed, *details)

        def done() -> Any:
            event = self.culprit.last("done")
            return event is not None and event[1] >= began and event[2] == misdeed and event

        event = self.culprit.until(done, misdeed)
        assert len(event) == 3, event


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("hostile")
    graph = nx.Graph([(0, 1), (1, 2), (2, 0), (0, 3)])
    federations.made(folder, hb.Network(graph), **RULES)
    town = Attacked(folder, HONEST)
    try:
        town.start_all()
        town.culprit = town.start("dan", "hostile", victim="ana", others=["ben", "cho"])
        for name in HONEST:
            town[name].until(lambda name=name: town[name].step > 20, "the start")
        yield town
    finally:
        town.close()


def counted(member: Process, by: str, reason: str, least: int = 1) -> int:
    """Wait until a neighbour's frames were refused so often for this reason."""
    end = time.monotonic() + 30
    while (count := member.refused(by).get(reason, 0)) < least:
        assert time.monotonic() < end, (reason, member.refused(by), member.summary())
        time.sleep(0.05)
    return count


def turned_away(member: Process, reason: str, before: int) -> None:
    end = time.monotonic() + 30
    while member.company()["turned_away"].get(reason, 0) <= before:
        assert time.monotonic() < end, (reason, member.company(), member.summary())
        time.sleep(0.05)


def goes_on(town: Attacked) -> None:
    for name in HONEST:
        town[name].goes_on(30, 30.0)


# --- frames of a neighbour -----------------------------------------------------------------------

FRAMES = {
    "replay": "replayed",
    "double": "replayed",
    "echo": "another member's name",
    "pose": "another member's name",
    "reorder": "out of order",
    "truncate": "truncated",
    "alter": "forged or altered",
    "oversize": "oversized",
    "lie": "wrong size",
}


@pytest.mark.parametrize("misdeed", FRAMES)
def test_frames_that_are_refused(town: Attacked, misdeed: str) -> None:
    reason = FRAMES[misdeed]
    before = town["ana"].refused("dan").get(reason, 0)
    town.does(misdeed)
    counted(town["ana"], "dan", reason, before + 1)
    assert any("refused a frame of dan" in line and reason in line for line in town["ana"].logged)
    goes_on(town)


NUMBERS = {
    "not finite": (["nan"] * 17, "<f8", 1),
    "wrong dtype": ([0.0] * 34, "<f4", 2),
    "wrong size": ([0.0] * 16, "<f8", 1),
}


@pytest.mark.parametrize("reason", NUMBERS)
def test_numbers_that_are_refused(town: Attacked, reason: str) -> None:
    before = town["ana"].refused("dan").get(reason, 0)
    town.does("numbers", *NUMBERS[reason])
    counted(town["ana"], "dan", reason, before + 1)
    assert any(f"refused a frame of dan: {reason}" in line for line in town["ana"].logged)
    assert "dan" not in town["ana"].up
    goes_on(town)


def test_a_flood(town: Attacked) -> None:
    lines = len(town["ana"].logged)
    before = sum(town["ana"].refused("dan").values())
    town.does("flood")
    end = time.monotonic() + 60
    while (refused := sum(town["ana"].refused("dan").values()) - before) < 15_000:
        assert time.monotonic() < end, refused
        goes_on(town)
    assert len(town["ana"].logged) - lines < 60
    assert all("dan" not in town[name].up for name in HONEST)
    goes_on(town)


def test_a_member_that_never_sends_what_it_promised(town: Attacked) -> None:
    """It accepts every invitation. Each costs a deadline, and they become rare."""
    town.does("stall")
    time.sleep(8)
    town.does("rest")
    step = town["cho"].step
    goes_on(town)
    stalls = [line for line in town["ana"].logged if "dan is away (no word" in line]
    assert len(stalls) <= 4
    assert step > 0


# --- who may speak at all ------------------------------------------------------------------------


def no_certificate(town: Attacked) -> tuple[Process, str]:
    return town.stranger(), "no certificate"


def wrong_authority(town: Attacked) -> tuple[Process, str]:
    authority = create_authority("forgers", town.folder / "forgers")
    Identity.create("ben", "127.0.0.1:7", town.folder / "false", authority=authority)
    return town.stranger("false/ben"), "unknown certificate"


def another_key_for_a_name(town: Attacked) -> tuple[Process, str]:
    Identity.create("ben", "127.0.0.1:7", town.folder / "own")
    return town.stranger("own/ben"), "unknown certificate"


def an_expired_certificate(town: Attacked) -> tuple[Process, str]:
    last_year = datetime.now(UTC) - timedelta(days=300)
    mint(town.folder, "ben", "dan", town.folder / "expired", last_year, days=200)
    return town.stranger("expired/ben"), "expired certificate"


def mint(
    folder: Path, name: str, issuer: str, out: Path, begins: datetime, days: float = 1
) -> None:
    """A certificate like one member's, with a new key, that another member's key signed."""
    keys = folder / "keys"
    old = x509.load_pem_x509_certificate((keys / f"{name}.crt").read_bytes())
    signer = x509.load_pem_x509_certificate((keys / f"{issuer}.crt").read_bytes())
    secret: Any = serialization.load_pem_private_key((keys / f"{issuer}.key").read_bytes(), None)
    own = ec.generate_private_key(ec.SECP256R1())
    certificate = x509.CertificateBuilder(
        signer.subject,
        old.subject,
        own.public_key(),
        x509.random_serial_number(),
        begins,
        begins + timedelta(days=days),
        list(old.extensions),
    ).sign(secret, hashes.SHA256())
    out.mkdir()
    pem = own.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (out / f"{name}.key").write_bytes(pem)
    (out / f"{name}.key").chmod(0o600)
    (out / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


@pytest.mark.parametrize(
    "attempt",
    [no_certificate, wrong_authority, another_key_for_a_name, an_expired_certificate],
)
def test_connections_that_are_turned_away(town: Attacked, attempt: Any) -> None:
    away = dict(town["ana"].company()["turned_away"])
    process, reason = attempt(town)
    turned_away(town["ana"], reason, away.get(reason, 0))
    goes_on(town)
    told = process.until(lambda: process.told, "what became of it")[0]
    assert told == {"connected": False, "overheard": []}
    assert any(f"turned a connection away: {reason}" in line for line in town["ana"].logged)


def test_a_member_that_is_no_neighbour(town: Attacked) -> None:
    """Dan is a member, with the certificate that the file names, but not ben's neighbour."""
    before = town["ben"].company()["turned_away"].get("unknown certificate", 0)
    process = town.stranger("keys/dan", victim="ben")
    turned_away(town["ben"], "unknown certificate", before)
    told = process.until(lambda: process.told, "what became of it")[0]
    assert told == {"connected": False, "overheard": []}
    assert any("turned a connection away" in line for line in town["ben"].logged)
    goes_on(town)


def test_a_stale_federation_file(town: Attacked) -> None:
    """Dan again, with a file that says something else."""
    federation = Federation.read(town.folder / "federation.toml")
    stale = dict(federation.settings, rules=dict(RULES, deadline=3.0))
    (town.folder / "stale.toml").write_text(tomli_w.dumps(stale))
    town.culprit.kill()
    again = town.start("dan", "hostile", victim="ana", file="stale.toml", begins=False)
    counted(town["ana"], "dan", "another federation file")
    assert any(
        "refused a frame of dan: another federation file" in line for line in town["ana"].logged
    )
    again.until(
        lambda: any("another federation file" in line for line in again.logged), "told as well"
    )
    again.kill()
    goes_on(town)


def test_a_neighbour_in_another_neighbours_name(town: Attacked) -> None:
    """Dan signs a certificate in ben's name, which TLS accepts, and speaks for ben on ben's key.

    Frames need a proof by the key that the file pins.
    """
    mint(town.folder, "ben", "dan", town.folder / "minted", datetime.now(UTC))
    port = federations.free_ports(1)[0]
    posing = Process(
        "hostile",
        {
            "folder": str(town.folder),
            "name": "ben",
            "keys": "minted",
            "victim": "ana",
            "listen": f"127.0.0.1:{port}",
            "begins": False,
        },
    )
    town.all.append(posing)
    counted(town["ana"], "ben", "a proof that is not the member's")
    assert any("refused a frame of ben: a proof" in line for line in town["ana"].logged)
    goes_on(town)
    posing.kill()
    goes_on(town)
    for name in ("ana", "ben"):  # its end must not look like ben's
        other = {"ana": "ben", "ben": "ana"}[name]
        town[name].until(lambda name=name, other=other: other in town[name].up, "up", 10.0)


def test_the_honest_members_end_where_they_should(town: Attacked) -> None:
    """After all of the above."""
    town["ana"].goes_on(1500, 60.0)
    ends = town.stop_together("cho")
    present = solution_of(4, [0, 1, 2])
    assert {name: error_of(end, present) for name, end in ends.items()} == pytest.approx(
        dict.fromkeys(HONEST, 0.0), abs=1e-9
    )
    assert len({end["steps"] for end in ends.values()}) == 1
    assert not np.allclose(present, solution_of(4, [0, 1, 2, 3]), atol=1e-3)
