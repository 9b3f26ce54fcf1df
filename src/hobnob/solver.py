"""solve: a problem, a network and an algorithm make a result."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.algorithm import Algorithm
from hobnob.errors import CheckpointError, DivergenceError, ProblemError, SettingError
from hobnob.interrupt import Interrupt
from hobnob.links import Failure, Links
from hobnob.network import Network
from hobnob.pooled import affordable, check_strong_convexity, curvature
from hobnob.problem import Problem
from hobnob.progress import Progress
from hobnob.record.checkpoint import Checkpoint
from hobnob.record.recorder import Metrics, Recorder
from hobnob.record.store import TUNABLE, Resume, Store
from hobnob.result import Result
from hobnob.runtimes.simulate import Simulate
from hobnob.schedules import value_at

_CHUNK_SECONDS = 0.25  # how long the device runs before the host looks at Ctrl-C and the clock
_PROBES = (0, 1, 2, 10, 100, 1_000, 10_000, 100_000)  # steps at which schedules are compared


def solve(
    problem: Problem,
    network: Any,
    algorithm: Algorithm,
    *,
    steps: int = 1000,
    seed: int | Sequence[int] = 0,
    record_every: int | None = None,
    metrics: Metrics = "all",
    tolerance: float | None = None,
    callback: Callable[[Any, Any], Any] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    checkpoint_seconds: float | None = 30.0,
    resume: Resume = False,
    progress: bool | None = None,
    links: Failure | Sequence[Failure] | None = None,
    runtime: Simulate | None = None,
) -> Result:
    """Run `algorithm` on `problem` over `network`.

    Args:
        problem: the losses and the agents' data.
        network: a `Network`, any networkx graph, or a mixing matrix.
        algorithm: such as `hobnob.DSBO(...)`.
        steps: how many iterations.
        seed: a whole number, or several: all of them run in one compiled program, and every array
            of the result gets a leading axis of seeds.
        record_every: steps between two rows of the history (default: about 100 rows). The start
            and the end are always recorded.
        metrics: "all" that the problem allows, a list of names and functions, a dict of the user's
            functions by name (on top of all), or None. A function is given a `View`.
        tolerance: stop at the first recorded step where |grad F| is at most this.
        callback: called as `callback(run, state)` at every recorded step; True stops the run.
            `run.latest` is the row that was just recorded, `run.latest["step"]` its step.
        checkpoint: a folder. The run is saved there while it goes, and at its end.
        checkpoint_every, checkpoint_seconds: how often, in steps and in seconds.
        resume: go on from the checkpoint, bit for bit, or start where there is none yet. "retune"
            accepts other hyper-parameters than the ones that it was saved with.
        progress: a bar on standard error; None shows it where that is a terminal.
        links: what fails: a `Drop`, a `Cut`, a `Silent`, or several. The same seeds give the same
            failures.
        runtime: where agents live.

    Ctrl-C ends the run after the current chunk of steps, saves it and returns what there is.
    """
    _check_kinds(problem, algorithm, tolerance, callback)
    network = network if isinstance(network, Network) else Network(network)
    _check_sizes(problem, network, steps, record_every)
    algorithm.check_fits(problem, network)
    seeds = _checked_seeds(seed)
    algorithm = algorithm.bind(network.size, steps)
    with problem.precision():
        if affordable(problem):
            check_strong_convexity(problem)
        failures = Links(links, network, steps) if links is not None else None
        if failures and failures.warning:
            warnings.warn(failures.warning, stacklevel=2)
        run = (runtime or Simulate()).start(problem, network, algorithm, seeds, failures)
        recorder = Recorder(run, metrics)
        if tolerance is not None and "gradient_norm" not in recorder.names:
            raise SettingError(
                "tolerance needs the metric gradient_norm, which is not measured for this problem."
            )
        store = Store(checkpoint, checkpoint_every, checkpoint_seconds, resume)
        saved = store.find()
        if record_every is None:
            # A resumed run that does not say keeps the rhythm that it had.
            record_every = int(saved.identity["record_every"]) if saved else max(1, steps // 100)
        identity = _identity(run, seeds, record_every, recorder)
        state = run.initial_state()
        start, seconds = 0, 0.0
        if saved:
            store.check(saved, identity)
            state, start, seconds = _restore(saved, state, recorder, record_every, steps)
        loop = _Loop(run, recorder, store, identity, record_every, steps, tolerance, callback)
        if saved and (status := loop.settled(state, start, seconds)):
            return _result(loop, state, start, status, seeds)
        with Interrupt() as interrupt, Progress(steps, start, progress) as bar:
            state, step, status = loop.run(state, start, seconds, interrupt, bar)
        return _result(loop, state, step, status, seeds)


class _Loop:
    """Chunks of steps on the device; records, checkpoints and questions between them."""

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
        self.recorded_at = run.problem.x0, run.problem.y0

    def run(
        self, state: Any, start: int, seconds: float, interrupt: Interrupt, bar: Progress
    ) -> tuple[Any, int, str]:
        """(state, step, status) at the end."""
        clock = time.perf_counter()
        self.runner.advance(state, start, start)  # no steps: only compiles
        self.compile_seconds = time.perf_counter() - clock
        step, chunk, status = start, 1, ""
        if self.recorder.rows:
            row = self.recorder.rows[-1]
        else:
            row = self._record(0, state, seconds)
            status = self._verdict(state, row)
            if status:
                self._save(state, 0, seconds)
        while not status:
            stop = min(self._next_record(step), self.store.next_save(step), step + chunk)
            clock = time.perf_counter()
            new = self.runner.advance(state, step, stop)
            if not (new.finite and _all_finite(new.state)):
                self._diverged(state, step, new.step)
            took = max(time.perf_counter() - clock, 1e-9)
            rate = (stop - step) / took
            state, step, seconds = new.state, stop, seconds + took
            chunk = max(1, min(2 * chunk, int(rate * _CHUNK_SECONDS)))
            if step == self._next_record(step - 1):
                row = self._record(step, state, seconds)
                status = self._verdict(state, row)
            if step == self.steps:
                status = status or self._status_at_end()
            elif interrupt.requested:
                status = status or "interrupted"
            if status and row["step"] != step:
                row = self._record(step, state, seconds)
            if status or self.store.due(step):
                self._save(state, step, seconds)
            bar.update(step, rate, row)
        return state, step, status

    def _record(self, step: int, state: Any, seconds: float) -> dict[str, np.ndarray]:
        problem = self.runner.problem
        x, y = (np.asarray(v).reshape(-1, v.shape[-1]).mean(axis=0) for v in (state.x, state.y))
        self.recorded_at = problem.x_layout.unravel(x, np), problem.y_layout.unravel(y, np)
        return self.recorder.record(step, state, seconds)

    def settled(self, state: Any, step: int, seconds: float) -> str:
        """How a restored run had ended already, if it had."""
        recorded = self.recorder.rows and self.recorder.rows[-1]["step"] == step
        if step == self.steps and not recorded:
            recorded = self.recorder.record(step, state, seconds)
        if recorded and self._converged(self.recorder.rows[-1]):
            return "converged"
        return self._status_at_end() if step == self.steps else ""

    def _status_at_end(self) -> str:
        return "finished" if self.tolerance is None else "not converged"

    def _converged(self, row: dict[str, np.ndarray]) -> bool:
        return self.tolerance is not None and bool((row["gradient_norm"] <= self.tolerance).all())

    def _next_record(self, step: int) -> int:
        return min((step // self.record_every + 1) * self.record_every, self.steps)

    def _verdict(self, state: Any, row: dict[str, np.ndarray]) -> str:
        """Whether a recorded row ends the run, and how."""
        if self._converged(row):
            return "converged"
        self.runner.latest = row
        stopped = self.callback is not None and self.callback(self.runner, state)
        return "interrupted" if stopped else ""

    def _save(self, state: Any, step: int, seconds: float) -> None:
        arrays = {name: np.asarray(value) for name, value in state._asdict().items()}
        history = self.recorder.history()
        self.store.save(Checkpoint(step, seconds, self.identity, arrays, history))

    def _diverged(self, state: Any, start: int, stop: int) -> None:
        """Replay the chunk step by step to find where it went wrong, and raise."""
        step, good, new = start, state, self.runner.advance(state, start, start + 1).state
        while _all_finite(new) and step < stop:
            step, good = step + 1, new
            new = self.runner.advance(good, step, step + 1).state
        variable, agent = _first_bad(new, self.runner.many_seeds)
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
            for at in (curvature(problem, *self.recorded_at), curvature(problem))
            if at.largest > 0
        )
        return self.runner.algorithm.explain_divergence(step, largest) + " "


def _check_kinds(problem: Any, algorithm: Any, tolerance: Any, callback: Any) -> None:
    if not isinstance(problem, Problem):
        raise ProblemError(f"problem must be a hb.Problem, not a {type(problem).__name__}.")
    if not isinstance(algorithm, Algorithm):
        raise SettingError(
            f"algorithm must be one with its settings, such as hb.DSBO(alpha=0.01, ...), not "
            f"{algorithm!r}."
        )
    if callback is not None and not callable(callback):
        raise SettingError(f"callback = {callback!r} must be a function of (run, state).")
    number = isinstance(tolerance, int | float | np.number) and not isinstance(tolerance, bool)
    if tolerance is not None and not (number and tolerance >= 0):
        raise SettingError(f"tolerance = {tolerance!r} must be a number of at least 0, or None.")


def _check_sizes(problem: Problem, network: Network, steps: int, record_every: int | None) -> None:
    if problem.size != network.size:
        few = "too few" if problem.size < network.size else "too many"
        raise ProblemError(
            f"The problem has the data of {problem.size} agents and the network has "
            f"{network.size}: {few} shards. Every agent needs exactly one of outer_data and one of "
            f"inner_data."
        )
    for name, value in (("steps", steps), ("record_every", record_every)):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if value is not None and (not whole or value < 1):
            raise SettingError(f"{name} = {value!r} must be a whole number of at least 1.")


def _checked_seeds(seed: Any) -> int | list[int]:
    many = isinstance(seed, list | tuple | range) or getattr(seed, "ndim", 0) == 1
    seeds: list[Any] = list(seed) if many else [getattr(seed, "item", lambda: seed)()]
    if not seeds:
        raise SettingError("seed is an empty list: give at least one.")
    for s in seeds:
        if not isinstance(s, int | np.integer) or isinstance(s, bool) or not 0 <= s < 2**32:
            raise SettingError(f"seed {s!r} must be a whole number from 0 to 2^32 - 1.")
    return [int(s) for s in seeds] if many else int(seeds[0])


def _identity(
    run: Any, seeds: int | list[int], record_every: int, recorder: Recorder
) -> dict[str, str]:
    """Which run this is, part by part: what a checkpoint must agree with."""
    algorithm = run.algorithm
    settings = {
        TUNABLE + name: str(
            [float(value_at(value, step)) for step in _PROBES] if callable(value) else value
        )
        for name, value in vars(algorithm).items()
    }
    return {
        **run.problem.fingerprint,
        "network": run.network.fingerprint(),
        "links": str(run.links or "none fails"),
        "algorithm": type(algorithm).__name__,
        **settings,
        "seed": str(seeds),
        "record_every": str(record_every),
        "metrics": ", ".join(recorder.names),
    }


def _restore(
    saved: Checkpoint, template: Any, recorder: Recorder, record_every: int, steps: int
) -> tuple[Any, int, float]:
    if saved.step > steps:
        raise CheckpointError(
            f"The checkpoint is at step {saved.step}, beyond the {steps} steps asked for."
        )
    for name, leaf in template._asdict().items():
        kept = saved.state.get(name)
        if kept is None or kept.shape != leaf.shape or kept.dtype != leaf.dtype:
            raise CheckpointError(f"The checkpoint does not hold {name} in the shape {leaf.shape}.")
    state = type(template)(**{name: jnp.asarray(saved.state[name]) for name in template._fields})
    # The last row of a shorter run may lie off the grid; a longer one would not have it.
    rows = saved.history["step"].reshape(-1, saved.history["step"].shape[-1])[0]
    stay = (rows % record_every == 0) | (rows == steps)
    recorder.restore({name: values[..., stay] for name, values in saved.history.items()})
    return state, saved.step, saved.seconds


def _result(loop: _Loop, state: Any, step: int, status: str, seeds: int | list[int]) -> Result:
    run, problem = loop.runner, loop.runner.problem
    x, y = np.asarray(state.x), np.asarray(state.y)
    message = {
        "finished": f"All {step} steps are done.",
        "converged": f"Converged at step {step}: |grad F| is at most {loop.tolerance}.",
        "not converged": f"Not converged: |grad F| is above {loop.tolerance} after {step} steps.",
        "interrupted": f"Stopped after {step} of {loop.steps} steps.",
    }[status]
    advice = loop.store.how_to_go_on() if status == "interrupted" else ""
    return Result(
        x=problem.x_layout.unravel(x.mean(axis=-2), np),
        y=problem.y_layout.unravel(y.mean(axis=-2), np),
        agents={"x": problem.x_layout.unravel(x, np), "y": problem.y_layout.unravel(y, np)},
        history=loop.recorder.history(),
        ledger=run.costs.until(step),
        status=status,
        message=f"{message} {advice}".strip(),
        advice=advice,
        steps=step,
        compile_seconds=loop.compile_seconds,
        settings={
            "problem": repr(problem),
            "network": repr(run.network),
            "algorithm": type(run.algorithm).__name__,
            **run.algorithm.describe(),
            "steps": loop.steps,
            "seed": seeds,
            "record_every": loop.record_every,
            **({"links": str(run.links)} if run.links else {}),
        },
        message_parts=dict(run.ledger.message_parts),
        network=run.network,
    )


@jax.jit
def _finite_leaves(state: Any) -> jax.Array:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state)]).all()


def _all_finite(state: Any) -> bool:
    return bool(_finite_leaves(state))


def _first_bad(state: Any, many_seeds: bool) -> tuple[str, int]:
    """The first variable that is not finite, and the first agent whose it is."""
    for name, leaf in state._asdict().items():
        bad = ~np.isfinite(np.asarray(leaf))
        if bad.any():
            agents = bad.reshape(*bad.shape[: 1 + many_seeds], -1).any(axis=-1)
            return name, int(np.argmax(agents.any(axis=0) if many_seeds else agents))
    raise AssertionError("a replay found nothing that is not finite")
