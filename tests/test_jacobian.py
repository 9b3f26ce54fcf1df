"""Jacobians without a product with the identity are those of `jax.jacfwd`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hobnob.jacobian import jacobian

A = np.random.default_rng(0).normal(size=(5, 3))
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "a matrix": lambda x: A @ x,
    "a matrix from the right": lambda x: x @ A.T,
    "a matrix that depends on nothing but is made": lambda x: jnp.exp(A) @ x,
    "a matrix, and more": lambda x: jnp.sin(A @ x) * 3 + 1,
    "a matrix that depends on x": lambda x: (A * jnp.cos(x)) @ x,
    "a jitted matrix": jax.jit(lambda x: A @ x),
    "two matrices": lambda x: (A @ x) * (A[::-1] @ x),
    "entry by entry": lambda x: jnp.tanh(x),
    "nothing": lambda x: x,
    "a dot product": lambda x: jnp.array([x @ x, x[0]]),
    "no x at all": lambda x: jnp.ones(4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("lifted", [False, True], ids=["one", "many"])
def test_is_the_jacobian(name: str, lifted: bool) -> None:
    function = FUNCTIONS[name]
    with jax.enable_x64(True):
        points = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)))
        if lifted:
            found = jax.jit(jax.vmap(lambda x: jacobian(function, x)))(points)
            expected = jax.vmap(jax.jacfwd(function))(points)
        else:
            found, expected = jacobian(function, points[0]), jax.jacfwd(function)(points[0])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_a_matrix_is_not_multiplied_by_the_identity() -> None:
    with jax.enable_x64(True):
        steps = jax.make_jaxpr(lambda x: jacobian(lambda x: jnp.sin(A @ x), x))(jnp.ones(3)).eqns
    products = [e for e in steps if e.primitive.name == "dot_general"]
    assert products, "the value itself is one"
    assert all(e.outvars[0].aval.ndim == 1 for e in products)
