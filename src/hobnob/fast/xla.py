"""What XLA is told when it compiles a run, and what it must be kept from."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np

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
