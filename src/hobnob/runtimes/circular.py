"""W times a stack for a circulant W, where all agents hear those at the same distances from them.

Row by row, a sum over thirty neighbours reads thirty streams, more than a processor fetches ahead.
Those nearby are one stream, though, which its cache holds for all of them. The others are added
afterwards: a block of sums stays in the cache while they come a few at a time.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from hobnob.networks._spectrum import circulant_row

_NEAR = 2**11  # agents
_BLOCK = 2**15  # numbers
_STREAMS = 6


def circular_tables(W: csr_array, dtype: Any) -> dict[str, jax.Array] | None:
    """The distances at which agents hear each other and their weights, if W is circulant.

    Those of "near" ones have a sign. "Far" ones are all taken in one direction, and come in groups
    of equal size, filled up with weights of 0.
    """
    square = len(W.indptr) - 1 == int(W.indices.max()) + 1
    row = circulant_row(W) if square else None
    if row is None:
        return None
    size, heard = len(row), row != 0
    way = np.arange(size) - np.where(2 * np.arange(size) > size, size, 0)
    near = abs(way) <= _reach(size)
    heard[0] = True  # an agent itself, whatever its weight
    close, far = np.flatnonzero(heard & near), np.flatnonzero(heard & ~near)
    groups = -(-len(far) // _STREAMS)
    shape = groups, -(-len(far) // max(groups, 1))
    weights = np.zeros(shape)
    weights.flat[: len(far)] = row[far]
    return {
        "near": jnp.asarray(way[close], jnp.int32),
        "near weights": jnp.asarray(row[close], dtype),
        "far": jnp.asarray(np.resize(far, shape), jnp.int32),
        "far weights": jnp.asarray(weights, dtype),
    }


def _reach(agents: int) -> int:
    return min(_NEAR, agents // 2)


def mixed_around(tables: dict[str, jax.Array], stack: jax.Array) -> jax.Array:
    """W times a stack whose first axis is the agents: a sum of the stack, turned by distances."""
    flat = stack.reshape(-1).astype(jnp.result_type(stack, tables["near weights"]))
    if not flat.size:
        return flat.reshape(stack.shape)
    length, block, width = flat.size, min(_BLOCK, flat.size), flat.size // len(stack)
    before = _reach(len(stack)) * width
    after = max(before, block)  # blocks of what is far go past the end, too
    circle = jnp.pad(flat, (before, after))
    circle = circle.at[:before].set(circle[length : length + before])
    circle = circle.at[before + length :].set(circle[before : before + after])

    def turned(by: jax.Array, size: int) -> jax.Array:
        return jax.lax.dynamic_slice(circle, (before + by,), (size,))

    near = zip(tables["near"], tables["near weights"], strict=True)
    sums = reduce(jnp.add, (weight * turned(way * width, length) for way, weight in near))
    turns, weights = tables["far"] * width, tables["far weights"]
    if not turns.size:
        return sums.reshape(stack.shape)

    def add_far(start: Any, size: int, sums: jax.Array) -> jax.Array:
        def heard(turn: jax.Array) -> jax.Array:
            at = start - (length - turn)
            return turned(jnp.where(at < 0, at + length, at), size)

        def add(group: jax.Array, total: jax.Array) -> jax.Array:
            streams = zip(turns[group], weights[group], strict=True)
            return sum((weight * heard(turn) for turn, weight in streams), total)

        total = jax.lax.dynamic_slice(sums, (start,), (size,))
        total = jax.lax.fori_loop(0, len(turns), add, total)
        return jax.lax.dynamic_update_slice(sums, total, (start,))

    blocks, rest = divmod(length, block)
    if rest:
        sums = add_far(jnp.int32(length - rest), rest, sums)
    sums = jax.lax.fori_loop(
        0, blocks, lambda i, sums: add_far((i * block).astype(jnp.int32), block, sums), sums
    )
    return sums.reshape(stack.shape)
