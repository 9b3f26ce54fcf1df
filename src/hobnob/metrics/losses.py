"""The losses over all data, at the mean x and the mean y, or each agent's y if it has its own."""

from __future__ import annotations

import jax

from hobnob.core.problem import Problem
from hobnob.metrics import metric
from hobnob.metrics.view import View


def _known(problem: Problem) -> bool:
    return problem.has_pooled_losses


@metric(when=_known)
def outer_loss(view: View) -> jax.Array:
    """mean_k f_k at the mean x and the mean y; in a personal problem, at each agent's own y."""
    return view.outer_loss(view.flat_x, view.flat_y)


@metric(when=_known)
def inner_loss(view: View) -> jax.Array:
    """mean_k g_k at the mean x and the mean y; in a personal problem, at each agent's own y."""
    return view.inner_loss(view.flat_x, view.flat_y)
