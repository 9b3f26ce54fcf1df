"""What XLA is told when it compiles a run."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax

_WISHES: dict[str, Any] = {
    # Sums over more than 4,096 numbers would go to a library whose calls cost more than the sums.
    "xla_cpu_experimental_ynn_fusion_type": "",
    # The older way to write machine code takes a quarter less time, for code that is as fast.
    "xla_cpu_use_fusion_emitters": False,
}


@cache
def compiler_options() -> dict[str, Any]:
    """Those of the wishes that this XLA knows: they come and go with its versions."""
    if jax.default_backend() != "cpu":
        return {}
    return {name: value for name, value in _WISHES.items() if _known({name: value})}


def _known(options: dict[str, Any]) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
