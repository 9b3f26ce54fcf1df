"""A run that was stopped goes on as if it had not been."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import jax.numpy as jnp
import numpy as np

from hobnob.core.group import OneProcess
from hobnob.core.setup import Setup
from hobnob.run.result import Result
from hobnob.run.run import Run
from hobnob.run.solve import solve
from hobnob.runtimes.simulate import Simulate
from hobnob.runtimes.simulate.rows import Rows
from hobnob.testing.check import check, expect
from hobnob.testing.one_agent import made_for, places_of, shared
from hobnob.testing.trial import Program, Trial

_STEPS, _STOP = 100, 40


@check(
    why="long runs are interrupted. What a step does must come from its state, its data and "
    "agent.draw_* alone, or the resumed run is another one."
)
def resume(trial: Trial) -> None:
    """Stopped, saved and resumed, it gives the same bit for bit; and so does a new process."""
    program = trial.sampled
    first, second = _program_texts(trial)
    expect(
        first == second,
        "traced twice, the step gives two different programs: it uses something that changes from "
        "one process to the next, such as random numbers of its own or a counter outside its state",
    )
    straight = _solved(program, _STEPS)
    with TemporaryDirectory() as folder:
        _solved(program, _STOP, checkpoint=folder)
        resumed = _solved(program, _STEPS, checkpoint=folder, resume=True)
    for name in ("x", "y"):
        off = np.abs(resumed.agents[name] - straight.agents[name]).max()
        expect(
            off == 0,
            f"{name} differs by {off:.1e} if the run is stopped at step {_STOP} and resumed",
        )
    for column, values in straight.history.items():
        if column != "seconds":
            same = np.array_equal(resumed.history[column], values)
            expect(same, f"column {column} of the history differs if the run is resumed")


def _solved(program: Program, steps: int, **more: Any) -> Result:
    # Exact metrics are the same for all algorithms, and slow to compile.
    return solve(
        program.problem,
        program.network,
        program.algorithm,
        steps=steps,
        record_every=15,
        metrics=["outer_loss", "consensus"],
        progress=False,
        runtime=_SameProgram(program.run),
        **more,
    )


class _SameProgram(Simulate):
    """A simulation that uses what is compiled already."""

    def __init__(self, run: Run):
        super().__init__(retunable=True)
        assert self.programs is not None
        self._run = run

    def join(self, setup: Setup) -> tuple[OneProcess, Rows]:
        found = super().join(setup)
        assert self.programs is not None
        run = Run(setup, *found)
        self.programs[run._program_key()] = self._run._loops
        return found


def _program_texts(trial: Trial) -> list[str]:
    """The step of one agent as XLA gets it, from two traces."""
    problem, one = trial.sampled.problem, shared(trial)
    with problem.precision():
        mine, key = places_of(problem, 0), trial.sampled.run.world.keys[0]
        state = one.init(mine, key)
        heard = np.zeros(one.shape_of_heard(mine, key, state), problem.dtype)
        given = mine, key, jnp.int32(0), state, heard
        return [agent.step.lower(*given).as_text() for agent in (one, made_for(trial))]
