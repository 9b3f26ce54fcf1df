"""Equinox and Flax models serve as x and as y, and results have the same type."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import hobnob as hb
from hobnob.ground.pytrees import VectorLayout

pytestmark = pytest.mark.slow

K, INPUTS, FEATURES = 3, 4, 3


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(INPUTS, 5, rngs=rngs)
        self.second = nnx.Linear(5, FEATURES, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        return self.second(nnx.tanh(self.first(images)))


class Linen(nn.Module):
    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        return nn.Dense(FEATURES)(nn.tanh(nn.Dense(5)(images)))


def equinox_mlp() -> tuple[Any, Any]:
    model = eqx.nn.MLP(INPUTS, FEATURES, 5, 1, activation=jnp.tanh, key=jax.random.key(0))
    return model, lambda x, images: jax.vmap(x)(images)


def flax_nnx() -> tuple[Any, Any]:
    return Network(nnx.Rngs(0)), lambda x, images: x(images)


def flax_nnx_state() -> tuple[Any, Any]:
    definition, state = nnx.split(Network(nnx.Rngs(0)))
    return state, lambda x, images: nnx.merge(definition, x)(images)


def flax_linen() -> tuple[Any, Any]:
    start = Linen().init(jax.random.key(0), jnp.zeros((1, INPUTS)))
    return start, lambda x, images: Linen().apply(x, images)


MODELS = [equinox_mlp, flax_nnx, flax_nnx_state, flax_linen]


def records(seed: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)

    def shard() -> dict[str, np.ndarray]:
        a = rng.normal(size=(20, INPUTS)).astype(np.float32)
        return {"a": a, "t": np.tanh(a.sum(axis=1))}

    return [shard() for _ in range(K)]


def problem_of(model: Any, features: Any) -> hb.Problem:
    """A shared network as x, a linear head as y."""

    def outer(x: Any, y: Any, batch: Any) -> jax.Array:
        return jnp.mean((features(x, batch["a"]) @ y - batch["t"]) ** 2)

    def inner(x: Any, y: Any, batch: Any) -> jax.Array:
        return outer(x, y, batch) + 0.05 * jnp.sum(y**2)

    head = np.zeros(FEATURES, np.float32)
    return hb.Problem(outer, inner, model, head, records(0), records(1), batch_size=4)


@pytest.mark.parametrize("make", MODELS)
def test_a_model_is_optimised_and_comes_back_as_a_model(make: Any) -> None:
    model, features = make()
    problem = problem_of(model, features)
    assert problem.dim_x == INPUTS * 5 + 5 + 5 * FEATURES + FEATURES
    assert problem.dtype == np.float32
    dsoba = hb.DSOBA(alpha=0.1, beta=0.1, gamma=0.1, theta=0.5)
    result = hb.solve(problem, hb.ring(K), dsoba, steps=200, record_every=100)
    assert result.history["objective"][-1] < 0.5 * result.history["objective"][0]
    # The result is an object of the user's type and can be called.
    assert type(result.x) is type(model)
    images = records(2)[0]["a"]
    assert features(result.x, images).shape == (20, FEATURES)
    assert not np.allclose(features(result.x, images), features(model, images))
    # Exact values and the notebook card accept it, too.
    assert np.isclose(hb.exact(problem, result.x).value, result.history["objective"][-1], rtol=1e-3)
    assert "<svg" in result._repr_html_()


def test_a_model_may_be_y() -> None:
    model = eqx.nn.Linear(INPUTS, 1, key=jax.random.key(0))

    def outer(x: Any, y: Any, batch: Any) -> jax.Array:
        return jnp.mean((jax.vmap(y)(batch["a"])[:, 0] - batch["t"]) ** 2)

    def inner(x: Any, y: Any, batch: Any) -> jax.Array:
        return outer(x, y, batch) + jnp.exp(x) * (jnp.sum(y.weight**2) + jnp.sum(y.bias**2))

    start = np.zeros((), np.float32)
    problem = hb.Problem(outer, inner, start, model, records(0), records(1), batch_size=4)
    dsoba = hb.DSOBA(alpha=0.1, beta=0.1, gamma=0.1, theta=0.5)
    result = hb.solve(problem, hb.ring(K), dsoba, steps=50, metrics=["outer_loss"])
    assert result.history["outer_loss"][-1] < result.history["outer_loss"][0]
    assert isinstance(result.y, eqx.nn.Linear)


def test_functions_are_no_part_of_the_vector() -> None:
    tree = {"a": np.arange(3.0), "f": np.tanh, "g": [np.ones((2, 2)), np.exp]}
    layout = VectorLayout(tree)
    assert layout.size == 7
    back = layout.unravel(layout.ravel(tree), np)
    assert (back["f"], back["g"][1]) == (np.tanh, np.exp)
    assert (back["a"] == tree["a"]).all()
    assert (back["g"][0] == 1).all()
    with pytest.raises(hb.ProblemError, match="x0 holds no numbers"):
        hb.Problem(lambda x, y, b: y, lambda x, y, b: y, {"f": np.tanh}, 0.0, [[1.0]], [[1.0]])


def test_functions_do_not_get_in_the_way_of_a_mapping() -> None:
    problem = hb.Compositional(
        lambda x, batch: jnp.mean(x["f"](batch @ x["w"]), axis=0),
        lambda y, batch: jnp.mean((y - batch) ** 2),
        x0={"w": np.ones((INPUTS, 2)), "f": jnp.tanh},
        mapping_data=[shard["a"].astype(float) for shard in records(0)],
        outer_data=[np.zeros((5, 2))] * K,
    )
    assert np.isfinite(hb.exact(problem, problem.x0).value)
