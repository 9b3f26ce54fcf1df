"""x stays within the problem's bounds."""

from __future__ import annotations

from copy import copy

import numpy as np

from hobnob.run.run import Run
from hobnob.testing.check import check, expect
from hobnob.testing.trial import Program, Trial
from hobnob.testing.worlds import BOUND

_PULL = 1000.0


@check(
    why="outside its bounds a problem may not be defined: `agent.project` must be the last thing "
    "that happens to x in a step."
)
def bounds(trial: Trial) -> None:
    """Pulled far outside, every x of every agent stays inside, at all steps that are looked at."""
    problem, network = trial.steady_world(pull=_PULL)
    farthest = _farthest(trial.steady, trial.steady.elsewhere(problem, network), BOUND)
    if _met(farthest, BOUND):
        return
    expect(
        farthest > BOUND / 100,
        f"in 150 steps x comes to {farthest:.1e}, so it hardly moves with the suggested settings",
    )
    # A method that divides its steps by what pulls at x comes less far. It meets nearer bounds.
    near, problem = farthest / 2, copy(problem)
    most = np.full(problem.dim_x, near)
    problem.x_bounds = -most, most
    program = Program(problem, network, trial.steady.algorithm)
    farthest = _farthest(program, program.run, near)
    expect(
        _met(farthest, near),
        f"without bounds x comes to {2 * near:.3g}, and with bounds of ±{near:.3g} it meets none",
    )


def _farthest(program: Program, run: Run, bound: float) -> float:
    """The largest |x_i| of any agent in 150 steps, none of which is beyond the bound."""
    found = 0.0
    with program.problem.precision():
        state = program.start(run)
        for start in range(0, 150, 5):
            state = run.advance(state, start, start + 5).state
            here = float(np.abs(np.asarray(run.layout.answer(state)[0])).max())
            expect(
                here <= bound,
                f"after {start + 5} steps an x is {here:.3g}, and its bounds are ±{bound:.3g}",
            )
            found = max(found, here)
    return found


def _met(farthest: float, bound: float) -> bool:
    return bool(np.isclose(farthest, bound, rtol=0, atol=1e-12))
