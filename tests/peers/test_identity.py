"""Keys and certificates: what is made, what is refused, who signed."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hobnob.ground.errors import PeerError
from hobnob.runtimes.peers import certificates
from hobnob.runtimes.peers.certificates import Identity, create_authority, verify

ENDPOINT = "127.0.0.1:7447"


@pytest.fixture
def ana(tmp_path: Path) -> Identity:
    return Identity.create("ana", ENDPOINT, tmp_path / "keys")


def test_what_a_certificate_says(ana: Identity) -> None:
    assert ana == Identity.load("ana", ana.key_path.parent)
    pem = ana.certificate_path.read_text()
    assert certificates.name_of(pem) == "ana"
    assert certificates.endpoint_of(pem) == ENDPOINT
    assert len(bytes.fromhex(certificates.fingerprint(pem))) == 32
    left = certificates.expires(pem) - datetime.now(UTC)
    assert timedelta(days=364) < left < timedelta(days=366)


@pytest.mark.parametrize("endpoint", ["node-1.example.org:7447", "[::1]:7447", "192.0.2.7:1"])
def test_endpoints(endpoint: str, tmp_path: Path) -> None:
    assert Identity.create("a", endpoint, tmp_path).endpoint == endpoint


@pytest.mark.parametrize(
    "endpoint", ["", "here", ":7447", "a:b", "a:0", "a:70000", "::1:7", "a:1/b"]
)
def test_wrong_endpoints(endpoint: str, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="HOST:PORT"):
        Identity.create("ana", endpoint, tmp_path)


@pytest.mark.parametrize("name", ["", "a" * 33, "a/b", "..", "a b", "é", "a\n", "a*"])
def test_wrong_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="cannot be a member's name"):
        Identity.create(name, ENDPOINT, tmp_path)
    assert not list(tmp_path.iterdir())


def test_only_the_owner_may_read_the_key(ana: Identity) -> None:
    assert ana.key_path.stat().st_mode & 0o777 == 0o600
    assert ana.key_path.parent.stat().st_mode & 0o777 == 0o700
    assert b"BEGIN PRIVATE KEY" in ana.key_path.read_bytes()
    assert "PRIVATE" not in repr(ana)
    assert sorted(p.name for p in ana.key_path.parent.iterdir()) == ["ana.crt", "ana.key"]


def test_the_key_is_never_readable_for_others(tmp_path: Path, monkeypatch) -> None:
    modes = []
    fsync = os.fsync

    def looked(file: int) -> None:
        modes.extend(p.stat().st_mode & 0o777 for p in tmp_path.iterdir() if ".key" in p.name)
        fsync(file)

    monkeypatch.setattr(os, "fsync", looked)
    Identity.create("ana", ENDPOINT, tmp_path)
    assert set(modes) == {0o600}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(mode: int, ana: Identity) -> None:
    ana.key_path.chmod(mode)
    with pytest.raises(PeerError, match=f"mode {mode:o}.*chmod 600"):
        Identity.load("ana", ana.key_path.parent)


def test_nothing_is_overwritten(ana: Identity) -> None:
    before = ana.key_path.read_bytes()
    with pytest.raises(PeerError, match="exists and is kept"):
        Identity.create("ana", ENDPOINT, ana.key_path.parent)
    assert ana.key_path.read_bytes() == before


def test_what_is_missing_is_named(ana: Identity) -> None:
    folder = ana.key_path.parent
    with pytest.raises(PeerError, match=r"no .*ben.crt.*hobnob owner new ben"):
        Identity.load("ben", folder)
    ana.key_path.unlink()
    with pytest.raises(PeerError, match=r"no .*ana.key"):
        Identity.load("ana", folder)


def test_a_key_of_another_certificate(ana: Identity, tmp_path: Path) -> None:
    other = Identity.create("ana", ENDPOINT, tmp_path / "other")
    other.key_path.replace(ana.key_path)
    with pytest.raises(PeerError, match="does not belong to its certificate"):
        Identity.load("ana", ana.key_path.parent)


def test_a_certificate_of_another_name(ana: Identity) -> None:
    for path in (ana.key_path, ana.certificate_path):
        path.rename(path.with_stem("ben"))
    with pytest.raises(PeerError, match="a certificate of ana, not of ben"):
        Identity.load("ben", ana.key_path.parent)


def test_an_expired_certificate(tmp_path: Path) -> None:
    Identity.create("ana", ENDPOINT, tmp_path, days=2 / 86400)
    time.sleep(2)
    with pytest.raises(PeerError, match="expired on"):
        Identity.load("ana", tmp_path)


def test_damaged_files(ana: Identity) -> None:
    ana.key_path.write_bytes(b"nothing")
    with pytest.raises(PeerError, match="not a key"):
        Identity.load("ana", ana.key_path.parent)
    ana.certificate_path.write_bytes(b"nothing")
    with pytest.raises(PeerError, match="not a certificate"):
        Identity.load("ana", ana.key_path.parent)


def test_signatures(ana: Identity, tmp_path: Path) -> None:
    signature = ana.sign(b"hello")
    assert verify(ana.certificate, signature, b"hello")
    assert not verify(ana.certificate, signature, b"hello!")
    assert not verify(ana.certificate, b"", b"hello")
    ben = Identity.create("ben", ENDPOINT, tmp_path / "ben")
    assert not verify(ben.certificate, signature, b"hello")


def test_an_authority(tmp_path: Path) -> None:
    authority = create_authority("clinics", tmp_path / "ca")
    ana = Identity.create("ana", ENDPOINT, tmp_path / "keys", authority=authority)
    assert verify(ana.certificate, ana.sign(b"hello"), b"hello")
    assert authority[1].stat().st_mode & 0o777 == 0o600
    with pytest.raises(PeerError, match="does not belong to its certificate"):
        Identity.create("ben", ENDPOINT, tmp_path, authority=(ana.certificate, authority[1]))
