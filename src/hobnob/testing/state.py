"""What an algorithm says of its state, and that its step is compiled once."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from hobnob.testing.check import check, expect
from hobnob.testing.trial import Trial


@check(
    why="runs, checkpoints and metrics find x and y by their names, and a compiled loop can only "
    "repeat a step that returns what it was given."
)
def state(trial: Trial) -> None:
    """`suggest` gives settings; the state is a NamedTuple with x and y, and a step keeps its
    shapes."""
    expect(isinstance(trial.cls.exact, bool), "`exact` must be True or False")
    expect(
        isinstance(trial.short, trial.cls),
        f"`suggest` returned a {type(trial.short).__name__}, not a {trial.cls.__name__}",
    )
    program = trial.sampled
    problem, run = program.problem, program.run
    with problem.precision():
        shapes = jax.eval_shape(run._init, run.world)  # of `init`, before any step
        fields: tuple[str, ...] = getattr(shapes, "_fields", ())
        expect(fields, f"`init` returned a {type(shapes).__name__}, not a NamedTuple")
        for name, size in (("x", problem.dim_x), ("y", problem.dim_y)):
            expect(name in fields, f"its state has no {name}, only {', '.join(fields)}")
            found = getattr(shapes, name)
            expect(
                found.shape == (program.network.size, size) and found.dtype == problem.dtype,
                f"{name} of one agent is {found.dtype}{list(found.shape[1:])}, and the problem's "
                f"is {problem.dtype}[{size}]",
            )
        for name, leaf in zip(fields, shapes, strict=True):
            expect(hasattr(leaf, "shape"), f"{name} is not one array: use a field for each array")
        run.initial_state()  # refuses a step that changes shapes or dtypes


@check(
    why="a step that JAX compiles again while it runs takes seconds where it should take "
    "microseconds."
)
def one_compilation(trial: Trial) -> None:
    """Chunks of any length are one program."""
    program = trial.sampled
    run, reached = program.run, program.start()
    kinds = _kinds(reached)
    with program.problem.precision():
        for start, stop in ((0, 1), (1, 8), (8, 8), (8, 30)):
            reached = run.advance(reached, start, stop).state
    times = run.compilations()
    expect(times == 1, f"the loop was compiled {times} times")
    expect(_kinds(reached) == kinds, f"the state was {kinds} and became {_kinds(reached)}")
    for leaf in jax.tree.leaves(reached):
        expect(np.isfinite(np.asarray(leaf)).all(), "after 30 steps the state is not finite")


def _kinds(state: Any) -> list[str]:
    return [f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(state)]
