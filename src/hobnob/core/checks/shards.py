"""Checks of the shards and the start that a user gives, as far as they need no loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.ground.errors import ProblemError
from hobnob.ground.pytrees import map_numbers, numbers, path_name


def checked_batch_size(batch_size: int | None) -> int | None:
    if batch_size is None:
        return None
    if not isinstance(batch_size, int | np.integer) or isinstance(batch_size, bool):
        raise ProblemError(f"batch_size must be a whole number or None, not {batch_size!r}.")
    if batch_size < 1:
        raise ProblemError(
            f"batch_size = {batch_size} draws nothing. Use 1 or more, or None for the whole shard."
        )
    return int(batch_size)


def checked_shards(
    shards: Any, label: str, records: bool = True, agents: Sequence[int] | None = None
) -> list[Any]:
    """The shards as NumPy pytrees, after every check that needs no loss."""
    if isinstance(shards, dict | str) or not hasattr(shards, "__iter__"):
        raise ProblemError(
            f"{label} must be a list with one entry per agent, not a {type(shards).__name__}."
        )
    shards = [jax.tree.map(np.asarray, shard) for shard in shards]
    if not shards:
        raise ProblemError(f"{label} is empty: it needs one shard per agent.")
    numbers = range(len(shards)) if agents is None else agents
    for agent, shard in zip(numbers, shards, strict=True):
        _check_like_first(shards[0], shard, agent, label, records)
        for path, leaf in jax.tree_util.tree_leaves_with_path(shard):
            _check_leaf(leaf, f"{label}, agent {agent}, {path_name(path)}", records)
        if records:
            _check_lengths(shard, f"{label}, agent {agent}")
    return shards


def precision_of(tree: Any, name: str) -> np.dtype:
    """The dtype to compute in: float64 if any number is."""
    leaves = [np.asarray(leaf) for leaf in numbers(tree)]
    if sum(leaf.size for leaf in leaves) == 0:
        raise ProblemError(f"{name} holds no numbers: there is nothing to optimise.")
    floating = [leaf.dtype for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    for dtype in floating:
        if dtype not in (np.float32, np.float64):
            raise ProblemError(f"{name} is {dtype}: runs are in float32 or float64. Convert it.")
    return np.result_type(*floating) if floating else np.dtype(np.float64)


def checked_start(tree: Any, name: str, dtype: np.dtype) -> Any:
    """x0 or y0 as NumPy arrays, all finite."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if callable(leaf):
            continue
        array = np.asarray(leaf)
        where = f"{name}, {path_name(path)}"
        if array.dtype.kind in "OSUc":
            raise ProblemError(f"{where}: dtype {array.dtype}, yet a start must be real numbers.")
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            index = tuple(int(i) for i in bad[0])
            raise ProblemError(
                f"{where}: {array[index]}{f' at {list(index)}' if index else ''}. Every agent "
                f"starts there, so it must be finite."
            )
    return map_numbers(lambda leaf: np.array(leaf, dtype), tree)


def _check_like_first(first: Any, shard: Any, agent: int, label: str, records: bool) -> None:
    if jax.tree.structure(shard) != jax.tree.structure(first):
        raise ProblemError(
            f"{label}: the shard of agent {agent} has the structure {jax.tree.structure(shard)}, "
            f"that of agent 0 {jax.tree.structure(first)}. All agents run the same program, so "
            f"their shards must have the same structure."
        )
    if not jax.tree.leaves(shard):
        raise ProblemError(f"{label}: the shard of agent {agent} holds no arrays.")
    skip = 1 if records else 0
    for (path, leaf), reference in zip(
        jax.tree_util.tree_leaves_with_path(shard), jax.tree.leaves(first), strict=True
    ):
        if leaf.dtype != reference.dtype:
            raise ProblemError(
                f"{label}: {path_name(path)} of agent {agent} is {leaf.dtype}, that of agent 0 is "
                f"{reference.dtype}. Convert them to one dtype."
            )
        if leaf.shape[skip:] != reference.shape[skip:]:
            raise ProblemError(
                f"{label}: {path_name(path)} of agent {agent} has the shape {leaf.shape}, that of "
                f"agent 0 {reference.shape}. "
                + (
                    "Only the first axis, the records, may differ."
                    if records
                    else "They must agree."
                )
            )


def _check_leaf(leaf: np.ndarray, where: str, records: bool) -> None:
    if leaf.dtype.kind not in "fiub" and not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise ProblemError(f"{where}: dtype {leaf.dtype} is not numeric.")
    if records and leaf.ndim == 0:
        raise ProblemError(f"{where} is a single number: the leading axis must be the records.")
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        bad = ~np.isfinite(leaf)
        if bad.any():
            index = np.unravel_index(int(np.argmax(bad)), leaf.shape)
            place = ", ".join(str(int(i)) for i in index)
            raise ProblemError(
                f"{where}: {int(bad.sum())} of {leaf.size} values are not finite, the first "
                f"({leaf[index]}) at [{place}]. Every mean would become NaN. Remove or fill them."
            )


def _check_lengths(shard: Any, where: str) -> None:
    lengths = {leaf.shape[0] for leaf in jax.tree.leaves(shard)}
    if len(lengths) > 1:
        raise ProblemError(
            f"{where}: its arrays have {sorted(lengths)} records. They must have equally many."
        )
    if lengths == {0}:
        raise ProblemError(
            f"{where}: the shard is empty, so there is nothing to draw from. Give it records, or "
            f"leave the agent out."
        )
