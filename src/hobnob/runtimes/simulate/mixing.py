"""W times a stack of agents, for a sparse W.

Where there is a table, neighbours are summed in ascending order of their number, self included, so
that every runtime can add up in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from hobnob.fast import FastMixing

Weights = dict[str, jax.Array] | FastMixing  # W as tables, or a faster form

_NARROW_TABLE, _WIDEST_TABLE = 16, 64  # entries a row: the sum over them is unrolled
_SPARSE = 3  # entries a row: beyond, an agent's neighbours are gathered in one trip
_LARGEST_DENSE = 512  # agents
_LONGEST_ROW = 256  # numbers in a message: longer ones are gathered array by array
_EDGE_COST = 2  # an edge outside the table costs as much as this many entries in it


def mixing_tables(W: csr_array, dtype: Any) -> dict[str, jax.Array]:
    """W as the arrays that `mixed` multiplies with; their names tell how.

    - "dense": W itself, for few agents with many neighbours;
    - "table" otherwise: the neighbours of each agent, padded to the longest row. A few rows that
      are much longer, such as a star's hub, are left out of it and named in "long": as whole rows
      in "hubs" if they are nearly full, else edge by edge in "to", "from" and "edges".
    """
    size, lengths = len(W.indptr) - 1, np.diff(W.indptr)
    narrow = lengths.max() <= _NARROW_TABLE
    if size <= _LARGEST_DENSE and not narrow:
        return {"dense": jnp.asarray(W.toarray(), dtype)}
    width = lengths.max() if narrow else _width(lengths)
    row = np.repeat(np.arange(size), lengths)
    place = np.arange(W.nnz) - np.repeat(W.indptr[:-1], lengths)
    columns = np.tile(np.arange(size)[:, None], (1, width))
    weights = np.zeros(columns.shape)
    short = lengths[row] <= width
    at = row[short], place[short]
    columns[at], weights[at] = W.indices[short], W.data[short]
    tables = {
        "table": jnp.asarray(columns.T, jnp.int32),
        "weights": jnp.asarray(weights.T, dtype),
        "chosen": jnp.array(True),
    }
    if short.all():
        return tables
    long, to = np.unique(row[~short], return_inverse=True)
    tables["long"] = jnp.asarray(long, jnp.int32)
    if len(long) * int(W.indices.max() + 1) <= _EDGE_COST * len(to):
        return tables | {"hubs": jnp.asarray(W[long].toarray(), dtype)}
    return tables | {
        "to": jnp.asarray(to, jnp.int32),
        "from": jnp.asarray(W.indices[~short], jnp.int32),
        "edges": jnp.asarray(W.data[~short], dtype),
    }


def _width(lengths: np.ndarray) -> int:
    """The width at which the table and the edges beyond it cost least together."""
    widths = np.unique([1, *np.minimum(lengths, _WIDEST_TABLE)])
    edges = [lengths[lengths > width].sum() for width in widths]
    return int(widths[np.argmin(len(lengths) * widths + _EDGE_COST * np.array(edges))])


def mixed(tables: dict[str, jax.Array], stack: jax.Array) -> jax.Array:
    """W times a stack whose first axis is the agents; with a server's tables, their mean."""
    if "mean" in tables:
        return jnp.broadcast_to(stack.mean(axis=0), stack.shape)
    if "dense" in tables:
        return jnp.tensordot(tables["dense"], stack, 1)
    terms = (
        _column(w, stack) * stack[j]
        for j, w in zip(tables["table"], tables["weights"], strict=True)
    )
    total = next(terms)
    for term in terms:
        total = total + term
    if "long" not in tables:
        return total
    if "hubs" in tables:
        return total.at[tables["long"]].set(jnp.tensordot(tables["hubs"], stack, 1))
    sums = jax.ops.segment_sum(
        _column(tables["edges"], stack) * stack[tables["from"]],
        tables["to"],
        num_segments=len(tables["long"]),
        indices_are_sorted=True,
    )
    return total.at[tables["long"]].set(sums)


def _column(weights: jax.Array, stack: jax.Array) -> jax.Array:
    """One weight for each row of a stack."""
    return weights.reshape(weights.shape + (1,) * (stack.ndim - 1))


