"""A barrier inside a compiled program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap


@custom_vmap
def materialised(array: jax.Array) -> jax.Array:
    """The same array, computed before anything that reads it. It cannot be differentiated.

    Otherwise XLA fuses the computation into every reader and repeats it for each element read. It
    cannot see which branch a `cond` takes, so it computes the array first.
    """
    first = array.reshape(-1)[0]
    bits = jax.lax.bitcast_convert_type(first, f"uint{8 * array.dtype.itemsize}")
    taken = (bits | 1) != 0  # always true
    return jax.lax.cond(taken, lambda: array, lambda: jnp.zeros_like(array))


@materialised.def_vmap
def _of_several(size: int, batched: list[bool], array: jax.Array) -> tuple[jax.Array, bool]:
    return materialised(array), batched[0]
