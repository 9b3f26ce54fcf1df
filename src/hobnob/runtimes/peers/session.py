"""Session: two members prove who they are, and from then on tag every frame.

TLS lets any holder of an accepted certificate speak. A session binds each frame to a member's name:
both send a hello with a fresh X25519 key, sign both hellos with the keys that the federation file
pins, and derive a key for each direction. A tag is AES-GCM's, over a frame that is not encrypted
again, with the frame's counter as the nonce; so a frame that is altered, replayed or out of order
shows.
"""

from __future__ import annotations

from hashlib import sha256
from secrets import token_bytes

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hobnob.runtimes.peers.certificates import Identity, verify
from hobnob.runtimes.peers.frames import HEAD, TAG, Head, Refusal, write_head

_KEY = 32  # bytes, of a public key and of a session's key
HELLO = _KEY + 16  # bytes: the public key and a nonce


class Handshake:
    """This side of a handshake with one neighbour. Each is used for one session at most."""

    def __init__(self, identity: Identity, run: bytes, me: int, them: int):
        self._identity, self._run, self._me, self._them = identity, run, me, them
        self._private = X25519PrivateKey.generate()
        self.hello = self._private.public_key().public_bytes_raw() + token_bytes(16)

    def proof(self, theirs: bytes) -> bytes:
        """The signature that shows that this hello is the member's, and an answer to theirs."""
        return self._identity.sign(self._said(self._me, self.hello, theirs))

    def session(self, theirs: bytes, proof: bytes, certificate: str) -> Session:
        """The session with the member that has this certificate, if its proof is right."""
        if not verify(certificate, proof, self._said(self._them, theirs, self.hello)):
            raise Refusal("a proof that is not the member's")
        secret = self._private.exchange(X25519PublicKey.from_public_bytes(theirs[:_KEY]))
        salt = sha256(b"".join(sorted((self.hello, theirs)))).digest()

        def key(sender: int) -> bytes:
            info = b"hobnob frames 1" + self._run + sender.to_bytes(2, "little")
            return HKDF(hashes.SHA256(), _KEY, salt, info).derive(secret)

        return Session(key(self._me), key(self._them))

    def _said(self, speaker: int, own: bytes, other: bytes) -> bytes:
        listener = self._me if speaker == self._them else self._them
        names = speaker.to_bytes(2, "little") + listener.to_bytes(2, "little")
        return b"hobnob proof 1" + self._run + names + own + other


class Session:
    """Tags frames that go out, and checks those that come in. Both are counted from 0."""

    def __init__(self, sending: bytes, receiving: bytes):
        self._sending, self._receiving = AESGCM(sending), AESGCM(receiving)
        self._sent = self._received = 0

    def seal(self, frame: bytearray, head: Head) -> bytearray:
        """Write head and tag around the payload that the frame holds already."""
        write_head(frame, head._replace(counter=self._sent))
        body = memoryview(frame)[:-TAG]
        frame[-TAG:] = self._sending.encrypt(_nonce(self._sent), b"", body)
        self._sent += 1
        return frame

    def check(self, frame: bytes, head: Head) -> None:
        """Raise a `Refusal` unless this is the next frame, as the neighbour tagged it."""
        if head.counter < self._received:
            raise Refusal("replayed")
        if head.counter > self._received:
            raise Refusal("out of order")
        view = memoryview(frame)
        try:
            self._receiving.decrypt(_nonce(head.counter), bytes(view[-TAG:]), view[:-TAG])
        except InvalidTag as error:
            raise Refusal("forged or altered") from error
        self._received += 1


def empty_frame(size: int) -> bytearray:
    """Room for a head, a payload of so many bytes and a tag."""
    return bytearray(HEAD + size + TAG)


def _nonce(counter: int) -> bytes:
    return counter.to_bytes(12, "little")
