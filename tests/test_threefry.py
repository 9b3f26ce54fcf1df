"""The written-out generator gives the bits of `jax.random`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hobnob.ground import threefry
from hobnob.ground.barrier import materialised

SPANS = [1, 2, 3, 69, 255, 65_535, 65_536, 65_537, 1_000_003, 2**31 - 1]


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
def test_keys_and_numbers_are_those_of_jax(wide: bool) -> None:
    with jax.enable_x64(wide):
        for seed in (0, 1, 2**32 - 1):
            key = jax.random.key(np.uint32(seed), impl="threefry2x32")
            for data in (0, 1, 12_345, 2**32 - 1):
                theirs = jax.random.fold_in(key, np.uint32(data))
                ours = threefry.fold_in(key, np.uint32(data))
                assert jax.random.key_data(ours).tolist() == jax.random.key_data(theirs).tolist()
            for span in SPANS:
                theirs = jax.random.randint(key, (50, 3), 0, span, jnp.int32)
                ours = threefry.integers(key, (50, 3), np.int32(span))
                assert ours.dtype == theirs.dtype
                assert (ours == theirs).all(), f"seed {seed}, below {span}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_real_numbers_and_split_keys_are_those_of_jax(dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        for seed in range(3):
            key = jax.random.key(seed, impl="threefry2x32")
            pairs = [
                (threefry.uniform(key, (40, 5), dtype), jax.random.uniform(key, (40, 5), dtype)),
                (threefry.normal(key, (200,), dtype), jax.random.normal(key, (200,), dtype)),
                *(
                    (
                        jax.random.key_data(make(key, 3))
                        for make in (threefry.split, jax.random.split)
                    ),
                ),
            ]
            for ours, theirs in pairs:
                assert ours.dtype == theirs.dtype
                np.testing.assert_array_equal(ours, theirs)


def test_lifted_over_agents_and_compiled_they_are_the_same() -> None:
    keys = jax.random.split(jax.random.key(5, impl="threefry2x32"), 7)
    lengths = jnp.arange(60, 67, dtype=jnp.int32)

    def theirs(key: jax.Array, shape: tuple[int, ...], bound: jax.Array) -> jax.Array:
        return jax.random.randint(key, shape, 0, bound, jnp.int32)

    one, other = (
        jax.jit(jax.vmap(lambda key, length, make=make: make(key, (200, 1), length)))(keys, lengths)
        for make in (threefry.integers, theirs)
    )
    assert (one == other).all()
    assert (one.max(axis=(1, 2)) > 0).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int32, jnp.uint32])
def test_what_is_materialised_is_the_same(dtype: type) -> None:
    numbers = jnp.arange(-3, 9).astype(dtype).reshape(3, 2, 2)
    least = -jnp.inf if dtype is jnp.float32 else jnp.iinfo(dtype).min
    for first in (least, 0):
        lowest = jnp.full(3, 5, dtype).at[0].set(first)
        np.testing.assert_array_equal(jax.jit(materialised)(lowest), lowest)
    for lift in (lambda f: f, jax.vmap, lambda f: jax.vmap(jax.vmap(f, in_axes=1))):
        found = jax.jit(lift(lambda a: materialised(a + 1) * 2))(numbers)
        np.testing.assert_array_equal(found, lift(lambda a: (a + 1) * 2)(numbers))
