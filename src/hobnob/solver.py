"""solve: a problem, a network and an algorithm make a result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from hobnob.algorithm import Algorithm
from hobnob.choice import solve_chosen
from hobnob.errors import CheckpointError, ProblemError, SettingError
from hobnob.interrupt import Interrupt
from hobnob.links import Failure, Links
from hobnob.loop import Loop
from hobnob.network import Network
from hobnob.pooled import affordable, check_strong_convexity
from hobnob.problem import Problem
from hobnob.progress import Progress
from hobnob.record.checkpoint import Checkpoint
from hobnob.record.recorder import Metrics, Recorder
from hobnob.record.store import TUNABLE, Resume, Store
from hobnob.result import Result
from hobnob.runtimes.mpi import Mpi
from hobnob.runtimes.simulate import Simulate
from hobnob.schedules import all_values


def solve(
    problem: Problem,
    network: Any,
    algorithm: Algorithm | None = None,
    *,
    steps: int | None = None,
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
    runtime: Simulate | Mpi | None = None,
) -> Result:
    """Run `algorithm` on `problem` over `network`.

    Args:
        problem: the losses and the agents' data.
        network: a `Network`, any networkx graph, or a mixing matrix.
        algorithm: such as `hobnob.DSBO(...)`. Without one, `hobnob.choose` picks a method and its
            step sizes, and `result.choice` says why.
        steps: how many iterations: 1,000, or what `hobnob.choose` says, where it is not given.
        seed: a whole number, or several: all of them run in one compiled program, and every array
            of the result gets a leading axis of seeds.
        record_every: steps between two rows of the history (default: about 100 rows). The start
            and the end are always recorded.
        metrics: "all" that the problem allows, a list of names and functions, a dict of the user's
            functions by name (on top of all), or None. A function is given a `View`.
        tolerance: stop at the first recorded step where |grad F| is at most this. Without an
            algorithm, and without noise, it is a ten-thousandth of |grad F| at the start.
        callback: called as `callback(run, state)` at every recorded step; True stops the run.
            `run.latest` is the row that was just recorded, `run.latest["step"]` its step.
        checkpoint: a folder. The run is saved there while it goes, and at its end.
        checkpoint_every, checkpoint_seconds: how often, in steps and in seconds.
        resume: go on from the checkpoint, bit for bit, or start where there is none yet. "retune"
            accepts other hyper-parameters than the ones that it was saved with.
        progress: a bar on standard error; None shows it where that is a terminal.
        links: what fails: a `Drop`, a `Cut`, a `Silent`, or several. The same seeds give the same
            failures.
        runtime: where agents live: `Simulate()`, all in this process, or `Mpi()`, spread over the
            ranks of an MPI job, each of which makes the same call and gets the same result.

    Ctrl-C ends the run after the current chunk of steps, saves it and returns what there is.
    """
    _check_kinds(problem, algorithm, tolerance, callback)
    network = network if isinstance(network, Network) else Network(network)
    if algorithm is None:
        if problem.unread and isinstance(runtime, Mpi):
            raise SettingError(
                "Give an algorithm: one is chosen from all data in one place, and here the shards "
                "are read by several ranks."
            )
        problem = problem.loaded()
        _check_sizes(problem, network, 1 if steps is None else steps, record_every)
        return solve_chosen(
            solve,
            problem,
            network,
            steps,
            tolerance,
            seed=seed,
            record_every=record_every,
            metrics=metrics,
            callback=callback,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            checkpoint_seconds=checkpoint_seconds,
            resume=resume,
            progress=progress if runtime is None or runtime.leads else False,
            links=links,
            runtime=runtime,
        )
    steps = 1000 if steps is None else steps
    _check_sizes(problem, network, steps, record_every)
    algorithm.check_fits(problem, network, links)
    seeds = _checked_seeds(seed)
    runtime = Simulate() if runtime is None else runtime
    with problem.precision(), runtime.watched(network):
        algorithm = algorithm.bind(network.size, steps)
        failures = Links(links, network, steps) if links is not None else None
        run = runtime.start(problem, network, algorithm, seeds, failures)
        problem = run.problem
        if affordable(problem):
            run.told(lambda: check_strong_convexity(problem))
        if failures and failures.warning and run.leads:
            warnings.warn(failures.warning, stacklevel=2)
        recorder = Recorder(run, metrics)
        if tolerance is not None and "gradient_norm" not in recorder.names:
            raise SettingError(
                "tolerance needs the metric gradient_norm, which is not measured for this problem."
            )
        store, saved = _opened(run, checkpoint, checkpoint_every, checkpoint_seconds, resume)
        if record_every is None:
            # A resumed run that does not say keeps the rhythm that it had.
            record_every = int(saved.identity["record_every"]) if saved else max(1, steps // 100)
        # It reads all data, so only where a checkpoint will need it.
        keeps = run.told(lambda: store.keeps)
        identity = _identity(run, seeds, record_every, recorder, steps) if keeps else {}
        state = run.initial_state()
        start, seconds = 0, 0.0
        if saved:
            # Schedules are compared over the steps that the saved run was to have.
            horizon = int(saved.identity["horizon"])
            then = _identity(run, seeds, record_every, recorder, horizon)
            run.told(lambda: store.check(saved, then))
            state, start, seconds = _restore(saved, run, recorder, record_every, steps)
        loop = Loop(run, recorder, store, identity, record_every, steps, tolerance, callback)
        if saved and (status := loop.settled(state, start, seconds)):
            return _result(loop, state, start, status, seeds)
        shown = progress if run.leads else False
        with Interrupt() as interrupt, Progress(steps, start, shown) as bar:
            # The loop alone holds the first state: kept here, it would take memory to the end.
            first, state = [state], None
            state, step, status = loop.run(first.pop(), start, seconds, interrupt, bar)
        return _result(loop, state, step, status, seeds)


def _opened(
    run: Any, folder: Any, every: int | None, seconds: float | None, resume: Resume
) -> tuple[Store, Checkpoint | None]:
    """The folder of checkpoints, which one process alone reads and writes, and the one in it."""
    store, found = Store(None, None, None, False), None

    def open_folder() -> Checkpoint | None:
        nonlocal store, found
        store = Store(folder, every, seconds, resume)
        found = store.find()
        return found and found._replace(state={})

    saved = run.told(open_folder)
    return store, saved and saved._replace(state=run.share_of(found and found.state))


def _check_kinds(problem: Any, algorithm: Any, tolerance: Any, callback: Any) -> None:
    if not isinstance(problem, Problem):
        raise ProblemError(f"problem must be a hb.Problem, not a {type(problem).__name__}.")
    if not isinstance(algorithm, Algorithm | None):
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
    _check_whole("steps", steps)
    if record_every is not None:
        _check_whole("record_every", record_every)


def _check_whole(name: str, value: Any) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or int(value) < 1:
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
    run: Any, seeds: int | list[int], record_every: int, recorder: Recorder, horizon: int
) -> dict[str, str]:
    """Which run this is, part by part: what a checkpoint must agree with."""

    def described(value: Any) -> str:
        if not callable(value):
            return str(value)
        return sha256(all_values(value, horizon).tobytes()).hexdigest()

    algorithm = run.algorithm
    return {
        **run.fingerprint(),
        "network": run.network.fingerprint(),
        "links": str(run.links or "none fails"),
        "algorithm": type(algorithm).__name__,
        **{TUNABLE + name: described(value) for name, value in vars(algorithm).items()},
        "seed": str(seeds),
        "record_every": str(record_every),
        "metrics": ", ".join(recorder.names),
        "horizon": str(horizon),
    }


def _restore(
    saved: Checkpoint, run: Any, recorder: Recorder, record_every: int, steps: int
) -> tuple[Any, int, float]:
    if saved.step > steps:
        raise CheckpointError(
            f"The checkpoint is at step {saved.step}, beyond the {steps} steps asked for."
        )
    shapes = run.shapes
    for name, leaf in shapes._asdict().items():
        kept = saved.state.get(name)
        if kept is None or kept.shape != leaf.shape or kept.dtype != leaf.dtype:
            raise CheckpointError(f"The checkpoint does not hold {name} in the shape {leaf.shape}.")
    state = type(shapes)(**{name: jnp.asarray(saved.state[name]) for name in shapes._fields})
    # The last row of a shorter run may lie off the grid; a longer one would not have it.
    rows = saved.history["step"].reshape(-1, saved.history["step"].shape[-1])[0]
    stay = (rows % record_every == 0) | (rows == steps)
    recorder.restore({name: values[..., stay] for name, values in saved.history.items()})
    return run.held(state), saved.step, saved.seconds


def _result(loop: Loop, state: Any, step: int, status: str, seeds: int | list[int]) -> Result:
    run, problem = loop.runner, loop.runner.problem
    x, y = map(run.everyone, run.layout.answer(state))
    message = {
        "finished": f"All {step} steps are done.",
        "converged": f"Converged at step {step}: |grad F| is at most {loop.tolerance}.",
        "not converged": f"Not converged: |grad F| is above {loop.tolerance} after {step} steps.",
        "interrupted": f"Stopped after {step} of {loop.steps} steps.",
    }[status]
    advice = run.told(loop.store.how_to_go_on) if status == "interrupted" else ""
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
