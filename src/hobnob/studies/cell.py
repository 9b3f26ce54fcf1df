"""Cell: one measurement of a study. It can be interrupted and resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hobnob.ground.errors import DivergenceError

if TYPE_CHECKING:
    from hobnob.core.algorithm import Algorithm
    from hobnob.core.network import Network
    from hobnob.core.problem import Problem
    from hobnob.run.result import Result
    from hobnob.run.run import Run

Found = Mapping[str, Any]  # what a cell measured: name -> array


class Stopped(Exception):
    """The measurement was interrupted. Its checkpoint is kept."""


@dataclass(frozen=True)
class Cell:
    """`measure(bench, **options)` returns name -> array. It must be importable by a worker.

    Args:
        name: the name of its file, and its key in the results.
        work: how long it takes, relative to other cells.
        solves: how many runs it makes, for the progress bar.
    """

    name: str
    measure: Callable[..., Found]
    options: Mapping[str, Any] = field(default_factory=dict)
    work: float = 1.0
    solves: int = 1


def stacked(each: Sequence[Found]) -> dict[str, np.ndarray]:
    """The arrays of several simulations, stacked along a new first axis."""
    return {name: np.stack([found[name] for found in each]) for name in each[0]}


class Bench:
    """Runs `hobnob.solve` for a measurement, with a checkpoint folder for every run."""

    def __init__(
        self,
        folder: Path,
        on_progress: Callable[[float], None],
        solves: int = 1,
        interrupted: Callable[[], bool] = lambda: False,
    ):
        self._folder, self._on_progress, self._solves = folder, on_progress, solves
        self._interrupted = interrupted  # True if Ctrl-C came between two runs
        self._done = 0

    def solve(
        self, problem: Problem, network: Network, algorithm: Algorithm, **options: Any
    ) -> Result:
        """Like `hobnob.solve`. A run that was interrupted resumes from its checkpoint."""
        from hobnob.run.solve import solve

        if self._interrupted():
            raise Stopped
        steps = options.get("steps", 1000)

        def report(run: Run, state: Any) -> None:
            done = float(run.latest["step"].max()) / steps
            self._on_progress(min(1.0, (self._done + done) / self._solves))

        try:
            result = solve(
                problem,
                network,
                algorithm,
                **options,
                callback=report,
                checkpoint=self._folder / f"{self._done:04d}",
                resume=True,
                progress=False,
            )
        finally:
            self._done += 1  # also if it diverged: the next run has its own folder
        if result.status == "interrupted":
            raise Stopped
        return result

    def history(
        self, problem: Problem, network: Network, algorithm: Algorithm, **options: Any
    ) -> dict[str, np.ndarray]:
        """The history of a run. If it diverges, the rows that are missing are filled with infinity.

        Divergence is a finding and must not end the study.
        """
        try:
            return self.solve(problem, network, algorithm, **options).history
        except DivergenceError as error:
            steps, every = options["steps"], options["record_every"]
            missing = np.arange(error.history["step"].max() + every, steps + 1, every)
            lost = np.full(len(missing), np.inf)

            def filled(name: str, values: np.ndarray) -> np.ndarray:
                rest = missing if name == "step" else lost
                rest = np.broadcast_to(rest, (*values.shape[:-1], len(rest)))
                return np.concatenate([values, rest], axis=-1)

            return {name: filled(name, values) for name, values in error.history.items()}
