"""How much agents disagree."""

from __future__ import annotations

import jax

from hobnob.metrics import metric
from hobnob.metrics.view import View


@metric()
def consensus(view: View) -> dict[str, jax.Array]:
    """mean_k |w_k - mean w|^2 for every variable w that agents hold."""
    return {name: view.disagreement(name) for name in view.variables}
