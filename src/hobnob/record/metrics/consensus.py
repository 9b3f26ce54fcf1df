"""How far agents are from each other."""

from __future__ import annotations

import jax

from hobnob.record.metrics import metric
from hobnob.record.view import View


@metric()
def consensus(view: View) -> dict[str, jax.Array]:
    """mean_k |w_k - mean w|^2 for every variable w that agents hold."""

    def spread(stack: jax.Array) -> jax.Array:
        deviations = (stack - stack.mean(axis=0)).ravel()
        return deviations @ deviations / stack.shape[0]  # many times faster than a sum of squares

    return {name: spread(stack) for name, stack in view.variables.items()}
