"""What is seen in a loss: whether it takes products of its records."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb

LOSSES = {
    "a product": (lambda x, y, b: jnp.mean((b @ y - 1) ** 2), True),
    "in a call": (lambda x, y, b: jnp.mean(jax.jit(lambda b, y: b @ y)(b, y) ** 2), True),
    "of a part": (lambda x, y, b: jnp.mean((b[:, :2] @ y[:2]) ** 2) + y @ y, True),
    "number by number": (lambda x, y, b: jnp.mean((y - b) ** 2), False),
    "of differences": (lambda x, y, b: jnp.mean(jax.vmap(lambda r: (y - r) @ (y - r))(b)), False),
    "of y alone": (lambda x, y, b: jnp.mean(b * y) + y @ y, False),
}


def problem_of(loss: Any) -> hb.Problem:
    rng = np.random.default_rng(0)
    shards = [rng.normal(size=(n, 3)) for n in (2, 5, 3)]

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return loss(x, y, batch) + jnp.exp(x[0]) * (y @ y)

    return hb.Problem(inner, inner, np.zeros(1), np.ones(3), shards, shards, batch_size=2)


@pytest.mark.parametrize("name", LOSSES)
def test_products_of_records_are_seen(name: str) -> None:
    loss, found = LOSSES[name]
    assert problem_of(loss).inner_data.in_products is found


def test_rows_are_the_same_whether_they_are_drawn_apart_or_not() -> None:
    problem = problem_of(LOSSES["number by number"][0])
    source = problem.inner_data
    keys, place = jax.random.split(jax.random.key(0), 3), source.place()

    def draws() -> Any:
        return jax.vmap(source.draw, in_axes=(0, source.per_agent))(keys, place)

    apart = draws()
    source.in_products = True
    np.testing.assert_array_equal(apart, draws())
