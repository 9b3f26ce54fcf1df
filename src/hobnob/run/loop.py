"""Loop: chunks of steps on the device; records, checkpoints and questions between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from hobnob.analysis.exact import affordable, curvature
from hobnob.core.setup import Tree
from hobnob.ground.errors import DivergenceError, ProblemError
from hobnob.run.checkpoint import Checkpoint
from hobnob.run.observers import Moment, Observers, Row
from hobnob.run.recorder import Recorder
from hobnob.run.run import Advance, Run

# How long the device runs before the host looks at Ctrl-C and the clock. A shorter chunk costs:
# XLA gets fresh memory for each, which at a million parameters takes as long as a step or two.
CHUNK_SECONDS = 1


class Plan(NamedTuple):
    """How far a run goes. `identity` says which run a checkpoint belongs to.

    `hopeless` is asked at every row, with the history so far; True ends the run as "stalled".
    """

    steps: int
    record_every: int
    tolerance: float | None
    identity: dict[str, str]
    hopeless: Callable[[dict[str, np.ndarray]], bool] | None = None


class End(NamedTuple):
    state: Tree
    step: int
    status: str


class Loop:
    """Makes the steps of a run and tells its observers. States are packed."""

    def __init__(self, run: Run, recorder: Recorder, observers: Observers, plan: Plan):
        self.run, self.recorder, self.plan = run, recorder, plan
        self._observers = observers
        # Other processes have no observers: they hear what the leader's want.
        self._from_leader, self._owners = run.group.from_leader, run.group.owners
        self._keeps, self._shows_state = self._from_leader(
            lambda: (observers.keeps_checkpoints, observers.wants_state)
        )
        self.compile_seconds = 0.0

    @contextmanager
    def observed(self, start: int) -> Iterator[None]:
        """Inside it, observers follow the run."""
        self._observers.start(start, self.plan.steps)
        try:
            yield
        finally:
            self._observers.end()

    def go(self, state: Tree, start: int, seconds: float, interrupted: Callable[[], bool]) -> End:
        """All steps from `start` on; `seconds` is what earlier ones took."""
        clock = time.perf_counter()
        if not self._shows_state:  # nobody could keep a state
            self.run.overwrite_large(state)
        state = self.run.advance(state, start, start).state  # no steps: only compiles
        self.compile_seconds = self._from_leader(lambda: time.perf_counter() - clock)
        step, chunk, status = start, 1, ""
        if not self.recorder.rows:
            status = self._record(0, state, seconds)
            if status:
                self._save(state, 0, seconds)
        if self._owners is not None and not status:
            step = self._owners.begin(step)
        while not status:
            # What depends on the clock, on files or on signals is decided by the leader.
            stop = self._from_leader(lambda: self._next_stop(step, chunk))  # noqa: B023
            before = step
            state, step, took = self._advance(state, step, stop)
            rate, seconds = (step - before) / took, seconds + took
            chunk = max(1, min(2 * chunk, int(rate * CHUNK_SECONDS)))
            if step == self._next_record(step - 1):
                status = self._record(step, state, seconds)
            stopped, due = self._from_leader(
                lambda: (interrupted(), self._observers.wants_checkpoint(step))  # noqa: B023
            )
            if step == self.plan.steps:
                status = status or self._status_at_end()
            elif stopped or self._agreed_to_stop(step):
                status = status or "interrupted"
            if status and self._owners is not None:  # what is recorded from here on is its own
                self._owners.end(finished=step == self.plan.steps or self._agreed_to_stop(step))
            if status and not self._has_row(step):
                self._record(step, state, seconds)
            if status or due:
                self._save(state, step, seconds)
            self._observers.chunk(step, rate, self.recorder.rows[-1])
        return End(state, step, status)

    def end_of(self, state: Tree, step: int, seconds: float) -> End | None:
        """How a restored run had ended already, if it had."""
        if step == self.plan.steps and not self._has_row(step):
            self._record(step, state, seconds)
        if self._has_row(step) and (status := self._judge(self.recorder.rows[-1])):
            return End(state, step, status)
        return End(state, step, self._status_at_end()) if step == self.plan.steps else None

    def advice(self, status: str) -> str:
        """What the user can do after an interrupted run; "" after any other."""
        if status != "interrupted":
            return ""
        return self._from_leader(lambda: self._observers.advice("interrupted"))

    # --- one chunk -----------------------------------------------------------------------------

    def _next_stop(self, step: int, chunk: int) -> int:
        asked = self._observers.next_step(step)
        return min(self._next_record(step), asked, step + chunk)

    def _next_record(self, step: int) -> int:
        every = self.plan.record_every
        return min((step // every + 1) * every, self.plan.steps)

    def _advance(self, state: Tree, step: int, stop: int) -> tuple[Tree, int, float]:
        """The state at `stop`, or at another step that owners agreed on, and how long it took."""
        clock = time.perf_counter()
        new = self.run.advance(state, step, stop)
        if not new.finite:  # waits for the device
            repeatable = not self.run.overwrites and self._owners is None
            self._diverged(state if repeatable else None, step, new)
        return new.state, int(new.step), max(time.perf_counter() - clock, 1e-9)

    def _agreed_to_stop(self, step: int) -> bool:
        return self._owners is not None and self._owners.over(step)

    def _record(self, step: int, state: Tree, seconds: float) -> str:
        """A row, told to the observers. Returns how it ends the run, or ""."""
        gathered = self.run.gather(state)
        row = self.recorder.record(step, state, seconds, gathered)
        self.run.latest = row
        if step == 0:
            self._check_losses(row)
        if status := self._judge(row):
            return status

        def told() -> bool:
            shown = self.run.layout.unpack(gathered) if self._shows_state else None
            return self._observers.row(Moment(self.run, row, shown))

        return "interrupted" if self._from_leader(told) else ""

    def _save(self, state: Tree, step: int, seconds: float) -> None:
        if not self._keeps:
            return
        gathered = self.run.gather_unpacked(state)

        def save() -> None:
            assert gathered is not None
            arrays = {name: np.asarray(value) for name, value in gathered._asdict().items()}
            history = self.recorder.history()
            saved = Checkpoint(step, seconds, self.plan.identity, arrays, history)
            self._observers.checkpoint(saved)

        self._from_leader(save)

    # --- how it ends ---------------------------------------------------------------------------

    def _has_row(self, step: int) -> bool:
        return bool(self.recorder.rows) and bool(self.recorder.rows[-1]["step"] == step)

    def _status_at_end(self) -> str:
        return "finished" if self.plan.tolerance is None else "not converged"

    def _judge(self, row: Row) -> str:
        """How the last row ends the run, or ""."""
        tolerance, hopeless = self.plan.tolerance, self.plan.hopeless
        if tolerance is not None and (row["gradient_norm"] <= tolerance).all():
            return "converged"
        return "stalled" if hopeless and hopeless(self.recorder.history()) else ""

    def _check_losses(self, row: Row) -> None:
        for name in ("outer_loss", "inner_loss"):
            if name in row and not np.isfinite(row[name]).all():
                raise ProblemError(
                    f"The {name.replace('_', ' ')} at the starting point is {row[name]}: nothing "
                    f"that is measured would be a number. Start where it is finite."
                )

    def _diverged(self, state: Tree | None, start: int, end: Advance) -> None:
        """Repeat the chunk step by step to find where it went wrong, and raise.

        If the state it began with is overwritten, look at the end: x and y were checked after
        every step, so the step is right, but another variable may have gone wrong just before.
        """
        step, new = int(end.step) - 1, end
        if state is not None:
            step, new = start, self.run.advance(state, start, start + 1)
            while new.finite and step < int(end.step):
                step += 1
                new = self.run.advance(new.state, step, step + 1)
        gathered = self.run.gather_unpacked(new.state)
        self._from_leader(lambda: self._explain_divergence(gathered, step))

    def _explain_divergence(self, state: Tree, step: int) -> None:
        variable, agent = _first_bad(state, self.run.setup.many_seeds)
        if self._owners is not None:
            agent = int(self.run.group.here[agent])
        raise DivergenceError(
            f"The run diverged at step {step + 1}: agent {agent}, variable {variable}. "
            f"{self._clues(step)}{self._observers.advice('diverged')}",
            step=step + 1,
            agent=agent,
            variable=variable,
            history=self.recorder.history(),
            best=self.recorder.best_at,
            ledger=self.run.costs.until(step + 1),
            traffic=self.run.costs.traffic_until(step + 1),
        )

    def _clues(self, step: int) -> str:
        problem = self.run.problem
        if self._owners is not None or not affordable(problem):
            return ""
        # Just before the end all numbers are too large to tell anything: look where the last row
        # was recorded, or else at the start.
        largest = next(
            at.largest
            for at in (curvature(problem, *self.recorder.seen_at), curvature(problem))
            if at.largest > 0
        )
        return self.run.algorithm.explain_divergence(step, largest) + " "


def _first_bad(state: Tree, many_seeds: bool) -> tuple[str, int]:
    """The first variable that is not finite, and the first agent that holds it."""
    for name, leaf in state._asdict().items():
        bad = ~np.isfinite(np.asarray(leaf))
        if bad.any():
            agents = bad.reshape(*bad.shape[: 1 + many_seeds], -1).any(axis=-1)
            return name, int(np.argmax(agents.any(axis=0) if many_seeds else agents))
    raise AssertionError("a replay found nothing that is not finite")
