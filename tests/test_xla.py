"""The options given to XLA."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hobnob.fast.xla import compiler_options
from hobnob.ground.cores import cpus


@pytest.mark.skipif(len(cpus()) < 2, reason="with one core no kernel is split")
@pytest.mark.parametrize("crowded", [False, True])
def test_kernels_are_split_over_threads_unless_others_have_the_cores(crowded: bool) -> None:
    long = jnp.zeros((8, 2**17), jnp.float32)
    add = jax.jit(lambda x: jnp.exp(x) + x, compiler_options=compiler_options(np.float32, crowded))
    split = "outer_dimension_partitions" in str(add.lower(long).compile().as_text())
    assert split is not crowded


# Summed one by one, four million float32 terms would be off by up to a quarter.
@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 1e-5), (np.float64, 1e-9)])
def test_long_sums_are_exact_enough_in_either_precision(dtype: type, error: float) -> None:
    with jax.enable_x64(dtype == np.float64):
        terms = jnp.full(2**22, 0.1, dtype)
        total = jax.jit(jnp.sum, compiler_options=compiler_options(dtype))(terms)
    expected = float(dtype(0.1)) * 2**22
    assert abs(float(total) - expected) < error * expected
