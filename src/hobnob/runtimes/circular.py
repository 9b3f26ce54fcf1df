"""W times a stack for a circulant W, where all agents hear those at the same distances from them.

Row by row, a sum over thirty neighbours reads thirty streams, more than a processor fetches ahead.
Here a block of sums stays in its cache while the streams come a few at a time.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from hobnob.networks._spectrum import circulant_row

_BLOCK = 2**14  # numbers
_STREAMS = 7


def circular_tables(W: csr_array, dtype: Any) -> dict[str, jax.Array] | None:
    """The distances at which agents hear each other and their weights, if W is circulant."""
    square = len(W.indptr) - 1 == int(W.indices.max()) + 1
    row = circulant_row(W) if square else None
    if row is None:
        return None
    distances = np.flatnonzero(row)
    return {
        "distances": jnp.asarray(distances, jnp.int32),
        "weights": jnp.asarray(row[distances], dtype),
    }


def mixed_around(tables: dict[str, jax.Array], stack: jax.Array) -> jax.Array:
    """W times a stack whose first axis is the agents: a sum of the stack, turned by distances."""
    agents, flat = len(stack), stack.reshape(-1)
    length = flat.size
    block = min(_BLOCK, length)
    circle = jnp.pad(flat, (0, block))
    circle = circle.at[length:].set(circle[:block])  # for blocks that go past the end
    turns = tables["distances"] * (length // agents)
    weights = tables["weights"]
    later = (len(turns) - 1) // _STREAMS  # groups of streams, after the first and shortest one

    def block_of_sums(number: jax.Array, sums: jax.Array) -> jax.Array:
        start = jnp.minimum(number * block, length - block).astype(jnp.int32)

        def terms(first: Any, count: int) -> list[jax.Array]:
            places = (start - (length - turns[first + k]) for k in range(count))
            return [
                weights[first + k]
                * jax.lax.dynamic_slice(circle, (jnp.where(at < 0, at + length, at),), (block,))
                for k, at in enumerate(places)
            ]

        def add(group: jax.Array, total: jax.Array) -> jax.Array:
            return sum(terms(len(turns) - (later - group) * _STREAMS, _STREAMS), total)

        total = sum(terms(0, len(turns) - later * _STREAMS))
        total = jax.lax.fori_loop(0, later, add, total)
        return jax.lax.dynamic_update_slice(sums, total, (start,))

    sums = jax.lax.fori_loop(0, -(-length // block), block_of_sums, jnp.zeros_like(flat))
    return sums.reshape(stack.shape)
