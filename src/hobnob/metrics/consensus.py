"""How much agents disagree."""

from __future__ import annotations

import jax

from hobnob.metrics import metric
from hobnob.metrics.view import View


@metric()
def consensus(view: View) -> dict[str, jax.Array]:
    """mean_k |w_k - mean w|^2 for every variable w that agents hold.

    In a personal problem for x alone: the others belong to an agent's own inner problem.
    """
    shared = ["x"] if view.problem.personal else view.variables
    return {name: view.disagreement(name) for name in shared}
