"""What XLA is told when it compiles a run, and what it must be kept from."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

_WISHES: dict[str, Any] = {
    # Sums over more than 4,096 numbers would go to a library whose calls cost more than the sums.
    "xla_cpu_experimental_ynn_fusion_type": "",
    # The older way to write machine code takes a quarter less time, for code that is as fast.
    "xla_cpu_use_fusion_emitters": False,
}
# Passes of XLA's that are left out:
_IN_PARTS = "tree_reduction_rewriter"  # first writes a long sum's terms down, then adds them up
_OVER_THREADS = "cpu-parallel-task-assigner"  # a split kernel waits for all of its threads


@cache
def compiler_options(dtype: Any, crowded: bool = False) -> dict[str, Any]:
    """Those of the wishes that this XLA knows: they come and go with its versions.

    `dtype` is that of the numbers: in float64, a sum of millions is good to ten digits without.
    `crowded`: other processes of the same run have the other cores.
    """
    if jax.default_backend() != "cpu":
        return {}
    left_out = [
        *([_IN_PARTS] if np.dtype(dtype) == np.float64 else []),
        *([_OVER_THREADS] if crowded else []),
    ]
    wishes = _WISHES | ({"xla_disable_hlo_passes": ",".join(left_out)} if left_out else {})
    return {name: value for name, value in wishes.items() if _known(name, value)}


@cache
def _known(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


@custom_vmap
def apart(array: jax.Array) -> jax.Array:
    """The same array, computed apart from whoever reads it. It cannot be differentiated.

    XLA would make it part of a loop that reads it; one that looks numbers up in a table is not
    vectorised, and all that is in it with it. What a choice is between is computed before, as XLA
    does not know how it falls.
    """
    first = array.reshape(-1)[0]
    bits = jax.lax.bitcast_convert_type(first, f"uint{8 * array.dtype.itemsize}")
    chosen = (bits | 1) != 0  # whatever the number
    return jax.lax.cond(chosen, lambda: array, lambda: jnp.zeros_like(array))


@apart.def_vmap
def _apart_all(size: int, batched: list[bool], array: jax.Array) -> tuple[jax.Array, bool]:
    return apart(array), batched[0]
