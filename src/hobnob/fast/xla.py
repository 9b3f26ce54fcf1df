"""All that the library knows of XLA and of what is private to JAX: options and memory layouts."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint

# They make DSBO's step at K = 5 a fifth faster. Newer releases no longer have them.
_OLDER_EMITTERS = "xla_cpu_use_fusion_emitters"
_OPTIONS: dict[str, Any] = {
    # Otherwise sums over more than 4,096 numbers go to a library whose calls cost more than they.
    "xla_cpu_experimental_ynn_fusion_type": "",
    _OLDER_EMITTERS: False,
}
# Passes of XLA that are left out:
_TREE_SUMS = "tree_reduction_rewriter"  # writes down the terms of a long sum before it adds them
_THREADS = "cpu-parallel-task-assigner"  # splits a kernel over threads and waits for all of them


@cache
def compiler_options(dtype: Any, crowded: bool = False) -> dict[str, Any]:
    """The options that this XLA knows: they come and go with its versions.

    In float64 a sum of millions is good to ten digits without sums in a tree. `crowded` is True if
    other processes of the same run have the other cores.
    """
    if jax.default_backend() != "cpu":
        return {}
    left_out = [
        *([_TREE_SUMS] if np.dtype(dtype) == np.float64 else []),
        *([_THREADS] if crowded else []),
    ]
    options = _OPTIONS | ({"xla_disable_hlo_passes": ",".join(left_out)} if left_out else {})
    return {name: value for name, value in options.items() if _known(name, value)}


@cache
def _known(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def laid_out(array: jax.Array) -> jax.Array:
    """The array in memory as its axes say. XLA may otherwise leave it transposed."""
    return with_layout_constraint(array, Layout(tuple(range(array.ndim))))


def rolled(array: jax.Array, shift: int) -> jax.Array:
    """`jnp.roll` along the last axis, in the form that this XLA fuses into its readers.

    JAX writes a roll as two slices that are joined. Releases without the older emitters compute
    those apart, which doubled DSBO's step at K = 20.
    """
    if _known(_OLDER_EMITTERS, False):
        return jnp.roll(array, shift, axis=-1)
    size = array.shape[-1]
    return array[..., (np.arange(size) - shift) % size]
