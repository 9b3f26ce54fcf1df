"""How D-SOBA's time and memory grow with the number of agents and with the length of y."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hobnob as hb
from benchmarks.table import Row
from benchmarks.timing import pace, paced, slope
from hobnob.core.setup import Setup
from hobnob.run.run import Run

DSOBA = hb.DSOBA(alpha=1e-3, beta=1e-2, gamma=1e-2, theta=0.2)
D = 10
NETWORKS: dict[str, Callable[[int], hb.Network]] = {
    "exponential graph": hb.exponential,
    "ring": hb.ring,
    "random graph of degree 4": lambda agents: hb.random_regular(agents, 4),
    "star": hb.star,
}
EIGHT = 8


def regression(agents: int) -> hb.Problem:
    """Two records per agent, one regularisation weight per feature."""
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(agents, 2, D)), rng.normal(size=(agents, 2))

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((batch["features"] @ y - batch["target"]) ** 2) / 2

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return outer(x, y, batch) + jnp.exp(x) @ y**2 / 2

    shards = [{"features": a, "target": t} for a, t in zip(features, targets, strict=True)]
    return hb.Problem(outer, inner, np.zeros(D), np.zeros(D), shards, shards)


def long_y(dim: int) -> hb.Problem:
    """Every entry of y has its own target; x is their common weight."""
    rng = np.random.default_rng(0)

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((y - batch) ** 2) / 2

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(jnp.sum((y - batch) ** 2, axis=1)) / 2 + jnp.exp(x[0]) * (y @ y) / 2

    shards = [rng.normal(size=(2, dim)) for _ in range(EIGHT)]
    return hb.Problem(outer, inner, np.zeros(1), np.zeros(dim), shards, shards)


def memory_held(problem: hb.Problem, network: hb.Network) -> float:
    """Bytes that the loop of a run holds (old state, new state, temporaries) per byte of state.

    These are XLA's planned sizes. Other memory of the process, such as data, is not included.
    """
    with problem.precision():
        run = Run.start(hb.Simulate(), Setup(problem, network, DSOBA))
        state = run.initial_state()
        run.overwrite_large(state)
        program = (
            run._loops[run.overwrites].lower(run.world, state, np.int32(0), np.int32(1)).compile()
        )
        found = program.memory_analysis()
    assert found is not None
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    return (found.output_size_in_bytes + found.temp_size_in_bytes) / size + (
        1 - found.alias_size_in_bytes / size
    )


def copy_seconds(dim: int) -> float:
    """Seconds to copy all agents' y and z: how caches and memory alone scale with the size."""
    old, new = np.ones((2, 2, EIGHT, dim))
    return paced(lambda: np.copyto(new, old), max(2, 10**6 // dim))


def rows(quick: bool) -> Iterator[Row]:
    sizes = [1000, 10_000] if quick else [100, 1000, 10_000, 100_000]
    problems = {agents: regression(agents) for agents in sizes}
    for name, make in NETWORKS.items():
        built, steps, memory = [], [], 0.0
        for agents, problem in problems.items():
            clock = time.perf_counter()
            network = make(agents)
            built.append(time.perf_counter() - clock)
            window = max(12, 400_000 // agents)
            steps.append(min(pace(problem, network, DSOBA, window) for _ in range(2)))
            memory = memory_held(problem, network)
        total = [b + 100 * s for b, s in zip(built, steps, strict=True)]
        large = [k for k, agents in enumerate(sizes) if agents >= 1000]
        taken = steps if name == "exponential graph" else total
        each = ", ".join(f"{s * 1e6:,.0f}" for s in steps)
        yield Row(
            f"D-SOBA, {name}, K to {sizes[-1]:,}: slope of time",
            "K" if taken is steps else "K, 100 steps, network built",
            slope([sizes[k] for k in large], [taken[k] for k in large]), 1.05, at_most=True,
            detail=f"{each} us a step; built in {built[-1]:.2g} s",
        )  # fmt: skip
        yield Row(f"D-SOBA, {name}, K={sizes[-1]:,}: memory", "the state",
                  memory, 3, at_most=True)  # fmt: skip
    dims = [10**4, 10**5] if quick else [10**3, 10**4, 10**5, 10**6]
    steps, copies, memory = [], [], 0.0
    for dim in dims:
        problem, network = long_y(dim), hb.ring(EIGHT)
        window = max(12, 10**6 // dim)
        steps.append(min(pace(problem, network, DSOBA, window) for _ in range(2)))
        copies.append(copy_seconds(dim))
        memory = memory_held(problem, network)
    each = ", ".join(f"{s * 1e6:,.0f}" for s in steps)
    yield Row(f"D-SOBA, K=8, d_y to {dims[-1]:,}: slope of time", "d_y",
              slope([float(d) for d in dims], steps), 1.05, at_most=True,
              detail=f"{each} us a step")  # fmt: skip
    if not quick:
        each = ", ".join(f"{s * 1e6:,.0f}" for s in copies)
        yield Row(f"a copy of y and z, K=8, d_y to {dims[-1]:,}: slope of time", "d_y",
                  slope([float(d) for d in dims], copies), None, at_most=True,
                  detail=f"{each} us")  # fmt: skip
    yield Row(f"D-SOBA, K=8, d_y={dims[-1]:,}: memory", "the state", memory, 3, at_most=True)