def mixed_tree(tables: Weights, tree: Any) -> Any:
    """W times every array of a tree."""
    if not isinstance(tables, dict):
        return jax.tree.map(tables.mixed, tree)
    leaves, structure = jax.tree.flatten(tree)
    rows = [leaf.reshape(len(leaf), -1) for leaf in leaves]
    widths = [row.shape[1] for row in rows]
    entries, agents = tables["table"].shape if "table" in tables else (0, 0)
    scattered = agents > _LARGEST_DENSE and entries > _SPARSE  # neighbours lie far apart in memory
    alike = len({leaf.dtype for leaf in leaves}) == 1
    if not (scattered and alike and sum(widths) <= _LONGEST_ROW):
        return jax.tree.map(lambda leaf: mixed(tables, leaf), tree)
    # One trip to each neighbour for its whole message. The `cond` is a barrier: without it, XLA
    # computes a message again for each agent that hears it.
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
    """What `without` needs: for every weight the number of its link, and whether it is own.

    A number past the last link means no link: an agent's own weight, or padding. `numbers` are
    the agents behind W's columns; those of its rows come first.
    """
    rows = len(W.indptr) - 1
    numbers = np.arange(rows) if numbers is None else numbers
    if "dense" in tables:
        to, from_ = np.indices(tables["dense"].shape)
        return {
            "link": link_numbers(numbers[to], numbers[from_], ends),
            "own": jnp.asarray(to == from_),
        }
    from_ = np.asarray(tables["table"])
    to = np.broadcast_to(np.arange(rows), from_.shape)
    own = to == from_
    own &= np.cumsum(own, axis=0) == 1  # padding names the agent again
    failing = {"link": link_numbers(numbers[to], numbers[from_], ends), "own": jnp.asarray(own)}
    if "long" in tables:
        long = np.asarray(tables["long"])
        if "hubs" in tables:
            to, from_ = np.meshgrid(long, np.arange(tables["hubs"].shape[1]), indexing="ij")
        else:
            to, from_ = long[tables["to"]], np.asarray(tables["from"])
        failing["long link"] = link_numbers(numbers[to], numbers[from_], ends)
        failing["long own"] = jnp.asarray(to == from_)
    return failing


def link_numbers(to: np.ndarray, from_: np.ndarray, ends: np.ndarray) -> jax.Array:
    """The number of the link between two agents, or one past the last."""
    size = 1 + int(max(part.max(initial=0) for part in (to, from_, ends)))
    known = ends[:, 0] * size + ends[:, 1]
    asked = np.minimum(to, from_) * size + np.maximum(to, from_)
    place = np.minimum(np.searchsorted(known, asked), max(len(known) - 1, 0))
    linked = known[place] == asked if len(known) else np.zeros(asked.shape, bool)
    return jnp.asarray(np.where(linked, place, len(ends)), jnp.int32)


def without(
    tables: dict[str, jax.Array], failing: dict[str, jax.Array], down: jax.Array
) -> dict[str, jax.Array]:
    """The tables with the links that are down taken out; both ends keep the weight themselves."""
    down = jnp.append(down, False)

    def left(weights: jax.Array, part: str, kept_by_row: Callable[..., jax.Array]) -> jax.Array:
        gone = down[failing[f"{part}link"]]
        kept = kept_by_row(jnp.where(gone, weights, 0))
        return jnp.where(gone, 0, weights) + jnp.where(failing[f"{part}own"], kept, 0)

    def of_rows(lost: jax.Array) -> jax.Array:
        return lost.sum(axis=1, keepdims=True)

    if "dense" in tables:
        return {**tables, "dense": left(tables["dense"], "", of_rows)}
    tables = {**tables, "weights": left(tables["weights"], "", lambda lost: lost.sum(axis=0))}
    if "long" not in tables:
        return tables
    if "hubs" in tables:
        return {**tables, "hubs": left(tables["hubs"], "long ", of_rows)}

    def of_edges(lost: jax.Array) -> jax.Array:
        to, count = tables["to"], len(tables["long"])
        return jax.ops.segment_sum(lost, to, num_segments=count, indices_are_sorted=True)[to]

    return {**tables, "edges": left(tables["edges"], "long ", of_edges)}
