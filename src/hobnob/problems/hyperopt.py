"""Regularisation weights of a linear classifier, one per feature: the paper's first experiment.

With records (a, t), features a and labels t = +1 or -1, and a loss l of the margin,

    g_k(x, y) = mean over training records of l(t a'y) + 1/2 sum_i w_i y_i^2
    f_k(x, y) = mean over validation records of l(t a'y)

The weights are w = exp(x), kept in [smallest_weight, 1 / smallest_weight], or w = x, kept at
smallest_weight or above, so g stays strongly convex. Without bounds, exp drifts to weights of 0 and
infinity for features that should be used freely or not at all. The paper starts w = x at x = 0
without bounds, and g has no minimiser as soon as x turns negative.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.core.problem import Problem
from hobnob.problems import _checks, _tables
from hobnob.problems._halves import Manner, apart, dealt

Batch = dict[str, jax.Array]


@jax.custom_jvp
def _logistic(margin: jax.Array) -> jax.Array:
    """log(1 + exp(-margin)). JAX's own derivative takes a logarithm; a sigmoid needs none."""
    return jax.nn.softplus(-margin)


@_logistic.defjvp
def _logistic_jvp(primals: Any, tangents: Any) -> Any:
    return _logistic(*primals), -jax.nn.sigmoid(-primals[0]) * tangents[0]


LOSSES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "logistic": _logistic,
    "sigmoid": lambda margin: jax.nn.sigmoid(-margin),
}


def hyperopt(
    data: str | Path | tuple[Any, Any] | Callable[[int], Any] = "breast_cancer",
    agents: int = 8,
    *,
    validation: float = 0.5,
    deal: str = "even",
    scaling: str = "minmax",
    weights: str = "exp",
    smallest_weight: float = 1e-4,
    start_weight: float = 1.0,
    loss: str = "logistic",
    intercept: bool = False,
    batch_size: int | None = 1,
    positive: str | int | None = None,
    features: int | None = None,
    seed: int = 0,
    dtype: str = "float64",
) -> Problem:
    """Tune one regularisation weight per feature on validation data.

    Args:
        data: the name of a set that scikit-learn ships (breast_cancer, digits, iris, wine), the
            path of a LIBSVM file, or a pair of arrays (features, labels). Or a function of the
            agent's number that returns such a pair, called only where the agent lives: then
            `features` is needed, `scaling` is "none", and each agent splits its own records.
        agents: the number of agents.
        validation: the share of the records that f sees; g sees the others.
        deal: "even" deals shuffled records; "by label" sorts them by label first, so that most
            agents see only one class.
        scaling: of each feature over all records: "minmax" to [-1, 1], "standard" to mean 0 and
            variance 1, or "none".
        weights: "exp" (w = exp(x)) or "projected" (w = x).
        smallest_weight: the lower bound of w; with "exp", its inverse is the upper bound.
        start_weight: the value of every w at the start.
        loss: "logistic", log(1 + exp(-t a'y)), or "sigmoid", 1 / (1 + exp(t a'y)). The paper
            prints the sigmoid, which is not convex: with small weights g may have several minima.
            The numbers it quotes fit the logistic loss.
        intercept: add a feature that is 1 in all records; it is regularised like the others.
        batch_size: as in `Problem`.
        positive: the class that is +1; all others are -1. Without it, there must be two classes,
            of which the larger is +1. If data is a function, labels are then 1 and -1 or 0.
        features: how many features records have; only if data is a function.
        seed: of the shuffle that splits and deals the records.
        dtype: the precision, "float64" or "float32".
    """
    agents = _checks.whole("agents", agents)
    precision = _checks.precision(dtype)
    _checks.one_of("weights", weights, ("exp", "projected"))
    _checks.one_of("loss", loss, tuple(LOSSES))
    _checks.number("start_weight", start_weight, 0, excluded=True)
    _checks.number("smallest_weight", smallest_weight, 0, excluded=True)

    how = Manner(validation, deal, scaling, intercept, seed, precision)
    if callable(data):
        records = apart(data, features, positive, how)
    else:
        records = dealt(_tables.load(data, positive), agents, how)
    exponential = weights == "exp"
    loss_of_margin = LOSSES[loss]

    def outer(x: jax.Array, y: jax.Array, batch: Batch) -> jax.Array:
        return jnp.mean(loss_of_margin(batch["label"] * (batch["features"] @ y)))

    def inner(x: jax.Array, y: jax.Array, batch: Batch) -> jax.Array:
        w = jnp.exp(x) if exponential else x
        return outer(x, y, batch) + w @ y**2 / 2

    dim = len(records.names)
    start, least = (
        (np.log([start_weight, smallest_weight]))
        if exponential
        else (start_weight, smallest_weight)
    )
    return Problem(
        outer,
        inner,
        np.full(dim, start, precision),
        np.zeros(dim, precision),
        records.validation,
        records.training,
        batch_size,
        agents=agents,
        x_bounds=(least, -least if exponential else None),
        name=f"hyperopt ({records.title})",
        labels=records.names,
        readout=np.exp if exponential else np.asarray,
        objective_name="validation loss",
    )
