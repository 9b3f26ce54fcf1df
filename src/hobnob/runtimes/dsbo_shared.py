"""DSBO where g has one Hessian H for all agents, batches, x and y: v is one matrix.

Compositional problems, where g = 1/2 |y - h(x)|^2, are of this kind. The v of all agents begin
alike, and (6) keeps them alike: W's rows sum to 1. So one of them is kept, and nothing is mixed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hobnob.agent import Agent
from hobnob.algorithms.dsbo import State
from hobnob.jaxprs import dependent, is_variable
from hobnob.problem import Problem
from hobnob.runtimes.dsbo_kernel import DSBOKernel, Lift


class SharedHessian(DSBOKernel):
    """The step of DSBO on states whose v is one matrix, (d, d)."""

    def packed(self, state: State) -> State:
        return state._replace(v=_first_matrix(state.v))

    def unpacked(self, state: State) -> State:
        shape = *state.y.shape[:-1], self._algorithm.terms, *state.v.shape
        return state._replace(v=jnp.broadcast_to(state.v, shape))

    def step(self, lift: Lift, state: State) -> State:
        qh = self._series(state.h, state.v)
        new, beta, H = lift(self._of_one_agent, state._replace(v=None), qh)
        beta = beta.reshape(-1)[0]  # the same for everyone, as H is
        return new._replace(v=(1 - beta) * state.v + beta * _first_matrix(H))  # (6)

    def _of_one_agent(
        self, agent: Agent, state: State, qh: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        new, beta, _, xis = self._all_but_v(agent, state, qh)
        return new, beta, agent.hessians(state.x, state.y, xis)

    def _series(self, h: jax.Array, v: jax.Array) -> jax.Array:
        """(7): q h of every agent, a row of h. v is symmetric."""
        b, L = self._algorithm.terms, self._algorithm.smoothness
        return jax.lax.fori_loop(0, b, lambda _, p: h + p - p @ v / L, h) / L


def one_hessian(problem: Problem) -> bool:
    """Whether g is seen, from its jaxpr, to have one Hessian for all agents, batches, x and y."""
    source, agents = problem.inner_data, problem.size

    def of_agent(x: jax.Array, y: jax.Array, place: jax.Array, key: jax.Array) -> jax.Array:
        return jax.hessian(problem.inner_loss, argnums=1)(x, y, place, source.draw(key, place))

    def each(size: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((agents, size), problem.dtype)

    of_all = jax.make_jaxpr(jax.vmap(of_agent, in_axes=(0, 0, source.per_agent, 0)))(
        each(problem.dim_x),
        each(problem.dim_y),
        jax.eval_shape(source.place),
        jax.eval_shape(lambda: jax.random.split(jax.random.key(0), agents)),
    ).jaxpr
    (hessians,) = of_all.outvars
    return not is_variable(hessians) or hessians not in dependent(of_all, of_all.invars)


def _first_matrix(stack: jax.Array) -> jax.Array:
    return stack.reshape(-1, *stack.shape[-2:])[0]
