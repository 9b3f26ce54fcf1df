"""Cell: one measurement of a study, which can be stopped and gone on with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hobnob.ground.errors import DivergenceError

if TYPE_CHECKING:
    from hobnob.run.result import Result

Found = Mapping[str, Any]  # what a cell measured: name -> array


class Stopped(Exception):
    """The measurement was interrupted. What it had done is kept."""


@dataclass(frozen=True)
class Cell:
    """`measure(bench, **options)`, a function at the top of a module, gives name -> array.

    Args:
        name: what its file is called, and the key of what it found.
        work: how long it takes beside others, in any unit.
        solves: how many runs it makes, where it is known; for the progress bar.
    """

    name: str
    measure: Callable[..., Found]
    options: Mapping[str, Any] = field(default_factory=dict)
    work: float = 1.0
    solves: int = 1


def stacked(each: Sequence[Found]) -> dict[str, np.ndarray]:
    """What several simulations found, with a leading axis for them."""
    return {name: np.stack([found[name] for found in each]) for name in each[0]}


class Bench:
    """What a measurement works with: `hobnob.solve`, every run of it kept in a folder."""

    def __init__(
        self,
        folder: Path,
        tell: Callable[[float], None],
        solves: int = 1,
        stopped: Callable[[], bool] = lambda: False,
    ):
        self._folder, self._tell, self._solves = folder, tell, solves
        self._stopped = stopped  # whether Ctrl-C came between two runs
        self._done = 0

    def solve(self, problem: Any, network: Any, algorithm: Any, **options: Any) -> Result:
        """As `hobnob.solve`; a run that was interrupted before goes on where it was."""
        from hobnob.run.solve import solve

        if self._stopped():
            raise Stopped
        steps = options.get("steps", 1000)

        def tell(run: Any, state: Any) -> None:
            done = float(run.latest["step"].max()) / steps
            self._tell(min(1.0, (self._done + done) / self._solves))

        try:
            result = solve(
                problem,
                network,
                algorithm,
                **options,
                callback=tell,
                checkpoint=self._folder / f"{self._done:04d}",
                resume=True,
                progress=False,
            )
        finally:
            self._done += 1  # also where it diverged: the next run is another one
        if result.status == "interrupted":
            raise Stopped
        return result

    def history(
        self, problem: Any, network: Any, algorithm: Any, **options: Any
    ) -> dict[str, np.ndarray]:
        """The history of a run; one that diverges has infinity in all rows that it never made.

        That a simulation diverges is a finding, and must not end the study.
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
