"""Jacobians of functions that begin with a matrix, without multiplying it by the identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hobnob.jaxprs import evaluate, inlined


def jacobian(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """The derivatives of a vector with respect to a vector, one column an entry of x.

    Column by column, the derivative along a unit vector e. Where the first that happens to e is a
    product with a matrix, as in `features @ x`, that is a column of the matrix.
    """
    flat = inlined(jax.linearize(function, x)[1], x)
    (e,), eqns = flat.jaxpr.invars, flat.jaxpr.eqns

    def end(known: dict[Any, jax.Array], along: jax.Array) -> jax.Array:
        return evaluate(flat.jaxpr, flat.consts, [along], flat.jaxpr.outvars, known)[0]

    first = [equation for equation in eqns if any(v is e for v in equation.invars)]
    side = _side_of_matrix(first[0], e) if len(first) == 1 else None
    if side is None:
        return jax.vmap(lambda unit: end({}, unit), out_axes=1)(jnp.eye(x.size, dtype=x.dtype))
    product = first[0]
    contracted = product.params["dimension_numbers"][0][side][0]
    (matrix,) = evaluate(flat.jaxpr, flat.consts, [x], [product.invars[side]])
    return jax.vmap(
        lambda column: end({product.outvars[0]: column}, x), in_axes=contracted, out_axes=1
    )(matrix)


def _side_of_matrix(equation: Any, vector: Any) -> int | None:
    """Which operand is multiplied with the vector: 0, 1, or None if this is no such product."""
    if equation.primitive.name != "dot_general":
        return None
    (left, _), batch = equation.params["dimension_numbers"]
    if len(left) != 1 or batch != ((), ()):
        return None
    return 1 if equation.invars[0] is vector else 0
