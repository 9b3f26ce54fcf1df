"""Who a member is: a key that never leaves its folder, and a certificate that everyone may see.

The certificate carries the member's name, and its endpoint HOST:PORT, so that a federation file can
be made from certificates alone. Members sign with the key; others verify with the certificate. It
is signed by its own key, or by an authority that the members share.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hobnob.ground.errors import PeerError
from hobnob.ground.files import write_whole

_SKEW = timedelta(minutes=10)  # how far another machine's clock may lag behind
_SHA256 = hashes.SHA256()

Authority = tuple[str, Path]  # its certificate (PEM) and the path of its key


@dataclass(frozen=True)
class Identity:
    """A member's name, endpoint, certificate and key.

    The key stays in `key_path`; `sign` is the only way to use it from here.
    """

    name: str
    endpoint: str
    certificate: str  # PEM
    certificate_path: Path
    key_path: Path
    _key: ec.EllipticCurvePrivateKey = field(repr=False, compare=False)

    @classmethod
    def create(
        cls,
        name: str,
        endpoint: str,
        folder: Path,
        days: float = 365,
        authority: Authority | None = None,
    ) -> Identity:
        """Make NAME.key (readable by the owner alone) and NAME.crt, and keep what is there."""
        check_name(name)
        host, port = split_endpoint(endpoint)
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            place: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            place = x509.DNSName(host)
        where = x509.UniformResourceIdentifier(f"hobnob://{join_endpoint(host, port)}")
        builder = _builder(name, key, days).add_extension(
            x509.SubjectAlternativeName([place, where]), critical=False
        )
        builder = builder.add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        ).add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        if authority is None:
            signed = builder.issuer_name(_subject(name)).sign(key, _SHA256)
        else:
            issuer = _certificate(authority[0])
            issuer_key = _read_key(Path(authority[1]))
            _check_pair(issuer_key, issuer, str(authority[1]))
            signed = builder.issuer_name(issuer.subject).sign(issuer_key, _SHA256)
        _write_pair(name, folder, key, signed)
        return cls.load(name, folder)

    @classmethod
    def load(cls, name: str, folder: Path) -> Identity:
        """Read NAME.key and NAME.crt, and check that they can be used."""
        check_name(name)
        certificate_path, key_path = _paths(name, folder)
        for path in (certificate_path, key_path):
            if not path.is_file():
                raise PeerError(
                    f"There is no {path}, so nobody can speak as {name}. Name the folder that "
                    f"holds it, or make it: "
                    f"hobnob owner new {name} --endpoint HOST:PORT --out {folder}"
                )
        pem = certificate_path.read_text()
        certificate, key = _certificate(pem), _read_key(key_path)
        _check_pair(key, certificate, str(key_path))
        if name_of(pem) != name:
            raise PeerError(
                f"{certificate_path} is a certificate of {name_of(pem)}, not of {name}."
            )
        if expires(pem) <= datetime.now(UTC):
            raise PeerError(
                f"{certificate_path} expired on {expires(pem):%Y-%m-%d %H:%M} UTC, so every "
                f"neighbour would refuse it. Make a new one and give it to the other members."
            )
        return cls(name, endpoint_of(pem), pem, certificate_path, key_path, key)

    def sign(self, message: bytes) -> bytes:
        """ECDSA over SHA-256. `verify` checks it with the certificate."""
        return self._key.sign(message, ec.ECDSA(_SHA256))


def create_authority(name: str, folder: Path, days: float = 3650) -> Authority:
    """Make an authority's NAME.key and NAME.crt, for `Identity.create(..., authority=)`."""
    check_name(name)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, key, days).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    _write_pair(name, folder, key, builder.issuer_name(_subject(name)).sign(key, _SHA256))
    certificate_path, key_path = _paths(name, folder)
    return certificate_path.read_text(), key_path


