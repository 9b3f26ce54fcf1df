"""Steps one after the other on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.core.setup import Tree

_LARGE_STATE = 2**21  # bytes: from here on a copy costs more than a longer compilation

Step = Callable[[Tree, Any], Tree]  # (state, number) -> state


class Advance(NamedTuple):
    """Where steps ended: the next one, the state, and whether all of it is finite.

    Reading a field blocks until the device is done.
    """

    step: jax.Array | int
    state: Tree
    finite: jax.Array | bool


def run_until(stop: Any, advance: Step, start: Any, state: Tree) -> Advance:
    """Steps start .. stop - 1, or until x or y is no longer finite."""

    def one(step: Any, state: Tree) -> Any:
        state = advance(state, step)
        # Whatever else stops being finite reaches x or y within a step.
        return step + 1, state, all_finite((state.x, state.y))

    def two(step: Any, state: Tree) -> Any:
        """An even step and the odd one after it, each from one buffer into the other.

        A turn of one step would end in the buffer where it began, so XLA would first copy the
        whole state. Parity decides, so that results don't depend on where a chunk begins.
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
    return Advance(step, state, all_finite(state))


def run_all(stop: Any, advance: Step, start: Any, state: Tree) -> Advance:
    """Steps start .. stop - 1, whatever happens: other processes wait for this one's messages."""
    _, state = jax.lax.while_loop(
        lambda carry: carry[0] < stop,
        lambda carry: (carry[0] + 1, advance(carry[1], carry[0])),
        (start, state),
    )
    return Advance(stop, state, all_finite(state))


def run_while(
    stop: Any, advance: Step, start: Any, state: Tree, stays: Callable[[Any, Any], jax.Array]
) -> Advance:
    """Steps start .. stop - 1, as long as `stays(next step, after)` and x and y are finite.

    `after` is a number of the state: the question comes after the step, and the next step after it.
    """

    def turn(carry: tuple[Any, Tree, Any]) -> tuple[Any, Tree, Any]:
        step, state, _ = carry
        state, step = advance(state, step), step + 1
        fine = all_finite((state.x, state.y))
        return step, state, stays(step, fine) & fine

    step, state, _ = jax.lax.while_loop(
        lambda carry: (carry[0] < stop) & carry[2], turn, (start, state, jnp.array(True))
    )
    return Advance(step, state, all_finite(state))


def is_large(state: Tree) -> bool:
    """True if a step should not copy the state, nor a run keep it beside the next one."""
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return size >= _LARGE_STATE


def all_finite(state: Tree) -> jax.Array:
    return jnp.stack([_is_finite(leaf) for leaf in jax.tree.leaves(state)]).all()


def _is_finite(leaf: jax.Array) -> jax.Array:
    # 0 times a number is 0 only if the number is finite. A sum is faster than `isfinite`.
    return (leaf * 0).sum() == 0
