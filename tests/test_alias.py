"""Boxes reproduce their probabilities exactly."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hobnob.problems._alias import Boxes

RNG = np.random.default_rng(0)
ROWS = {
    "uniform": np.full((3, 7), 1 / 7),
    "random": RNG.dirichlet(np.ones(20), size=30),
    "sparse": RNG.dirichlet(np.full(20, 0.01), size=30),
    "certain": np.eye(6),
    "geometric": np.array([[2.0**-k for k in range(1, 31)] + [2.0**-30]]),
    "alone": np.ones((4, 1)),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_state_has_its_share_of_the_numbers(name: str, dtype: str) -> None:
    """Evenly spaced numbers hit each state as often as its probability says."""
    probabilities = ROWS[name]
    rows, size = probabilities.shape
    each = 1000  # numbers per box
    numbers = (np.arange(size * each) + 0.5) / (size * each)
    with jax.enable_x64(True):
        boxes = Boxes(probabilities)
        uniform = jnp.asarray(np.tile(numbers[:, None], (1, rows)), dtype)
        drawn = np.asarray(jax.jit(jax.vmap(boxes.draw))(uniform))
    for row, expected in enumerate(probabilities):
        found = np.bincount(drawn[:, row], minlength=size) / len(numbers)
        assert (found[expected == 0] == 0).all()
        # Each box that holds a state is off by at most one number.
        assert np.abs(found - expected).max() <= (size + 1) / len(numbers)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_the_unit_interval(dtype: type) -> None:
    probabilities = np.array([[0.0, 0.5, 0.5, 0.0]])
    with jax.enable_x64(True):
        boxes = Boxes(probabilities)
        for number in (dtype(0), np.nextafter(dtype(1), dtype(0))):
            assert int(boxes.draw(jnp.full(1, number, dtype))[0]) in (1, 2)
