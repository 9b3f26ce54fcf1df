"""Store: a run's folder of checkpoints, and when the next one is due."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import Literal

from hobnob.errors import CheckpointError, SettingError
from hobnob.record.checkpoint import FILE, Checkpoint, check_same_run, load, save

Resume = bool | Literal["retune"]
TUNABLE = "hyper-parameter "  # how the parts of a run's identity begin that "retune" may change


class Store:
    """The folder of a run's checkpoints, if it has one, and when the next is due."""

    def __init__(
        self,
        folder: str | Path | None,
        every: int | None,
        seconds: float | None,
        resume: Resume,
    ):
        if resume and folder is None:
            raise SettingError("resume needs checkpoint=DIR, the folder to go on from.")
        if resume not in (True, False, "retune"):
            raise SettingError(f'resume = {resume!r} must be True, False or "retune".')
        if every is not None and every < 1:
            raise SettingError(f"checkpoint_every = {every} must be at least 1.")
        self._folder = None if folder is None else _writable(Path(folder))
        self._every, self._seconds, self._resume = every, seconds, resume
        self._last_time = time.monotonic()
        self._last_step: int | None = None

    @property
    def keeps(self) -> bool:
        """Whether anything is saved at all."""
        return self._folder is not None

    def find(self) -> Checkpoint | None:
        """The checkpoint to resume from. One that a new run would overwrite is put aside."""
        if self._folder is None:
            return None
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
        assert self._folder is not None
        retune = self._resume == "retune"
        may_differ = frozenset(name for name in identity if retune and name.startswith(TUNABLE))
        check_same_run(found, identity, self._folder, may_differ)

    def next_save(self, step: int) -> int:
        if self._folder is None or self._every is None:
            return sys.maxsize
        return (step // self._every + 1) * self._every

    def due(self, step: int) -> bool:
        if self._folder is None:
            return False
        by_step = self._every is not None and step % self._every == 0
        waited = time.monotonic() - self._last_time
        return by_step or (self._seconds is not None and waited >= self._seconds)

    def save(self, checkpoint: Checkpoint) -> None:
        if self._folder is None or self._last_step == checkpoint.step:
            return
        save(self._folder, checkpoint)
        self._last_time, self._last_step = time.monotonic(), checkpoint.step

    def how_to_go_on(self) -> str:
        """For a run that was stopped."""
        if self._folder is None:
            return "There is no checkpoint: give checkpoint=DIR to be able to go on."
        return f"Go on with checkpoint={str(self._folder)!r} and resume=True."

    def how_to_recover(self) -> str:
        """For a run that diverged."""
        if self._folder is None or self._last_step is None:
            return "Use smaller step sizes."
        return (
            f"The checkpoint of step {self._last_step} in {self._folder} is good: go on from it "
            f'with resume="retune" and smaller step sizes.'
        )


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
