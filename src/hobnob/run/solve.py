"""solve: a problem, a network and an algorithm make a result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from hobnob.analysis.choose import Choice
from hobnob.analysis.exact import affordable, check_strong_convexity
from hobnob.core.algorithm import Algorithm
from hobnob.core.links import Failure, Links
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.core.setup import Runtime, Seeds, Setup, Tree
from hobnob.ground.errors import CheckpointError, ProblemError, SettingError
from hobnob.run.checkpoint import Checkpoint
from hobnob.run.chosen.stages import solve_by_choice
from hobnob.run.identity import identity_of
from hobnob.run.interrupt import Interrupt
from hobnob.run.loop import Loop, Plan
from hobnob.run.observers import Callback, Observer, Observers
from hobnob.run.options import SolveOptions
from hobnob.run.owned.agreed import agreed_algorithm, asked_to_stop
from hobnob.run.owned.own_recorder import OwnRecorder
from hobnob.run.progress import ProgressBar
from hobnob.run.recorder import Metrics, Recorder
from hobnob.run.result import Result, result_of
from hobnob.run.run import Run
from hobnob.run.store import Resume, Store, check_options
from hobnob.runtimes.peers import Peers
from hobnob.runtimes.simulate import Simulate


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
    runtime: Runtime | None = None,
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
        runtime: where agents live: `Simulate()`, all in this process; `Mpi()`, spread over the
            ranks of an MPI job, each of which makes the same call and gets the same result; or
            `Peers(...)`, each owner's in a process of its own.

    Ctrl-C ends the run after the current chunk of steps, saves it and returns what there is.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> dsoba = hb.DSOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2)
        >>> hb.solve(problem, hb.ring(4), dsoba, steps=20).status
        'finished'
    """
    _check_kinds(problem, algorithm, tolerance, callback)
    check_options(checkpoint, checkpoint_every, resume)
    network = network if isinstance(network, Network) else Network(network)
    _check_sizes(problem, network, 1 if steps is None else steps, record_every)
    options = SolveOptions(
        seeds=_checked_seeds(seed),
        record_every=record_every,
        metrics=metrics,
        tolerance=tolerance,
        callback=callback,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        checkpoint_seconds=checkpoint_seconds,
        resume=resume,
        progress=progress,
        links=links,
        runtime=Simulate() if runtime is None else runtime,
    )
    if isinstance(runtime, Peers):
        return _solve(problem, network, algorithm, 1000 if steps is None else steps, options)
    if algorithm is None:

        def attempt(problem: Problem, choice: Choice, options: SolveOptions) -> Result:
            return _solve(problem, network, choice.algorithm, choice.steps, options)

        return solve_by_choice(problem, network, steps, options, attempt)
    return _solve(problem, network, algorithm, 1000 if steps is None else steps, options)


def _solve(
    problem: Problem,
    network: Network,
    algorithm: Algorithm | None,
    steps: int,
    options: SolveOptions,
) -> Result:
    runtime = options.runtime
    with problem.precision(), runtime.watched(network):
        if isinstance(runtime, Peers):
            algorithm = agreed_algorithm(runtime, problem, algorithm)
        assert algorithm is not None, "other runtimes choose one before"
        algorithm.check_fits(problem, network, options.links)
        algorithm = algorithm.bind(network.size, steps)
        links = Links(options.links, network, steps) if options.links is not None else None
        rates = algorithm.step_sizes() if runtime.programs is not None else {}
        setup = Setup(problem, network, algorithm, options.seeds, links, rates)
        run = Run.start(runtime, setup)
        group = run.group
        recorder, flat = None, False
        if group.owners is not None:
            recorder = OwnRecorder(run, group.owners, options.metrics)
        elif affordable(run.problem):
            lenient = not algorithm.needs_strong_convexity
            flat = group.from_leader(lambda: check_strong_convexity(run.problem, lenient))
        if links and links.warning and group.leads:
            warnings.warn(links.warning, stacklevel=3)
        recorder = recorder or Recorder(run, options.metrics, flat)
        if options.tolerance is not None and "gradient_norm" not in recorder.names:
            raise SettingError(
                "tolerance needs the metric gradient_norm, which is not measured for this problem."
            )
        store, saved = _open_store(run, options)
        record_every = options.record_every
        if record_every is None:
            # A resumed run that names no interval keeps the one that it had.
            record_every = int(saved.identity["record_every"]) if saved else max(1, steps // 100)
        # An identity reads all data, so only a run that will be saved has one.
        saves = options.checkpoint is not None
        identity = identity_of(run, record_every, recorder.names, steps) if saves else {}
        loop = Loop(
            run,
            recorder,
            Observers(_observers(options, store) if group.leads else []),
            Plan(steps, record_every, options.tolerance, identity, options.hopeless),
        )
        # The loop alone holds the first state: kept here, it would take memory to the end.
        first, start, seconds = [run.initial_state()], 0, 0.0
        if saved:
            # Schedules are compared over the steps that the saved run was to have.
            horizon = int(saved.identity["horizon"])
            then = identity_of(run, record_every, recorder.names, horizon)
            group.from_leader(lambda: store and store.check(saved, then))
            first[0], start, seconds = _restore(saved, run, recorder, record_every, steps)
            if over := loop.end_of(first[0], start, seconds):
                return result_of(loop, over)
        with Interrupt() as interrupt, loop.observed(start):
            asked = partial(asked_to_stop, interrupt, runtime, group.owners)
            end = loop.go(first.pop(), start, seconds, asked)
        return result_of(loop, end)


def _observers(options: SolveOptions, store: Store | None) -> list[Observer]:
    every: list[Observer] = [ProgressBar(options.progress)]
    if options.callback is not None:
        every.append(Callback(options.callback))
    return every if store is None else [*every, store]


def _open_store(run: Run, options: SolveOptions) -> tuple[Store | None, Checkpoint | None]:
    """The folder of checkpoints, which the leader alone reads and writes, and the one in it."""
    folder, store, found = options.checkpoint, None, None
    if folder is None:
        return None, None

    def open_folder() -> Checkpoint | None:
        nonlocal store, found
        every, seconds = options.checkpoint_every, options.checkpoint_seconds
        store = Store(folder, every, seconds, options.resume)
        found = store.find()
        return found and found._replace(state={})

    saved = run.group.from_leader(open_folder)
    return store, saved and saved._replace(state=run.scatter(found and found.state))


def _restore(
    saved: Checkpoint, run: Run, recorder: Recorder, record_every: int, steps: int
) -> tuple[Tree, int, float]:
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
    rows = {name: values[..., stay] for name, values in saved.history.items()}
    recorder.restore(rows, saved.step)
    return run.pack(state), saved.step, saved.seconds


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


def _checked_seeds(seed: Any) -> Seeds:
    many = isinstance(seed, list | tuple | range) or getattr(seed, "ndim", 0) == 1
    seeds: list[Any] = list(seed) if many else [getattr(seed, "item", lambda: seed)()]
    if not seeds:
        raise SettingError("seed is an empty list: give at least one.")
    for s in seeds:
        if not isinstance(s, int | np.integer) or isinstance(s, bool) or not 0 <= s < 2**32:
            raise SettingError(f"seed {s!r} must be a whole number from 0 to 2^32 - 1.")
    return tuple(int(s) for s in seeds) if many else int(seeds[0])