def verify(certificate_pem: str, signature: bytes, message: bytes) -> bool:
    """Whether the holder of the certificate's key signed the message."""
    key = _certificate(certificate_pem).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise PeerError("The certificate's key is not an elliptic one, as hobnob's are.")
    try:
        key.verify(signature, message, ec.ECDSA(_SHA256))
    except InvalidSignature:
        return False
    return True


def fingerprint(certificate_pem: str) -> str:
    """SHA-256 of the certificate, in hexadecimal digits. No two certificates share one."""
    return _certificate(certificate_pem).fingerprint(_SHA256).hex()


def name_of(certificate_pem: str) -> str:
    """The member's name, which is the certificate's common name."""
    names = _certificate(certificate_pem).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise PeerError(f"A certificate must have one common name, and this one has {len(names)}.")
    return check_name(str(names[0].value))


def endpoint_of(certificate_pem: str) -> str:
    """HOST:PORT, where the member listens."""
    try:
        places = _certificate(certificate_pem).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        uris = places.value.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    for uri in uris:
        if uri.startswith("hobnob://"):
            return join_endpoint(*split_endpoint(uri.removeprefix("hobnob://")))
    raise PeerError(
        "The certificate does not say where its owner listens (hobnob://HOST:PORT among its "
        "alternative names). Make it with: hobnob owner new NAME --endpoint HOST:PORT --out FOLDER"
    )


def expires(certificate_pem: str) -> datetime:
    """When the certificate stops being valid, in UTC."""
    return _certificate(certificate_pem).not_valid_after_utc


def check_name(name: str) -> str:
    """A member's name is part of file names and addresses, so it must be plain."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", name):
        raise PeerError(
            f"{name!r} cannot be a member's name: use 1 to 32 letters, digits, - and _ (a to z "
            f"without accents)."
        )
    return name


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """("host", 7447) of "host:7447". An IPv6 address stands in brackets: "[::1]:7447"."""
    try:
        parts = urlsplit(f"//{endpoint}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or endpoint.lower() != join_endpoint(host, port):
        raise PeerError(f"{endpoint!r} is not an endpoint: write HOST:PORT, as in 192.0.2.7:7447.")
    return host, port


def join_endpoint(host: str, port: int) -> str:
    """HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(name: str, key: ec.EllipticCurvePrivateKey, days: float) -> x509.CertificateBuilder:
    if not days > 0:
        raise PeerError(f"A certificate cannot be valid for {days} days: give a positive number.")
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _paths(name: str, folder: Path) -> tuple[Path, Path]:
    return Path(folder) / f"{name}.crt", Path(folder) / f"{name}.key"


def _write_pair(
    name: str, folder: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> None:
    certificate_path, key_path = _paths(name, folder)
    for path in (certificate_path, key_path):
        if path.exists():
            raise PeerError(f"{path} exists and is kept. Choose another folder, or move it away.")
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # Not write_whole: the key must not be readable for others at any moment.
    beside = key_path.with_name(f".{key_path.name}.{os.getpid()}.part")
    with open(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(key_path)
    write_whole(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        mode = path.stat().st_mode & 0o777
        content = path.read_bytes()
    except OSError as error:
        raise PeerError(f"The key {path} cannot be read: {error.strerror}.") from error
    if mode & 0o077:
        raise PeerError(
            f"The key {path} has mode {mode:o}: others on this machine may read it, and could "
            f"speak in its owner's name. If nobody has, chmod 600 {path}; otherwise make a new one."
        )
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError) as error:
        raise PeerError(f"{path} is not a key without a password in PEM: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PeerError(f"{path} is not an elliptic key, as hobnob owner new makes them.")
    return key


def _certificate(pem: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError as error:
        raise PeerError(f"This is not a certificate in PEM: {error}.") from error


def _check_pair(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, path: str) -> None:
    if key.public_key() != certificate.public_key():
        raise PeerError(f"The key {path} does not belong to its certificate.")
