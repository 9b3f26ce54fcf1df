"""Where constant step sizes lead, held to what the algorithm says of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from hobnob.analysis.exact import exact
from hobnob.core.algorithm import Algorithm
from hobnob.core.problem import Problem
from hobnob.ground import keys
from hobnob.run.run import Run
from hobnob.testing.check import check, expect
from hobnob.testing.trial import Program, Trial
from hobnob.testing.watched import Unmet

_SEEDS = 40


@check(
    why="users choose methods by what they say of themselves: whether constant step sizes lead to "
    "the solution, near it, or elsewhere."
)
def solution(trial: Trial) -> None:
    """On a problem without noise whose agents differ, `exact`, `biased` and `chance` are true."""
    program = trial.steady
    cls, start = trial.cls, _gradient(program.problem, program.problem.x0)
    steps = 400 if _grows(program) else 3_000
    if cls.exact:
        _is_exact(program, steps)
    elif cls.biased:
        _is_biased(trial, program, steps, start)
    elif cls.chance:
        _is_right_in_the_mean(program, steps, start)
    else:
        _comes_closer(program, steps, start)


def _is_exact(program: Program, steps: int) -> None:
    run, state, off = program.run, program.start(), float("inf")
    for start in range(0, 5 * steps, steps):
        with run.problem.precision():
            state = run.advance(state, start, start + steps).state
            x = np.asarray(run.layout.answer(state)[0]).mean(axis=0)
        off = _gradient(run.problem, _finite(x, start + steps))
        if off <= 1e-9:
            return
    raise Unmet(
        f"it says that it is exact, and after {5 * steps} steps |grad F| is {off:.1e}, above 1e-9"
    )


def _is_biased(trial: Trial, program: Program, steps: int, start: float) -> None:
    wrong = [_final_gradient(program, steps, slower=factor) for factor in (1, 2)]
    expect(
        min(wrong) > start / 200,
        f"it says that it is biased, and is not: |grad F| falls from {start:.1e} to "
        f"{min(wrong):.1e}",
    )
    expect(
        wrong[1] > wrong[0] / 1.5,
        f"it says that it is biased, and smaller steps mend that: |grad F| is {wrong[0]:.1e}, and "
        f"{wrong[1]:.1e} with half the step sizes",
    )
    same = program.elsewhere(*trial.steady_world(heterogeneity=0.0))
    right = _final_gradient(program, steps, run=same)
    expect(
        right < min(wrong) / 5,
        f"identical agents should find the right point, and |grad F| is {right:.1e}; where agents "
        f"differ it is {min(wrong):.1e}",
    )


def _is_right_in_the_mean(program: Program, steps: int, start: float) -> None:
    """The mean over seeds: the iterates themselves keep moving."""
    found = []
    for seed in range(_SEEDS):
        found.append(_final_x(program, steps, program.elsewhere(keys=_keys(program, seed))))
    off = _gradient(program.problem, np.mean(found, axis=0))
    expect(
        off < start / 20,
        f"it says that it is right in the mean, and |grad F| at the mean of {_SEEDS} seeds is "
        f"{off:.1e}; it was {start:.1e} at the start",
    )


def _comes_closer(program: Program, steps: int, start: float) -> None:
    coarse = _final_gradient(program, steps)
    expect(
        coarse > 1e-6,
        f"it says that it is not exact, and |grad F| falls to {coarse:.1e}: let it say exact = "
        f"True",
    )
    fine = _final_gradient(program, 10 * steps, slower=10)
    expect(
        fine < coarse / 5,
        f"a tenth of the step sizes must bring it closer: |grad F| is {coarse:.1e}, and {fine:.1e} "
        f"with a tenth",
    )
    expect(
        fine < start / 100,
        f"with a tenth of the step sizes |grad F| is {fine:.1e}; it was {start:.1e} at the start",
    )


def _final_gradient(
    program: Program, steps: int, slower: float = 1, run: Run | None = None
) -> float:
    if slower != 1:
        run = program.elsewhere(algorithm=_slowed(program.algorithm, slower))
    problem = (run or program.run).problem
    return _gradient(problem, _final_x(program, steps, run))


def _final_x(program: Program, steps: int, run: Run | None) -> np.ndarray:
    return _finite(program.end(steps, run)["x"].mean(axis=0), steps)


def _finite(x: np.ndarray, steps: int) -> np.ndarray:
    expect(np.isfinite(x).all(), f"within {steps} steps it diverges with the suggested settings")
    return x


def _gradient(problem: Problem, x: Any) -> float:
    known = getattr(problem, "closed_form", None)
    found = known(x) if known else exact(problem, x)
    return float(np.linalg.norm(found.gradient))


def _keys(program: Program, seed: int) -> jax.Array:
    with program.problem.precision():
        agents = np.arange(program.network.size, dtype=np.uint32)
        return jax.vmap(keys.of_agent, in_axes=(None, 0))(np.uint32(seed), agents)


def _grows(program: Program) -> bool:
    """True if an iteration costs more the later it is."""
    with program.problem.precision():
        first, both = (program.run.costs.until(steps)["samples"][0] for steps in (1, 2))
        return bool(both > 2 * first)


def _slowed(algorithm: Algorithm, factor: float) -> Algorithm:
    """The same algorithm with every step size divided by a factor."""
    sizes = {name: size / factor for name, size in algorithm.step_sizes().items()}
    return replace(algorithm, **sizes)
