"""DSBO where g has one Hessian H for all agents, batches, x and y: v is one matrix.

Compositional problems, where g = 1/2 |y - h(x)|^2, are of this kind. All agents start with the
same v, and (6) keeps them equal since W's rows sum to 1. So one v is kept and nothing is mixed. If
H is diagonal, so is v, and only its diagonal is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.algorithms.dsbo import DSBO, State
from hobnob.core.agent import Agent
from hobnob.core.problem import Problem
from hobnob.fast.dsbo_base import FastDSBO
from hobnob.fast.jaxprs import dependent, evaluate, inlined, is_variable
from hobnob.fast.step import Lift, StateLayout


@dataclass(frozen=True)
class OneForAll(StateLayout):
    """v as one matrix, (d, d), or as its diagonal, (d,)."""

    terms: int
    diagonal: bool

    def pack(self, state: State) -> State:
        first = state.v.reshape(-1, *state.v.shape[-2:])[0]
        return state._replace(v=self.kept(first))

    def unpack(self, packed: State) -> State:
        v = jnp.diag(packed.v) if self.diagonal else packed.v
        shape = *packed.y.shape[:-1], self.terms, *v.shape
        return packed._replace(v=jnp.broadcast_to(v, shape))

    def disagreements(self, packed: State) -> dict[str, jax.Array]:
        return {"v": jnp.zeros(packed.y.shape[:-2], packed.v.dtype)}

    def kept(self, matrix: Any) -> Any:
        return matrix.diagonal() if self.diagonal else matrix


class SharedHessian(FastDSBO):
    """The step of DSBO on states that have one v."""

    def __init__(self, algorithm: DSBO, H: np.ndarray):
        # v begins as a multiple of the identity.
        diagonal = bool((np.diag(np.diag(H)) == H).all())
        self.layout = OneForAll(algorithm.terms, diagonal)
        super().__init__(algorithm, self.layout)
        self._H = self.layout.kept(H)

    def step(self, lift: Lift, packed: State) -> State:
        qh = self._series(packed.h, packed.v)
        new, beta = lift(self._of_one_agent, packed._replace(v=None), qh)
        beta = beta.reshape(-1)[0]  # the same for everyone
        return new._replace(v=(1 - beta) * packed.v + beta * self._H)  # (6)

    def _of_one_agent(self, agent: Agent, state: State, qh: jax.Array) -> tuple[State, jax.Array]:
        new, beta, *_ = self._all_but_v(agent, state, qh)
        return new, beta

    def _series(self, h: jax.Array, v: jax.Array) -> jax.Array:
        """(7): q h of every agent, a row of h."""
        b, L = self._algorithm.terms, self._algorithm.smoothness

        def add_term(_: Any, p: jax.Array) -> jax.Array:
            return h + p - (p * v if self.layout.diagonal else p @ v) / L  # v is symmetric

        return jax.lax.fori_loop(0, b, add_term, h) / L


def one_hessian(problem: Problem) -> np.ndarray | None:
    """H, if the jaxpr of g shows that it is the same for all agents, batches, x and y."""
    source, agents = problem.inner_data, problem.size

    def of_agent(x: jax.Array, y: jax.Array, place: jax.Array, key: jax.Array) -> jax.Array:
        return jax.hessian(problem.inner_loss, argnums=1)(x, y, place, source.draw(key, place))

    def each(size: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((agents, size), problem.dtype)

    of_all = jax.vmap(of_agent, in_axes=(0, 0, source.per_agent, 0))
    inputs = (
        each(problem.dim_x),
        each(problem.dim_y),
        jax.eval_shape(source.place),
        jax.eval_shape(lambda: jax.random.split(jax.random.key(0), agents)),
    )
    seen = jax.make_jaxpr(of_all)(*inputs).jaxpr
    if set(filter(is_variable, seen.outvars)) & dependent(seen, seen.invars):
        return None
    flat = inlined(of_all, *inputs)
    unknown = dict.fromkeys(dependent(flat.jaxpr, flat.jaxpr.invars))
    given = [None] * len(flat.jaxpr.invars)
    H = jax.jit(lambda: evaluate(flat.jaxpr, flat.consts, given, flat.jaxpr.outvars, unknown)[0][0])
    return np.asarray(H())
