"""Observers: who is told of a run while it goes. The loop knows none of them by name.

In a run of several processes only the leader has observers; what they decide holds for all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from hobnob.core.setup import Tree

if TYPE_CHECKING:
    from hobnob.run.checkpoint import Checkpoint
    from hobnob.run.run import Run

Ending = Literal["interrupted", "diverged"]
Row = dict[str, np.ndarray]

_NO_ADVICE = {
    "interrupted": "There is no checkpoint: give checkpoint=DIR to be able to go on.",
    "diverged": "Use smaller step sizes.",
}


class Moment(NamedTuple):
    """A recorded step: the run, its row, and the state of all agents if an observer wants it."""

    run: Run
    row: Row
    state: Tree | None


class Observer:
    """Told of a run. A subclass overrides what it is about; the rest does nothing."""

    #: True if `row` looks at the state of all agents.
    wants_state: bool = False
    #: True if `checkpoint` does something: then the end of the run is saved too.
    keeps_checkpoints: bool = False

    def start(self, step: int, steps: int) -> None:
        """The run begins at `step` and is to end at `steps`."""

    def next_step(self, step: int) -> int:
        """The next step at which the loop must stop to ask this observer."""
        return sys.maxsize

    def row(self, moment: Moment) -> bool:
        """A row was recorded. True ends the run."""
        return False

    def chunk(self, step: int, rate: float, row: Row) -> None:
        """A chunk of steps is done, at so many steps a second; `row` was recorded last."""

    def wants_checkpoint(self, step: int) -> bool:
        """True if a checkpoint is due now."""
        return False

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """All that is needed to go on from here."""

    def advice(self, ending: Ending) -> str:
        """What the user can do now, in a sentence."""
        return ""

    def end(self) -> None:
        """The run is over, however it ended."""


class Callback(Observer):
    """The user's function of (run, state)."""

    wants_state = True

    def __init__(self, ask: Callable[[Any, Any], Any]):
        self._ask = ask

    def row(self, moment: Moment) -> bool:
        return bool(self._ask(moment.run, moment.state))


class Observers(Observer):
    """Several observers as one."""

    def __init__(self, each: Sequence[Observer]):
        self._each = each
        self.wants_state = any(observer.wants_state for observer in each)
        self.keeps_checkpoints = any(observer.keeps_checkpoints for observer in each)

    def start(self, step: int, steps: int) -> None:
        for observer in self._each:
            observer.start(step, steps)

    def next_step(self, step: int) -> int:
        return min((observer.next_step(step) for observer in self._each), default=sys.maxsize)

    def row(self, moment: Moment) -> bool:
        asked = [observer.row(moment) for observer in self._each]  # all of them are told
        return any(asked)

    def chunk(self, step: int, rate: float, row: Row) -> None:
        for observer in self._each:
            observer.chunk(step, rate, row)

    def wants_checkpoint(self, step: int) -> bool:
        return any(observer.wants_checkpoint(step) for observer in self._each)

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        for observer in self._each:
            observer.checkpoint(checkpoint)

    def advice(self, ending: Ending) -> str:
        given = (observer.advice(ending) for observer in self._each)
        return next(filter(None, given), _NO_ADVICE[ending])

    def end(self) -> None:
        for observer in self._each:
            observer.end()
