"""Compositional problems, written as bilevel problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.core.data import Records, Simulator
from hobnob.core.problem import Problem
from hobnob.ground.errors import ProblemError
from hobnob.ground.pytrees import VectorLayout, map_numbers


class Compositional(Problem):
    """minimise over x: mean_k f_k(h(x)) + r(x), where h(x) = mean_k h_k(x).

    With g_k(x, y) = 1/2 |y - h_k(x)|^2 the inner minimiser y*(x) is h(x), so every bilevel method
    applies. Compositional methods use that the inner Hessian is the identity.

    Args:
        mapping: `h(x, batch) -> y`, a pytree of arrays, the mean of h over the batch.
        outer: `f(y, batch) -> scalar`, the mean outer loss of a batch.
        x0: where every agent starts; y starts at zero.
        mapping_data, outer_data: one pytree of arrays per agent, as in `Problem`.
        batch_size: as in `Problem`.
        regulariser: `r(x) -> scalar`, if there is one.
        more: other arguments of `Problem`.

    Example:
        >>> import hobnob as hb
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> hb.Compositional(
        ...     lambda x, batch: jnp.mean(batch @ x, axis=0),  # h
        ...     lambda y, batch: jnp.mean((y - batch) ** 2),  # f
        ...     x0=np.zeros(2),
        ...     mapping_data=[np.ones((20, 3, 2))] * 4,
        ...     outer_data=[np.ones((30, 3))] * 4,
        ... )
        Problem('problem': 4 agents, d_x = 2, d_y = 3, float64)
    """

    compositional = True

    def __init__(
        self,
        mapping: Callable[[Any, Any], Any],
        outer: Callable[[Any, Any], Any],
        x0: Any,
        mapping_data: Any,
        outer_data: Any,
        batch_size: int | None = 1,
        *,
        regulariser: Callable[[Any], Any] | None = None,
        **more: Any,
    ):
        if isinstance(mapping_data, Simulator):
            raise ProblemError(
                "mapping_data must be records: for a simulator, write g = 1/2 |y - h(x)|^2 as the "
                "inner loss of a Problem and set its `compositional` to True."
            )
        if not isinstance(mapping_data, Records):
            mapping_data = Records(mapping_data, batch_size, "mapping_data")

        def of_record(x: Any, y: Any, record: Any) -> jax.Array:
            value = mapping(x, jax.tree.map(lambda a: a[None], record))
            gaps = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), y, value)
            return sum(jax.tree.leaves(gaps), start=jnp.zeros(())) / 2

        def inner(x: Any, y: Any, batch: Any) -> jax.Array:
            return jnp.mean(jax.vmap(of_record, in_axes=(None, None, 0))(x, y, batch))

        def regularised_outer(x: Any, y: Any, batch: Any) -> jax.Array:
            value = outer(y, batch)
            return value + regulariser(x) if regulariser else value

        super().__init__(
            regularised_outer,
            inner,
            x0,
            _zeros_like_output(mapping, x0, mapping_data),
            outer_data,
            mapping_data,
            batch_size,
            **more,
        )


def _zeros_like_output(mapping: Callable[[Any, Any], Any], x0: Any, data: Records) -> Any:
    """y0: zeros shaped like h(x), in the precision of x0."""
    layout = VectorLayout(x0)
    flat = layout.ravel(map_numbers(np.asarray, x0))
    try:
        with jax.enable_x64(True):
            shape = jax.eval_shape(
                lambda x, batch: mapping(layout.unravel(x), batch), flat, data.arrays
            )
    except Exception as error:
        raise ProblemError(
            f"mapping(x, batch) failed on a batch: {type(error).__name__}: {error}"
        ) from error
    return jax.tree.map(lambda s: np.zeros(s.shape, flat.dtype), shape)
