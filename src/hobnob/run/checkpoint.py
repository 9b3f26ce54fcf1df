"""Checkpoints: a run's state and history in one file that is whole or refused.

The file is a line that names the format, a line with the SHA-256 of the rest, and an npz archive
(no pickle) of the arrays, with the facts about the run as JSON in one of them.
"""

from __future__ import annotations

import io
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hobnob.ground.errors import CheckpointError
from hobnob.ground.files import write_whole
from hobnob.ground.versions import of_numbers

FILE = "checkpoint.hobnob"
_FORMAT = b"hobnob checkpoint 1"
_FACTS = "facts.json"


class Checkpoint(NamedTuple):
    """`identity` says part by part which run this is; state and history are by name."""

    step: int
    seconds: float
    identity: dict[str, str]
    state: dict[str, np.ndarray]
    history: dict[str, np.ndarray]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    facts = {
        "step": checkpoint.step,
        "seconds": checkpoint.seconds,
        "identity": checkpoint.identity,
        "versions": of_numbers(),
    }
    arrays = {
        _FACTS: np.frombuffer(json.dumps(facts).encode(), np.uint8),
        **{f"state/{name}": value for name, value in checkpoint.state.items()},
        **{f"history/{name}": value for name, value in checkpoint.history.items()},
    }
    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, **arrays)
    content = archive.getvalue()
    digest = sha256(content).hexdigest().encode()
    try:
        write_whole(folder / FILE, b"\n".join((_FORMAT, digest, content)))
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint of step {checkpoint.step} could not be written to {folder}: "
            f"{error.strerror}. The one before it, if there was one, is untouched."
        ) from error


def load(folder: Path) -> Checkpoint:
    path = folder / FILE
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    head, _, rest = content.partition(b"\n")
    if head != _FORMAT:
        known = head.startswith(b"hobnob checkpoint ")
        raise CheckpointError(
            f"{path} is in the format {head[:40].decode(errors='replace')!r}, this version reads "
            f"{_FORMAT.decode()!r}. Resume with the version that wrote it, or start anew."
            if known
            else f"{path} is not a hobnob checkpoint."
        )
    digest, _, archive = rest.partition(b"\n")
    if sha256(archive).hexdigest().encode() != digest:
        raise CheckpointError(
            f"{path} is torn or was changed: its content does not match its checksum. Start anew, "
            f"or put back a copy."
        )
    try:
        checkpoint, versions = _unpacked(archive)
    except Exception as error:  # whatever NumPy and zipfile make of a file that is not ours
        raise CheckpointError(
            f"{path} does not hold what a checkpoint holds ({error}), with a right checksum: "
            f"hobnob did not write it. Start anew, or put back a copy."
        ) from error
    _check_versions(versions, path)
    return checkpoint


def _unpacked(archive: bytes) -> tuple[Checkpoint, dict[str, str]]:
    with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
        facts: dict[str, Any] = json.loads(arrays[_FACTS].tobytes())
        parts = {
            kind: {
                name.removeprefix(kind): arrays[name] for name in arrays if name.startswith(kind)
            }
            for kind in ("state/", "history/")
        }
    checkpoint = Checkpoint(
        facts["step"], facts["seconds"], facts["identity"], parts["state/"], parts["history/"]
    )
    return checkpoint, dict(facts["versions"])


def _check_versions(then: dict[str, str], path: Path) -> None:
    """Other versions may round or draw differently, so nothing would be bit for bit the same."""
    changed = {name: now for name, now in of_numbers().items() if then.get(name) != now}
    if changed:
        raise CheckpointError(
            f"{path} was written by {_listed({n: then.get(n, '?') for n in changed})}; this is "
            f"{_listed(changed)}. The same numbers are not certain any more. Install the versions "
            f"that wrote it, or start anew in another folder."
        )


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def check_same_run(
    found: Checkpoint,
    identity: dict[str, str],
    folder: Path,
    may_differ: frozenset[str] = frozenset(),
) -> None:
    """Refuse a checkpoint that this run cannot continue bit for bit, and say why."""
    parts = [n for n in {**found.identity, **identity} if n not in may_differ]
    differing = [n for n in parts if found.identity.get(n) != identity.get(n)]
    if differing:
        words = "; ".join(_difference(n, found.identity.get(n), identity.get(n)) for n in differing)
        raise CheckpointError(
            f"The checkpoint in {folder} (step {found.step}) belongs to another run: {words}. "
            f"Resume with what it was started with, or start anew in another folder."
        )


def _difference(name: str, then: str | None, now: str | None) -> str:
    digest = any(re.fullmatch("[0-9a-f]{64}", value or "") for value in (then, now))
    one_sided = name == "inner problem"  # a common one is not named
    return f"not the same {name}" if digest or one_sided else f"{name} was {then}, is {now}"
