"""DSBO laid out for speed: agents in lanes, and half of v.

Two things make v several times faster than lifting the step of one agent:

- Agents come last, in *lanes*: every number of v is followed by the same number of the other
  agents. The b dependent products of (7) are short; across agents they are long and independent.
- v is symmetric, so only its upper triangle is kept: about half as much to read and to write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.algorithms.dsbo import DSBO, State
from hobnob.core.agent import Agent
from hobnob.core.network import Network
from hobnob.fast.dsbo_base import FastDSBO
from hobnob.fast.factored import Factored, factored_hessians
from hobnob.fast.step import Lift, StateLayout
from hobnob.fast.xla import laid_out, rolled

_MOST_LANES = 64  # then the next seed waits
_MOST_SHIFTS = 6  # a ring needs 3; beyond, one product with all of W costs less than the shifts


@dataclass(frozen=True)
class Lanes(StateLayout):
    """v as (b, d (d + 1) / 2, [seeds,] agents); with `one_seed`, that for each seed."""

    dim_y: int
    one_seed: bool

    @cached_property
    def upper(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows and the columns of an upper triangle."""
        return np.triu_indices(self.dim_y)

    @cached_property
    def place(self) -> np.ndarray:
        """Where the entry (i, j) of a matrix is found in its upper triangle."""
        place = np.zeros((self.dim_y, self.dim_y), np.int32)
        place[self.upper] = place.T[self.upper] = np.arange(len(self.upper[0]))
        return place

    def pack(self, state: State) -> State:
        return state._replace(v=self._each(state, self.upper_in_lanes)(state.v))

    def unpack(self, packed: State) -> State:
        return packed._replace(v=self._each(packed, self._squares)(packed.v))

    def disagreements(self, packed: State) -> dict[str, jax.Array]:
        return {"v": self._each(packed, self._disagreement)(packed.v)}

    def upper_in_lanes(self, matrices: jax.Array) -> jax.Array:
        """([seeds,] agents, b, d, d) -> (b, d (d + 1) / 2, [seeds,] agents)."""
        rows, columns = self.upper
        entries = matrices.reshape(*matrices.shape[:-2], -1)
        upper = entries[..., rows * self.dim_y + columns]
        return jnp.moveaxis(upper, (-2, -1), (0, 1))

    @partial(jax.jit, static_argnums=0)
    def _squares(self, v: jax.Array) -> jax.Array:
        """(b, d (d + 1) / 2, [seeds,] agents) -> ([seeds,] agents, b, d, d)."""
        return laid_out(jnp.moveaxis(v, (0, 1), (-2, -1)))[..., self.place]

    def _disagreement(self, v: jax.Array) -> jax.Array:
        if v.ndim > 3:
            return jax.vmap(self._disagreement, in_axes=-2)(v)
        rows, columns = self.upper
        times = np.where(rows == columns, 1, 2).astype(v.dtype)  # that an entry is in the matrix
        deviations = (v - v.mean(axis=-1, keepdims=True)) * np.sqrt(times)[:, None]
        return deviations.ravel() @ deviations.ravel() / v.shape[-1]

    def _each(self, state: State, act: Callable[[jax.Array], jax.Array]) -> Callable[..., Any]:
        """`act`, for one seed after the other where a step has only one."""
        return jax.vmap(act) if self.one_seed and state.x.ndim > 2 else act


class InLanes(FastDSBO):
    """The step of DSBO on states in lanes."""

    def __init__(self, algorithm: DSBO, dim_y: int, network: Network, links_fail: bool, seeds: int):
        self.one_seed = network.size * seeds > _MOST_LANES
        self.layout = Lanes(dim_y, self.one_seed)
        super().__init__(algorithm, self.layout)
        self._links_fail = links_fail
        self._W = network.matrix
        row, column = np.nonzero(self._W)
        # Failing links change weights, and leave no agent with more neighbours than it has.
        self._shifts = sorted({int(s) for s in (column - row) % network.size})

    def step(self, lift: Lift, packed: State) -> State:
        small = packed._replace(v=None)
        qh = _from_lanes(self._series(_to_lanes(packed.h), packed.v))
        units = None
        if self._links_fail:
            units = jnp.broadcast_to(
                jnp.eye(len(self._W), dtype=qh.dtype), (*qh.shape[:-1], len(self._W))
            )
        new, beta, W, H = lift(self._of_one_agent, small, qh, units)
        W = self._W.astype(qh.dtype) if W is None else W
        beta = beta.reshape(-1)[0]  # the same for everyone
        v = (1 - beta) * self._mixed(W, packed.v) + beta * self._hessians(H)  # (6)
        return new._replace(v=v)

    def _of_one_agent(self, agent: Agent, state: State, qh: jax.Array, unit: Any) -> Any:
        # Unit vectors, mixed, are the weights of this round.
        new, beta, row, xis = self._all_but_v(agent, state, qh, unit)
        x, y = state.x, state.y
        H = factored_hessians(lambda y, batch: agent._inner(x, y, batch), y, xis)
        return new, beta, row, agent.hessians(x, y, xis) if H is None else H

    def _series(self, h: jax.Array, v: jax.Array) -> jax.Array:
        """(7): q h, with h and v in lanes."""
        L = self._algorithm.smoothness

        def add_term(p: jax.Array, v_i: jax.Array) -> Any:
            return h + p - (v_i[self.layout.place] * p).sum(axis=1) / L, None

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
            return weights * rolled(v, -shift)

        return sum(map(shifted, self._shifts[1:]), shifted(self._shifts[0]))

    def _hessians(self, H: Any) -> jax.Array:
        """The upper triangles in lanes, of matrices or of their factors."""
        if not isinstance(H, Factored):
            return self.layout.upper_in_lanes(H)
        rows, columns = self.layout.upper
        A, C, upper = (
            laid_out(jnp.moveaxis(array, source, range(len(source))))
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


def _to_lanes(vectors: jax.Array) -> jax.Array:
    return jnp.moveaxis(vectors, -1, 0)


def _from_lanes(vectors: jax.Array) -> jax.Array:
    return jnp.moveaxis(vectors, 0, -1)
