"""F, its gradient, y*(x) and inner Hessians from all data, for both kinds of problems.

Where all agents have one y, the mean losses are solved. Where each has its own, each agent's losses
are, and F and its gradient are means over agents. y then has a leading axis of agents.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from hobnob.analysis.newton import solve_flat_inner, solve_inner
from hobnob.core.problem import Problem


class Solved(NamedTuple):
    """F(x), its gradient, y*(x), and what is left of |grad_y g|: a number, or one an agent."""

    value: jax.Array
    gradient: jax.Array
    y: jax.Array
    left: jax.Array


def solve_problem(
    problem: Problem, places: Any, x: jax.Array, y: jax.Array, many_solutions: bool = False
) -> Solved:
    """For flat x and a first guess y. Of many inner solutions, that of the smallest norm."""
    if not problem.personal:
        solve = solve_flat_inner if many_solutions else solve_inner
        return Solved(
            *solve(
                lambda x, y: problem.pooled_outer(x, y, places[0]),
                lambda x, y: problem.pooled_inner(x, y, places[1]),
                x,
                y,
            )
        )

    def of_agent(y: jax.Array, places: Any) -> Solved:
        return Solved(
            *solve_inner(
                lambda x, y: problem.own_outer(x, y, places[0]),
                lambda x, y: problem.own_inner(x, y, places[1]),
                x,
                y,
            )
        )

    per_agent = problem.outer_data.per_agent, problem.inner_data.per_agent
    each = jax.vmap(of_agent, in_axes=(0, per_agent))(y, places)
    return each._replace(value=each.value.mean(), gradient=each.gradient.mean(axis=0))


def inner_hessians(problem: Problem, place: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """grad_yy g: [1, d_y, d_y] of the mean, or [agents, d_y, d_y] if each has its own y."""
    if not problem.personal:
        return jax.hessian(lambda y: problem.pooled_inner(x, y, place))(y)[None]

    def of_agent(y: jax.Array, place: Any) -> jax.Array:
        return jax.hessian(lambda y: problem.own_inner(x, y, place))(y)

    return jax.vmap(of_agent, in_axes=(0, problem.inner_data.per_agent))(y, place)
