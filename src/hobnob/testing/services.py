"""Every service of the agent is called by the step itself, where it is counted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.testing.check import check
from hobnob.testing.one_agent import OneAgent, made_for, places_of, shared
from hobnob.testing.trial import Trial
from hobnob.testing.watched import Unmet


@check(
    why="costs are counted while the step is traced: inside a loop or a vmap of JAX's own, what "
    "happens many times is counted once, and every turn draws the same batch. Use agent.repeat, "
    "or `count` for several batches."
)
def services(trial: Trial) -> None:
    """No draw, derivative or message inside a loop, a cond, a vmap or a jit of JAX's own."""
    one = shared(trial)
    if _is_by_the_step(trial, one):
        return
    fine, names = 0, list(one.use.names)
    faulty = len(names)  # of so many services the last is at fault; of `fine` none is
    while faulty - fine > 1:
        some = (fine + faulty) // 2
        if _is_by_the_step(trial, made_for(trial, watch=some)):
            fine = some
        else:
            faulty = some
    raise Unmet(
        f"{names[faulty - 1]} is used inside a loop, a cond or a jit of JAX's own, or inside "
        f"agent.repeat by the agent of outside"
    )


def _is_by_the_step(trial: Trial, one: OneAgent) -> bool:
    """False if a mark of a service was made inside a transformation, and is used outside."""
    problem = trial.sampled.problem
    with problem.precision():
        mine, key = places_of(problem, 0), trial.sampled.run.world.keys[0]
        state = one.init(mine, key)
        heard = np.full(one.shape_of_heard(mine, key, state), np.nan, problem.dtype)
        try:
            one.step(mine, key, jnp.int32(0), state, heard)
        except jax.errors.UnexpectedTracerError:
            return False
    return True
