"""How far the mean iterate is from the solution, if that is cheap enough to compute."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.analysis.exact import affordable
from hobnob.core.problem import Problem
from hobnob.metrics import metric
from hobnob.metrics.view import View


@metric(when=affordable)
def objective(view: View) -> jax.Array:
    """F at the mean x: the outer loss with the inner problem solved exactly."""
    return view.exact.value


@metric(when=affordable)
def gradient_norm(view: View) -> jax.Array:
    """|grad F| at the mean x; if x is bounded, the length of a unit projected gradient step."""
    if view.problem.x_bounds is None:
        return jnp.linalg.norm(view.exact.gradient)
    x = view.flat_x
    return jnp.linalg.norm(x - view.problem.project(x - view.exact.gradient))


@metric(when=affordable)
def inner_distance(view: View) -> jax.Array:
    """|y - y*(x)| at the mean x and the mean y; in a personal problem, the agents' root mean
    square of |y_k - y*_k(x)|."""
    off = jnp.linalg.norm(view.flat_y - view.exact.y, axis=-1)
    return jnp.sqrt(jnp.mean(off**2)) if view.problem.personal else off


def _solved(problem: Problem) -> bool:
    return problem.solution is not None


@metric(when=_solved)
def squared_error(view: View) -> jax.Array:
    """|x - x*|^2 at the mean x, for problems whose solution is known."""
    solution = view.problem.x_layout.ravel(view.problem.solution).astype(np.float64)
    return jnp.sum((view.flat_x - jnp.asarray(solution)) ** 2)
