"""Turns: steps one after the other on the device, until the last one or one that goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hobnob.compiler import apart

_SHARED = 2**20  # bytes of an array: looking at it takes longer than waking another core
_LARGE_STATE = 2**21  # bytes: a copy costs more than a longer compilation, and is missed


def run_until(stop: Any, advance: Callable[[Any, Any], Any], start: Any, state: Any) -> Any:
    """`advance(step, state)` until `stop`, or until x or y is no longer finite.

    Returns the next step, the state, and whether all of it is finite.
    """

    def one(step: Any, state: Any) -> Any:
        state = advance(step, state)
        # Whatever else stops being finite reaches x within a step.
        return step + 1, state, all_finite((state.x, state.y))

    def two(step: Any, state: Any) -> Any:
        """An even step and the odd one after it, each from one place in memory to another.

        One alone would have to end where it began: XLA copies the whole state first. That a step's
        number tells which of the two it is keeps results the same wherever a chunk begins.
        """
        even, fine = step % 2 == 0, jnp.array(True)
        step, state, fine = jax.lax.cond(even, one, lambda *same: (*same, fine), step, state)
        more = fine & (step < stop)
        return jax.lax.cond(more, one, lambda *same: (*same, fine), step, state)

    turn = two if is_large(state) else one
    step, state, _ = jax.lax.while_loop(
        lambda carry: (carry[0] < stop) & carry[2],
        lambda carry: turn(*carry[:2]),
        (start, state, jnp.array(True)),
    )
    return step, state, all_finite(state)


def is_large(state: Any) -> bool:
    """Whether a step should not copy it, nor a run keep it beside the next one."""
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return size >= _LARGE_STATE


def all_finite(state: Any) -> jax.Array:
    return jnp.stack([_is_finite(leaf) for leaf in jax.tree.leaves(state)]).all()


def _is_finite(leaf: jax.Array) -> jax.Array:
    # Only a number that is finite gives 0 here, and sums are faster than `isfinite`.
    zeros = leaf * 0
    if leaf.size * leaf.dtype.itemsize < _SHARED:
        return zeros.sum() == 0
    # Cores share many sums, but not one: XLA must not make one of them.
    return (apart(zeros.sum(axis=-1)) == 0).all()
