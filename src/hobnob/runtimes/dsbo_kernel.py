"""DSBO for all agents at once, laid out for speed: the same numbers as `DSBO.step`, to rounding.

Nearly all of DSBO's time goes into v, b Hessians an agent, which (7) reads and (6) rewrites in
every iteration. Two things make that several times faster than lifting the step of one agent:

- Agents come last, in *lanes*: every number of v is followed by the same number of the other
  agents. The b dependent products of (7) are short; across agents they are long and independent.
- v is symmetric, so only its upper triangle is kept: about half as much to read and to write.

States stay in this layout from chunk to chunk: `packed` and `unpacked` are its two doors. What is
left of the iteration, (1) to (5), is small and is lifted from one agent, as everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint

from hobnob.agent import Agent
from hobnob.algorithm import Algorithm
from hobnob.algorithms.dsbo import DSBO, State
from hobnob.links import Links
from hobnob.network import Network
from hobnob.problem import Problem
from hobnob.runtimes.factored import Factored, factored_hessians

# Where it pays: with a wide y, products of whole matrices do as well; few lanes leave the processor
# idle; a large W, mixed as a whole, costs more than it saves.
_WIDEST_Y, _FEWEST_LANES, _LARGEST_NETWORK = 32, 2, 128
_MOST_LANES = 64  # then the next seed waits
_MOST_SHIFTS = 6  # a ring needs 3; beyond, one product with all of W costs less than the shifts

Lift = Callable[..., Any]  # lift(act, *trees): `act(agent, *trees)` for every agent of every seed


def kernel_for(
    problem: Problem, network: Network, algorithm: Algorithm, links: Links | None, seeds: int
) -> DSBOKernel | None:
    """The kernel of a run, or None where the lifted step of one agent is to be used."""
    if type(algorithm) is not DSBO:  # a subclass may have a step of its own
        return None
    if problem.dim_y > _WIDEST_Y or network.size > _LARGEST_NETWORK:
        return None
    if network.size * seeds < _FEWEST_LANES:
        return None
    return DSBOKernel(algorithm, problem.dim_y, network, links is not None, seeds)


class DSBOKernel:
    """The step of DSBO on states whose v is `packed`: (b, d (d + 1) / 2, [seeds,] agents).

    Where a step is to have one seed only, seeds come first.
    """

    def __init__(self, algorithm: DSBO, dim_y: int, network: Network, links_fail: bool, seeds: int):
        self._algorithm, self._links_fail = algorithm, links_fail
        self.alone = network.size * seeds > _MOST_LANES  # whether a step is to have one seed only
        self._upper = np.triu_indices(dim_y)
        # Where the entry (i, j) of a matrix is found in its upper triangle.
        self._place = np.zeros((dim_y, dim_y), np.int32)
        self._place[self._upper] = self._place.T[self._upper] = np.arange(len(self._upper[0]))
        self._W = network.matrix
        row, column = np.nonzero(self._W)
        # Failing links change weights, and leave no agent with more neighbours than it has.
        self._shifts = sorted({int(s) for s in (column - row) % network.size})

    def retuned(self, rates: Mapping[str, jax.Array]) -> DSBOKernel:
        """The same with other step sizes."""
        other = copy(self)
        other._algorithm = self._algorithm.with_traced(rates)
        return other

    def packed(self, state: State) -> State:
        return state._replace(v=self._each(state, self._upper_in_lanes)(state.v))

    def unpacked(self, state: State) -> State:
        return state._replace(v=self._each(state, partial(_squares, self._place))(state.v))

    def _each(self, state: State, act: Callable[[jax.Array], jax.Array]) -> Callable[..., Any]:
        """`act`, for one seed after the other where a step has only one."""
        return jax.vmap(act) if self.alone and state.x.ndim > 2 else act

    def step(self, lift: Lift, state: State) -> State:
        """One iteration of a packed state."""
        small = state._replace(v=None)
        qh = _from_lanes(self._series(_to_lanes(state.h), state.v))
        units = None
        if self._links_fail:
            units = jnp.broadcast_to(
                jnp.eye(len(self._W), dtype=qh.dtype), (*qh.shape[:-1], len(self._W))
            )
        new, beta, W, H = lift(self._of_one_agent, small, qh, units)
        W = self._W.astype(qh.dtype) if W is None else W
        beta = beta.reshape(-1)[0]  # the same for everyone
        v = (1 - beta) * self._mixed(W, state.v) + beta * self._hessians(H)  # (6)
        return new._replace(v=v)

    def _of_one_agent(self, agent: Agent, state: State, qh: jax.Array, unit: Any) -> Any:
        """(1) to (5), and what (6) needs: beta, the agent's row of W if links fail, and H."""
        a = self._algorithm
        x, y, s, _, u, _ = state
        alpha, beta, gamma = agent.rates(a.alpha, a.beta, a.gamma)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        xis = agent.draw_inner("xi_i", a.terms)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)

        W, row = agent.mix((state, unit))  # unit vectors, mixed, are the weights of this round
        new = State(
            x=agent.project(W.x - alpha * (s - u @ qh)),  # (1)
            y=W.y - gamma * agent.inner_gradient(x, y, xi),  # (2)
            s=(1 - beta) * W.s + beta * grad_x_f,  # (3)
            h=(1 - beta) * W.h + beta * grad_y_f,  # (4)
            u=(1 - beta) * W.u + beta * agent.cross(x, y, xi),  # (5)
            v=state.v,  # not here
        )
        H = factored_hessians(lambda y, batch: agent._inner(x, y, batch), y, xis)
        return new, beta, row, agent.hessians(x, y, xis) if H is None else H

    def _series(self, h: jax.Array, v: jax.Array) -> jax.Array:
        """(7): q h, with h and v in lanes."""
        L = self._algorithm.smoothness

        def add_term(p: jax.Array, v_i: jax.Array) -> Any:
            return h + p - (v_i[self._place] * p).sum(axis=1) / L, None

        p, _ = jax.lax.scan(add_term, h, v)
        return p / L

    def _mixed(self, W: Any, v: jax.Array) -> jax.Array:
        """W times the agents, the last axis."""
        size = W.shape[-1]
        if len(self._shifts) > _MOST_SHIFTS:
            return jnp.einsum("...j,...kj->...k", v, W)
        agents = np.arange(size)

        def shifted(shift: int) -> jax.Array:
            weights = W[..., agents, (agents + shift) % size]
            if isinstance(W, np.ndarray) and (weights == weights[0]).all():
                weights = weights[0]  # as on a ring
            return weights * jnp.roll(v, -shift, axis=-1)

        return sum(map(shifted, self._shifts[1:]), shifted(self._shifts[0]))

    def _hessians(self, H: Any) -> jax.Array:
        """The upper triangles in lanes, of matrices or of their factors."""
        if not isinstance(H, Factored):
            return self._upper_in_lanes(H)
        rows, columns = self._upper
        A, C, upper = (
            _laid_out(jnp.moveaxis(array, source, range(len(source))))
            for array, source in (
                (H.A, (-3, -2, -1)),
                (H.C, (-3, -2, -1)),
                (H.S[..., rows, columns], (-1,)),
            )
        )
        CA = (C[:, :, :, None] * A[:, None]).sum(axis=2)
        for m in range(A.shape[1]):
            upper = upper + A[:, m][:, rows] * CA[:, m][:, columns]
        return jnp.broadcast_to(upper, (len(A), *upper.shape[-A.ndim + 2 :]))

    def _upper_in_lanes(self, matrices: jax.Array) -> jax.Array:
        """([seeds,] agents, b, d, d) -> (b, d (d + 1) / 2, [seeds,] agents)."""
        rows, columns = self._upper
        entries = matrices.reshape(*matrices.shape[:-2], -1)
        upper = entries[..., rows * matrices.shape[-1] + columns]
        return jnp.moveaxis(upper, (-2, -1), (0, 1))


@jax.jit
def _squares(place: np.ndarray, v: jax.Array) -> jax.Array:
    """(b, d (d + 1) / 2, [seeds,] agents) -> ([seeds,] agents, b, d, d)."""
    return _laid_out(jnp.moveaxis(v, (0, 1), (-2, -1)))[..., place]


def _to_lanes(vectors: jax.Array) -> jax.Array:
    return jnp.moveaxis(vectors, -1, 0)


def _from_lanes(vectors: jax.Array) -> jax.Array:
    return jnp.moveaxis(vectors, 0, -1)


def _laid_out(array: jax.Array) -> jax.Array:
    """The array in memory as its axes say, for who reads it often; XLA may leave it transposed."""
    return with_layout_constraint(array, Layout(tuple(range(array.ndim))))
