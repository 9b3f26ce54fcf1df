"""SABA: SOBA with a memory of every record, so that its noise vanishes; one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """A table has one row per record: its vectors when it was last drawn."""

    x: jax.Array
    y: jax.Array
    z: jax.Array  # estimate of H^-1 grad_y f
    outer: jax.Array  # table of (grad_x f, grad_y f)
    inner: jax.Array  # table of (J z, grad_y g, H z)
    outer_mean: jax.Array  # of its rows
    inner_mean: jax.Array


@dataclass(frozen=True, kw_only=True)
class SABA(Algorithm):
    r"""SABA (Dagréou, Ablin, Vaiter and Moreau, "A Framework for Bilevel Optimization that Enables
    Stochastic and Global Variance Reduction Algorithms", NeurIPS 2022): SOBA with the memory of
    SAGA (Defazio, Bach and Lacoste-Julien, NeurIPS 2014) on all five quantities.

    An outer record i gives v_i = (grad_x f, grad_y f), an inner one v_i = (J z, grad_y g, H z). M
    has a row for each record: v_i when it was last computed. Every iteration draws a batch B of
    outer records and one of inner records, and for each of the two:

        (1)  v  = mean_{i in B} (v_i - M_i) + mean_i M_i
        (2)  M+_i = v_i                                                 for i in B
        (3)  y+ = y - gamma grad_y g
        (4)  z+ = z - beta (H z - grad_y f)
        (5)  x+ = x - alpha (grad_x f - J z)

    (3) to (5) use the five vectors of (1). Start: x = x0, y = y0, z = 0, M = 0, so a record counts
    as in `SOBA` when it is first drawn. (1) is unbiased from the start. As the iterates settle, so
    does M, and the noise vanishes: constant steps find the solution even with small batches.

    A record drawn twice in one batch counts twice in (1), but is one row of M in (2). With
    batch_size=None a batch is the whole shard: M has one row, and SABA is SOBA.

    Departures: the source has batches of one. It writes v = -z, and has one step size for y and v.
    If the problem bounds x, (5) is followed by a projection.

    Cost of an iteration: 2 batches; 2 gradients and 2 products of each record. Memory: n (d_x +
    d_y) numbers for the n outer records, and n (d_x + 2 d_y) for the n inner ones. The mean of M is
    kept up to date, so an iteration's time grows with the batches, not with the shards.

    Args:
        alpha, beta, gamma: step sizes of x, z and y. They may be constant.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=1, noise=0.1, batch_size=2)
        >>> saba = hb.SABA(alpha=0.01, beta=0.02, gamma=0.02)
        >>> hb.solve(problem, hb.complete(1), saba, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = True
    single_agent: ClassVar[bool] = True
    finite_sum: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()

    @classmethod
    def suggest(cls, scale: Scale) -> SABA:
        L, mu = scale
        return cls(alpha=0.05 * mu / L, beta=0.1 / L, gamma=0.1 / L)

    def init(self, agent: Agent) -> State:
        outer = agent.zeros(agent.outer_records, agent.dim_x + agent.dim_y)
        inner = agent.zeros(agent.inner_records, agent.dim_x + 2 * agent.dim_y)
        z = agent.zeros(agent.dim_y)
        return State(agent.x0, agent.y0, z, outer, inner, outer[0], inner[0])

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, *_ = state
        alpha, beta, gamma = agent.rates(self.alpha, self.beta, self.gamma)

        def outer_vectors(record: jax.Array) -> jax.Array:
            return jnp.concatenate(agent.outer_gradients(x, y, record))

        def inner_vectors(record: jax.Array) -> jax.Array:
            grad_y_g, products = agent.inner_products(x, y, record)
            Jz, Hz = products(z)
            return jnp.concatenate([Jz, grad_y_g, Hz])

        rows, latest = agent.each_outer(outer_vectors, agent.draw_outer("zeta"))
        v, outer, outer_mean = reduced(state.outer, state.outer_mean, rows, latest)
        grad_x_f, grad_y_f = jnp.split(v, [agent.dim_x])

        rows, latest = agent.each_inner(inner_vectors, agent.draw_inner("xi"))
        v, inner, inner_mean = reduced(state.inner, state.inner_mean, rows, latest)
        Jz, grad_y_g, Hz = jnp.split(v, [agent.dim_x, agent.dim_x + agent.dim_y])

        return State(
            x=agent.project(x - alpha * (grad_x_f - Jz)),  # (5)
            y=y - gamma * grad_y_g,  # (3)
            z=z - beta * (Hz - grad_y_f),  # (4)
            outer=outer,
            inner=inner,
            outer_mean=outer_mean,
            inner_mean=inner_mean,
        )


def reduced(
    M: jax.Array, mean: jax.Array, rows: jax.Array, latest: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(1) and (2): the estimate of the mean, the new table and the new mean of its rows."""
    change = latest - M[rows]
    times = jnp.sum(rows[:, None] == rows, axis=1)  # how often each record is in this batch
    share = change / times[:, None]
    # Added, not set: the write depends on the read, so XLA need not copy the table.
    table = M.at[rows].add(share)  # (2)
    return jnp.mean(change, axis=0) + mean, table, mean + jnp.sum(share, axis=0) / len(M)  # (1)
