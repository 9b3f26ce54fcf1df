"""W times a stack of agents, for a sparse W.

Neighbours are summed in ascending order of their number, self included, so that every runtime can
add up in the same order.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

_WIDEST_TABLE = 16  # entries a row: the sum over them is unrolled
_LARGEST_DENSE = 512  # agents


def mixing_tables(W: csr_array, dtype: Any) -> dict[str, jax.Array]:
    """W as the arrays that `mixed` multiplies with; their names tell how.

    - "table": every row padded to the longest, where rows are short;
    - "dense": W itself, for few agents with many neighbours;
    - "edges": one entry an edge otherwise. A star has one long row, which padding would square.
    """
    size, lengths = len(W.indptr) - 1, np.diff(W.indptr)
    if lengths.max() <= _WIDEST_TABLE:
        columns = np.tile(np.arange(size)[:, None], (1, lengths.max()))
        weights = np.zeros(columns.shape)
        row = np.repeat(np.arange(size), lengths)
        place = np.arange(W.nnz) - np.repeat(W.indptr[:-1], lengths)
        columns[row, place], weights[row, place] = W.indices, W.data
        return {
            "table": jnp.asarray(columns.T, jnp.int32),
            "weights": jnp.asarray(weights.T, dtype),
        }
    if size <= _LARGEST_DENSE:
        return {"dense": jnp.asarray(W.toarray(), dtype)}
    return {
        "from": jnp.asarray(W.indices, jnp.int32),
        "to": jnp.asarray(np.repeat(np.arange(size), lengths), jnp.int32),
        "weights": jnp.asarray(W.data, dtype),
    }


def mixed(tables: dict[str, jax.Array], stack: jax.Array) -> jax.Array:
    """W times a stack whose first axis is the agents."""
    if "dense" in tables:
        return jnp.tensordot(tables["dense"], stack, 1)
    weights = tables["weights"].reshape(tables["weights"].shape + (1,) * (stack.ndim - 1))
    if "table" in tables:
        terms = (w * stack[j] for j, w in zip(tables["table"], weights, strict=True))
        total = next(terms)
        for term in terms:
            total = total + term
        return total
    return jax.ops.segment_sum(
        weights * stack[tables["from"]],
        tables["to"],
        num_segments=stack.shape[0],
        indices_are_sorted=True,
    )
