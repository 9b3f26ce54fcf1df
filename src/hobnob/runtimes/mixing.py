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

_NARROW_TABLE, _WIDEST_TABLE = 16, 64  # entries a row: the sum over them is unrolled
_LARGEST_DENSE = 512  # agents
_LONGEST_ROW = 256  # numbers an agent sends, for all of them to be gathered together


def mixing_tables(W: csr_array, dtype: Any) -> dict[str, jax.Array]:
    """W as the arrays that `mixed` multiplies with; their names tell how.

    - "table": every row padded to the longest, where rows are short or about equally long;
    - "dense": W itself, for few agents with many neighbours;
    - "edges": one entry an edge otherwise. A star has one long row, which padding would square.
    """
    size, lengths = len(W.indptr) - 1, np.diff(W.indptr)
    narrow = lengths.max() <= _NARROW_TABLE
    even = lengths.max() <= _WIDEST_TABLE and size * lengths.max() <= 2 * W.nnz
    if narrow or (even and size > _LARGEST_DENSE):
        columns = np.tile(np.arange(size)[:, None], (1, lengths.max()))
        weights = np.zeros(columns.shape)
        row = np.repeat(np.arange(size), lengths)
        place = np.arange(W.nnz) - np.repeat(W.indptr[:-1], lengths)
        columns[row, place], weights[row, place] = W.indices, W.data
        return {
            "table": jnp.asarray(columns.T, jnp.int32),
            "weights": jnp.asarray(weights.T, dtype),
            "chosen": jnp.array(True),
        }
    if size <= _LARGEST_DENSE:
        return {"dense": jnp.asarray(W.toarray(), dtype)}
    return {
        "from": jnp.asarray(W.indices, jnp.int32),
        "to": jnp.asarray(np.repeat(np.arange(size), lengths), jnp.int32),
        "weights": jnp.asarray(W.data, dtype),
    }


def mixed(tables: dict[str, jax.Array], stack: jax.Array) -> jax.Array:
    """W times a stack whose first axis is the agents; with a server's tables, their mean."""
    if "mean" in tables:
        return jnp.broadcast_to(stack.mean(axis=0), stack.shape)
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


def mixed_tree(tables: dict[str, jax.Array], tree: Any) -> Any:
    """W times every array of a tree."""
    leaves, structure = jax.tree.flatten(tree)
    rows = [leaf.reshape(len(leaf), -1) for leaf in leaves]
    widths = [row.shape[1] for row in rows]
    neighbours, agents = tables["table"].shape if "table" in tables else (0, 0)
    alike = len({leaf.dtype for leaf in leaves}) == 1
    scattered = agents > _LARGEST_DENSE and neighbours > 3  # an agent's neighbours are far from it
    if not (scattered and alike and sum(widths) <= _LONGEST_ROW):
        return jax.tree.map(lambda leaf: mixed(tables, leaf), tree)
    # One trip to each neighbour for all it sent. XLA does not know how the choice falls, so it has
    # the messages ready before; without it, each would be computed by all who hear it.
    sent = jnp.concatenate(rows, axis=1)
    heard = jax.lax.cond(tables["chosen"], lambda: mixed(tables, sent), lambda: sent)
    parts = jnp.split(heard, np.cumsum(widths)[:-1], axis=1)
    return structure.unflatten(
        part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)
    )


def failing_tables(
    tables: dict[str, jax.Array],
    W: csr_array,
    ends: np.ndarray,
    numbers: np.ndarray | None = None,
) -> dict[str, Any]:
    """What `without` needs besides: for every weight its link's number, and whether it is own.

    A number past the last link stands for no link at all: an agent's own weight, or padding.
    `numbers` are the agents behind W's columns, where those of its rows come first.
    """
    rows = len(W.indptr) - 1
    if "table" in tables:
        to = np.broadcast_to(np.arange(rows), tables["table"].shape)
        from_ = np.asarray(tables["table"])
    elif "dense" in tables:
        to, from_ = np.indices(tables["dense"].shape)
    else:
        to, from_ = np.asarray(tables["to"]), np.asarray(tables["from"])
    own = to == from_
    numbers = np.arange(rows) if numbers is None else numbers
    to, from_ = numbers[to], numbers[from_]
    if "table" in tables:
        own &= np.cumsum(own, axis=0) == 1  # padding names the agent again
    size = 1 + int(max(to.max(), from_.max(), ends.max(initial=0)))
    known = ends[:, 0] * size + ends[:, 1]
    asked = np.minimum(to, from_) * size + np.maximum(to, from_)
    place = np.minimum(np.searchsorted(known, asked), max(len(known) - 1, 0))
    linked = known[place] == asked if len(known) else np.zeros(asked.shape, bool)
    link = np.where(linked, place, len(ends))
    return {"link": jnp.asarray(link, jnp.int32), "own": jnp.asarray(own)}


def without(
    tables: dict[str, jax.Array], failing: dict[str, jax.Array], down: jax.Array
) -> dict[str, jax.Array]:
    """The tables with the links that are down taken out; both ends keep the weight themselves."""
    name = "dense" if "dense" in tables else "weights"
    weights = tables[name]
    gone = jnp.append(down, False)[failing["link"]]
    lost = jnp.where(gone, weights, 0)
    if "dense" in tables:
        kept = lost.sum(axis=1, keepdims=True)
    elif "table" in tables:
        kept = lost.sum(axis=0)
    else:
        # No more agents than weights, since everyone's own is there; a loop must know a number.
        kept = jax.ops.segment_sum(
            lost, tables["to"], num_segments=len(lost), indices_are_sorted=True
        )[tables["to"]]
    return {**tables, name: jnp.where(gone, 0, weights) + jnp.where(failing["own"], kept, 0)}
