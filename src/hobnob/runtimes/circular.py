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
    flat = stack.reshape(-1).astype(jnp.result_type(stack, tables["weights"]))
    length, block = flat.size, min(_BLOCK, flat.size)
    circle = jnp.pad(flat, (0, block))
    circle = circle.at[length:].set(circle[:block])  # for blocks that go past the end
    turns, weights = tables["distances"] * (length // len(stack)), tables["weights"]
    later = (len(turns) - 1) // _STREAMS  # groups of streams, after a first one that is shorter
    short = len(turns) - later * _STREAMS

    def heard(stream: Any, start: jax.Array) -> jax.Array:
        at = start - (length - turns[stream])
        at = jnp.where(at < 0, at + length, at)
        return weights[stream] * jax.lax.dynamic_slice(circle, (at,), (block,))

    def sum_block(number: jax.Array, sums: jax.Array) -> jax.Array:
        start = jnp.minimum(number * block, length - block).astype(jnp.int32)

        def add(group: jax.Array, total: jax.Array) -> jax.Array:
            first = short + group * _STREAMS
            return sum((heard(first + k, start) for k in range(_STREAMS)), total)

        total = sum(heard(k, start) for k in range(short))
        total = jax.lax.fori_loop(0, later, add, total)
        return jax.lax.dynamic_update_slice(sums, total, (start,))

    # Whatever is there before the sums: XLA makes room for zeros long before they are needed.
    room = circle[:length]
    sums = jax.lax.fori_loop(0, -(-length // block), sum_block, room)
    return sums.reshape(stack.shape)
