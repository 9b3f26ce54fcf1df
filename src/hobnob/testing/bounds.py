"""x stays within the problem's bounds."""

from __future__ import annotations

import numpy as np

from hobnob.testing.check import check, expect
from hobnob.testing.trial import Trial
from hobnob.testing.worlds import BOUND

_PULL = 1000.0


@check(
    why="outside its bounds a problem may not be defined: `agent.project` must be the last thing "
    "that happens to x in a step."
)
def bounds(trial: Trial) -> None:
    """Pulled far outside, every x of every agent stays inside, at all steps that are looked at."""
    program = trial.steady
    run = program.elsewhere(*trial.steady_world(pull=_PULL))
    met = False
    with program.problem.precision():
        state = program.start(run)
        for start in range(0, 150, 5):
            state = run.advance(state, start, start + 5).state
            x = np.asarray(run.layout.answer(state)[0])
            farthest = np.abs(x).max()
            expect(
                farthest <= BOUND,
                f"after {start + 5} steps an x is {farthest:.3g}, and its bounds are ±{BOUND:g}",
            )
            met |= bool(np.isclose(farthest, BOUND, rtol=0, atol=1e-12))
    expect(met, "no bound was met in 150 steps, so x hardly moves with the suggested settings")
