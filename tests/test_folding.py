"""What is folded computes what it did before, number by number; what cannot be folded says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hobnob.folding import CannotFold, Fold, evaluate_folded

LONG, FOLD = 12, Fold(length=12, strip=4)
RNG = np.random.default_rng(0)
Y, Z = RNG.normal(size=(2, LONG))
ROWS = RNG.normal(size=(5, LONG))
WEIGHTS = RNG.normal(size=LONG)  # closed over


FOLDED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "numbers alike": lambda y, z, rows: jnp.where(y > 0, jnp.exp(y) * z, jnp.tanh(y) / 3) ** 2,
    "a constant": lambda y, z, rows: y * WEIGHTS,
    "sums": lambda y, z, rows: (jnp.sum(y), jnp.max(rows, axis=0), jnp.mean(rows, axis=1)),
    "all of them": lambda y, z, rows: jnp.all(rows < 9),
    "products": lambda y, z, rows: (y @ z, rows[:2] @ y, rows[0] * (y @ z), y @ rows[:2].T),
    "products of rows": lambda y, z, rows: jnp.einsum("ij,ij->i", rows, rows * y),
    "rows by number": lambda y, z, rows: rows[jnp.array([3, 0])] - y,
    "rows by number, each from its start": lambda y, z, rows: jax.vmap(
        lambda row: jax.lax.dynamic_slice(rows, [row, 0], [2, LONG])
    )(jnp.array([3, 0])),
    "rows joined": lambda y, z, rows: jnp.concatenate([rows, jnp.stack([y, z])]),
    "one row": lambda y, z, rows: rows[2],
    "one for all": lambda y, z, rows: jnp.broadcast_to(y[None], (3, LONG)) * jnp.ones((3, 1)),
    "more axes": lambda y, z, rows: rows.T[None].transpose(2, 1, 0).squeeze(2) + y.reshape(1, LONG),
    "a call": lambda y, z, rows: jax.nn.relu(jax.jit(lambda y: y * WEIGHTS)(y)),
    "a gradient": lambda y, z, rows: jax.grad(
        lambda y: jnp.mean(jax.nn.softplus(-(rows[:2] @ y))) + jnp.exp(z) @ y**2
    )(y),
    "a product with a Hessian": lambda y, z, rows: jax.jvp(
        jax.grad(lambda y: jnp.mean((rows[:3] - jnp.sin(y)) ** 4)), (y,), (z,)
    )[1],
}


def folded(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    closed = jax.make_jaxpr(function)(*inputs)
    return evaluate_folded(FOLD, closed, [FOLD.folded(a) for a in inputs], {})


@pytest.mark.parametrize("name", FOLDED)
def test_folded_is_the_same(name: str) -> None:
    with jax.enable_x64(True):
        inputs = [jnp.asarray(a) for a in (Y, Z, ROWS)]
        expected = jax.tree.leaves(FOLDED[name](*inputs))
        found = folded(FOLDED[name], *inputs)
    for value, want in zip(found, expected, strict=True):
        assert value.shape == FOLD.shape(want.shape)
        assert value.dtype == want.dtype
        np.testing.assert_allclose(value.reshape(want.shape), want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "function"),
    {
        "slice": lambda y: y[3:],
        "dynamic_slice": lambda y: jax.lax.dynamic_slice(y, [jnp.sum(y > 0)], [3]),
        "sort": lambda y: jnp.sort(y),
        "cumsum": lambda y: jnp.cumsum(y),
        "reshape": lambda y: y.reshape(3, 4),
        "concatenate": lambda y: jnp.concatenate([y, y]),
        "dot_general": lambda y: jnp.ones((LONG, LONG)) @ (y + jnp.ones((17, LONG))).T,
        "gather": lambda y: y[jnp.array([3, 1])],
        "scan": lambda y: jax.lax.fori_loop(0, 3, lambda i, y: y / 2, y),
        "while": lambda y: jax.lax.fori_loop(0, jnp.sum(y > 0), lambda i, y: y / 2, y),
    }.items(),
)
def test_what_looks_inside_a_long_vector_cannot_be_folded(name: str, function: Any) -> None:
    with pytest.raises(CannotFold, match=name):
        folded(function, jnp.ones(LONG))


def test_axes_and_shapes() -> None:
    assert FOLD.shape((2, 12, 5, 12)) == (2, 3, 4, 5, 3, 4)
    assert FOLD.axes((2, 12, 5, 12), (3, 0, 2)) == (4, 5, 0, 3)
