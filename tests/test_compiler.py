"""What XLA is told."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from hobnob.compiler import compiler_options
from hobnob.cores import cpus


@pytest.mark.skipif(len(cpus()) < 2, reason="with one core no kernel is split")
@pytest.mark.parametrize("crowded", [False, True])
def test_kernels_are_split_over_threads_unless_others_have_the_cores(crowded: bool) -> None:
    long = jnp.zeros((8, 2**17), jnp.float32)
    add = jax.jit(lambda x: jnp.exp(x) + x, compiler_options=compiler_options(crowded))
    split = "outer_dimension_partitions" in str(add.lower(long).compile().as_text())
    assert split is not crowded
