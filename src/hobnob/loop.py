"""The loop of a run: chunks of steps on the device; records, checkpoints and questions between."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hobnob.errors import DivergenceError, ProblemError
from hobnob.interrupt import Interrupt
from hobnob.pooled import affordable, curvature
from hobnob.progress import Progress
from hobnob.record.checkpoint import Checkpoint
from hobnob.record.recorder import Measured, Recorder
from hobnob.record.store import Store

# How long the device runs before the host looks at Ctrl-C and the clock. A start is not free: XLA
# gets fresh memory for every chunk, which at a million parameters takes as long as a step or two.
CHUNK_SECONDS = 1
# How long a chunk must be for the host to do other things meanwhile and still tell its time.
AHEAD_SECONDS = 0.01


class Loop:
    """Chunks of steps on the device; records, checkpoints and questions between them.

    States are as the runner holds them.
    """

    def __init__(
        self,
        run: Any,
        recorder: Recorder,
        store: Store,
        identity: dict[str, str],
        record_every: int,
        steps: int,
        tolerance: float | None,
        callback: Callable[[Any, Any], Any] | None,
    ):
        self.runner, self.recorder, self.store = run, recorder, store
        self.identity, self.record_every, self.steps = identity, record_every, steps
        self.tolerance, self.callback = tolerance, callback
        self.compile_seconds = 0.0
        self._keeps = run.told(lambda: store.keeps)
        # Where nobody acts on a row, the host reads it while the next steps run.
        self._ahead = run.alone and tolerance is None and callback is None and not recorder.users
        self._gathered: Any = None  # the state that was recorded last, of all agents

    def run(
        self, state: Any, start: int, seconds: float, interrupt: Interrupt, bar: Progress
    ) -> tuple[Any, int, str]:
        """(state, step, status) at the end."""
        clock = time.perf_counter()
        if self.callback is None:  # who could keep a state
            self.runner.overwrite_large(state)
        state = self.runner.advance(state, start, start).state  # no steps: only compiles
        self.compile_seconds = self.runner.told(lambda: time.perf_counter() - clock)
        step, chunk, status, rate = start, 1, "", float("inf")
        if not self.recorder.rows:
            row = self._record(0, state, seconds)
            self._check_losses(row)
            status = self._verdict(row)
            if status:
                self._save(state, 0, seconds)
        elif self._ahead:  # a run that goes on: compiled here, or the first chunk would wait for it
            self.recorder.measure(self.runner.gathered(state))
        while not status:
            # Everything that depends on the clock, on files or on signals is told to all.
            stop = self.runner.told(lambda: self._next_stop(step, chunk))  # noqa: B023
            ahead = self._ahead and stop - step > rate * AHEAD_SECONDS and self._is_recorded(stop)
            new, measured, took = self._advance(state, step, stop, ahead)
            rate = (stop - step) / took
            state, step, seconds = new.state, stop, seconds + took
            chunk = max(1, min(2 * chunk, int(rate * CHUNK_SECONDS)))
            if measured is not None:
                self.recorder.record_later(step, seconds, measured)
            elif self._is_recorded(step):
                status = self._verdict(self._record(step, state, seconds))
            stopped, due = self.runner.told(lambda: (interrupt.requested, self.store.due(step)))  # noqa: B023
            if step == self.steps:
                status = status or self._status_at_end()
            elif stopped:
                status = status or "interrupted"
            if status and not self.recorder.has(step):
                self._record(step, state, seconds)
            if status or due:
                self._save(state, step, seconds)
            bar.update(step, rate, self.recorder.rows[-1])
        return state, step, status

    def _advance(
        self, state: Any, step: int, stop: int, ahead: bool
    ) -> tuple[Any, Measured | None, float]:
        """The next chunk, what is measured at its end if that is to be read later, and its time."""
        if not ahead:
            self.recorder.catch_up()
        clock, measured = time.perf_counter(), None
        new = self.runner.advance(state, step, stop)
        if ahead:  # what the host has to do, while the device is busy
            clock = max(clock, self.recorder.wait())
            measured = self.recorder.measure(self.runner.gathered(new.state))
            self.recorder.catch_up()
        if not new.finite:
            self._diverged(None if self.runner.overwrites else state, step, new)
        return new, measured, max(time.perf_counter() - clock, 1e-9)

    def _check_losses(self, row: dict[str, np.ndarray]) -> None:
        for name in ("outer_loss", "inner_loss"):
            if name in row and not np.isfinite(row[name]).all():
                raise ProblemError(
                    f"The {name.replace('_', ' ')} at the starting point is {row[name]}: nothing "
                    f"that is measured would be a number. Start where it is finite."
                )

    def _record(self, step: int, state: Any, seconds: float) -> dict[str, np.ndarray]:
        self._gathered = self.runner.gathered(state)
        return self.recorder.record(step, state, seconds, self._gathered)

    def settled(self, state: Any, step: int, seconds: float) -> str:
        """How a restored run had ended already, if it had."""
        recorded = self.recorder.rows and self.recorder.rows[-1]["step"] == step
        if step == self.steps and not recorded:
            recorded = self._record(step, state, seconds)
        if recorded and self._converged(self.recorder.rows[-1]):
            return "converged"
        return self._status_at_end() if step == self.steps else ""

    def _status_at_end(self) -> str:
        return "finished" if self.tolerance is None else "not converged"

    def _converged(self, row: dict[str, np.ndarray]) -> bool:
        return self.tolerance is not None and bool((row["gradient_norm"] <= self.tolerance).all())

    def _is_recorded(self, step: int) -> bool:
        return step == self._next_record(step - 1)

    def _next_record(self, step: int) -> int:
        return min((step // self.record_every + 1) * self.record_every, self.steps)

    def _next_stop(self, step: int, chunk: int) -> int:
        return min(self._next_record(step), self.store.next_save(step), step + chunk)

    def _verdict(self, row: dict[str, np.ndarray]) -> str:
        """Whether a recorded row ends the run, and how."""
        if self._converged(row):
            return "converged"
        self.runner.latest, ask = row, self.callback
        gathered, self._gathered = self._gathered, None  # not held while the next steps run
        if ask is None:
            return ""
        opened = self.runner.layout.opened
        stopped = self.runner.told(lambda: bool(ask(self.runner, opened(gathered))))
        return "interrupted" if stopped else ""

    def _save(self, state: Any, step: int, seconds: float) -> None:
        if not self._keeps:
            return
        whole = self.runner.whole(state)

        def save() -> None:
            arrays = {name: np.asarray(value) for name, value in whole._asdict().items()}
            history = self.recorder.history()
            self.store.save(Checkpoint(step, seconds, self.identity, arrays, history))

        self.runner.told(save)

    def _diverged(self, state: Any, start: int, end: Any) -> None:
        """Replay the chunk step by step to find where it went wrong, and raise.

        Where the state it began with is gone, the end is what there is: x and y were looked at
        after every step, so the step is right, and another variable may have gone wrong just
        before them.
        """
        step, new = int(end.step) - 1, end
        if state is not None:
            step, new = start, self.runner.advance(state, start, start + 1)
            while new.finite and step < int(end.step):
                step += 1
                new = self.runner.advance(new.state, step, step + 1)
        whole = self.runner.whole(new.state)
        self.runner.told(lambda: self._explain_divergence(whole, step))

    def _explain_divergence(self, state: Any, step: int) -> None:
        variable, agent = _first_bad(state, self.runner.many_seeds)
        raise DivergenceError(
            f"The run diverged at step {step + 1}: agent {agent}, variable {variable}. "
            f"{self._clues(step)}{self.store.how_to_recover()}",
            step=step + 1,
            agent=agent,
            variable=variable,
            history=self.recorder.history(),
        )

    def _clues(self, step: int) -> str:
        problem = self.runner.problem
        if not affordable(problem):
            return ""
        # Just before the end everything is too large to tell anything: look where the last row
        # was recorded, or else at the start.
        largest = next(
            at.largest
            for at in (curvature(problem, *self.recorder.seen_at), curvature(problem))
            if at.largest > 0
        )
        return self.runner.algorithm.explain_divergence(step, largest) + " "


def _first_bad(state: Any, many_seeds: bool) -> tuple[str, int]:
    """The first variable that is not finite, and the first agent whose it is."""
    for name, leaf in state._asdict().items():
        bad = ~np.isfinite(np.asarray(leaf))
        if bad.any():
            agents = bad.reshape(*bad.shape[: 1 + many_seeds], -1).any(axis=-1)
            return name, int(np.argmax(agents.any(axis=0) if many_seeds else agents))
    raise AssertionError("a replay found nothing that is not finite")
