"""H^-1 h without an inverse: by a series in I - H/L, from stored Hessians or from products.

The two estimates from products invert the agent's own Hessian, so they suit a single agent. When
agents differ, the mean of their inverses is not the inverse of their mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from hobnob.core.agent import Agent


def stored_series(h: jax.Array, v: jax.Array, smoothness: float) -> jax.Array:
    """q h with q = (I + A_b (I + A_{b-1} (... (I + A_1)))) / L, A_i = I - v_i / L, never formed.

    p = h, then p <- h + p - v_i p / L for i = 1 .. b, then p / L: b matrix-vector products.
    """
    p, _ = jax.lax.scan(lambda p, v_i: (h + p - v_i @ p / smoothness, None), h, v)
    return p / smoothness


def whole_series(
    agent: Agent, x: jax.Array, y: jax.Array, h: jax.Array, terms: int, smoothness: float
) -> jax.Array:
    """SHIA: (1/L) sum_{j=0..b} prod_{i<=j} (I - H(xi_i)/L) h, nested from the inside out.

    p = h, then p <- h + p - H(xi_i) p / L for i = 1 .. b, then p / L.
    """

    def add_term(agent: Agent, i: jax.Array, p: jax.Array) -> jax.Array:
        return h + p - agent.hessian_product(x, y, agent.draw_inner("xi_i"), p) / smoothness

    return agent.repeat(terms, add_term, h) / smoothness


def random_term(
    agent: Agent, x: jax.Array, y: jax.Array, h: jax.Array, terms: int, smoothness: float
) -> jax.Array:
    """HIA: (N/L) prod_{j<n} (I - H(xi_j)/L) h with n uniform in 0 .. N - 1.

    All N - 1 batches are drawn and counted; only the first n are used.
    """
    return random_terms(agent, [(x, y)], [h], terms, smoothness)[0]


def random_terms(
    agent: Agent,
    points: Sequence[tuple[jax.Array, jax.Array]],
    hs: Sequence[jax.Array],
    terms: int,
    smoothness: float,
) -> list[jax.Array]:
    """HIA at several (x, y), each with its own h. All share one n and the same batches."""
    n = agent.draw_below("n", terms)

    def multiply(agent: Agent, j: jax.Array, ps: list[jax.Array]) -> list[jax.Array]:
        xi_j = agent.draw_inner("xi_j")

        def shrunk(x: jax.Array, y: jax.Array, p: jax.Array) -> jax.Array:
            return p - agent.hessian_product(x, y, xi_j, p) / smoothness

        pairs = zip(points, ps, strict=True)
        return [jnp.where(j < n, shrunk(*at, p), p) for at, p in pairs]

    ends = agent.repeat(terms - 1, multiply, list(hs))
    return [p * terms / smoothness for p in ends]
