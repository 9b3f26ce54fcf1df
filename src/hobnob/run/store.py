"""Store: the folder of a run's checkpoints."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import Literal

from hobnob.ground.errors import CheckpointError, SettingError
from hobnob.run.checkpoint import FILE, Checkpoint, check_same_run, load, save
from hobnob.run.identity import TUNABLE
from hobnob.run.observers import Ending, Observer

Resume = bool | Literal["retune"]


class Store(Observer):
    """Saves a run to its folder while it goes, and at its end."""

    keeps_checkpoints = True

    def __init__(
        self, folder: str | Path, every: int | None, seconds: float | None, resume: Resume
    ):
        self._folder = _writable(Path(folder))
        self._every, self._seconds, self._resume = every, seconds, resume
        self._last_time = time.monotonic()
        self._last_step: int | None = None

    def find(self) -> Checkpoint | None:
        """The checkpoint to resume from. One that a new run would overwrite is put aside."""
        path = self._folder / FILE
        if not path.exists():
            return None
        if not self._resume:
            path.replace(path.with_suffix(".previous"))
            return None
        found = load(self._folder)
        self._last_step = found.step
        return found

    def check(self, found: Checkpoint, identity: dict[str, str]) -> None:
        retune = self._resume == "retune"
        may_differ = frozenset(name for name in identity if retune and name.startswith(TUNABLE))
        check_same_run(found, identity, self._folder, may_differ)

    def next_step(self, step: int) -> int:
        return sys.maxsize if self._every is None else (step // self._every + 1) * self._every

    def wants_checkpoint(self, step: int) -> bool:
        by_step = self._every is not None and step % self._every == 0
        waited = time.monotonic() - self._last_time
        return by_step or (self._seconds is not None and waited >= self._seconds)

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        if self._last_step == checkpoint.step:
            return
        save(self._folder, checkpoint)
        self._last_time, self._last_step = time.monotonic(), checkpoint.step

    def advice(self, ending: Ending) -> str:
        if ending == "interrupted":
            return f"Go on with checkpoint={str(self._folder)!r} and resume=True."
        if self._last_step is None:
            return ""
        return (
            f"The checkpoint of step {self._last_step} in {self._folder} is good: go on from it "
            f'with resume="retune" and smaller step sizes.'
        )


def check_options(folder: object, every: int | None, resume: object) -> None:
    """Refuse options that make no sense together."""
    if resume and folder is None:
        raise SettingError("resume needs checkpoint=DIR, the folder to go on from.")
    if resume not in (True, False, "retune"):
        raise SettingError(f'resume = {resume!r} must be True, False or "retune".')
    if every is not None and every < 1:
        raise SettingError(f"checkpoint_every = {every} must be at least 1.")


def _writable(folder: Path) -> Path:
    """Better now than after an hour of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise CheckpointError(
            f"Checkpoints cannot be written to {folder}: {error.strerror}. Choose another folder."
        ) from error
