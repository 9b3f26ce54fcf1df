"""D-SOBA in the library against the same arithmetic in a bare `lax.scan`, K = 5, d = 14."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hobnob as hb
from benchmarks.dsbo import D, problem_of
from benchmarks.table import Row
from benchmarks.timing import best_of, pace, paced
from hobnob.ground import threefry

AGENTS = 5
ALPHA, BETA, GAMMA, THETA = 0.01, 0.05, 0.05, 0.2
DSOBA = hb.DSOBA(alpha=ALPHA, beta=BETA, gamma=GAMMA, theta=THETA)
STEPS = 50_000


def program_of(draw: Callable[..., jax.Array]) -> Callable[[], Any]:
    """x, y, z and r after all steps, without the library: derivatives by hand, a ring by shifts."""
    problem = problem_of(AGENTS).loaded()
    low, high = np.log(1e-4), -np.log(1e-4)
    fold_in = threefry.fold_in if draw is threefry.integers else jax.random.fold_in

    def mix(w: jax.Array) -> jax.Array:
        return (w + jnp.roll(w, 1, 0) + jnp.roll(w, -1, 0)) / 3

    def record(key: jax.Array, data: Any, start: Any, length: Any) -> Any:
        row = start + draw(key, (), length)
        return data["features"][row], data["label"][row]

    def of_agent(key: jax.Array, x: Any, y: Any, z: Any, r: Any, f: Any, g: Any) -> Any:
        a, t = record(fold_in(key, 1), *f)
        grad_y_f = -t * jax.nn.sigmoid(-t * (a @ y)) * a
        a, t = record(fold_in(key, 2), *g)
        weight, slope = jnp.exp(x), jax.nn.sigmoid(-t * (a @ y))
        grad_y_g = -t * slope * a + weight * y
        Hz = slope * (1 - slope) * (a @ z) * a + weight * z
        r = (1 - THETA) * r - THETA * weight * y * z
        return x - ALPHA * r, y - GAMMA * grad_y_g, z - BETA * (Hz - grad_y_f), r

    shards = None, 0, 0  # agents share the array of records; starts and lengths are per agent
    lifted = jax.vmap(of_agent, in_axes=(0, 0, 0, 0, 0, shards, shards))

    @jax.jit
    def program(state: Any, keys: jax.Array, f: Any, g: Any) -> Any:
        def step(state: Any, number: jax.Array) -> Any:
            now = jax.vmap(fold_in, in_axes=(0, None))(keys, number)
            x, y, z, r = state
            x, y, z, r = lifted(now, x, y, z, r, f, g)
            return (jnp.clip(mix(x), low, high), mix(y), mix(z), r), None

        return jax.lax.scan(step, state, jnp.arange(STEPS, dtype=jnp.int32))[0]

    with problem.precision():
        given = (
            (jnp.full((AGENTS, D), np.log(0.1)), *(jnp.zeros((AGENTS, D)) for _ in range(3))),
            jax.random.split(jax.random.key(0, impl="threefry2x32"), AGENTS),
            tuple(problem.outer_data.place()),
            tuple(problem.inner_data.place()),
        )

    def run() -> Any:
        with problem.precision():
            return jax.block_until_ready(program(*given))

    return run


def bare(draw: Callable[..., jax.Array]) -> Callable[[], float]:
    """Seconds per step."""
    run = program_of(draw)
    run()  # compiles
    return lambda: paced(run, 1, 1) / STEPS


def randint(key: jax.Array, shape: Any, bound: Any) -> jax.Array:
    return jax.random.randint(key, shape, 0, bound, jnp.int32)


def rows(quick: bool) -> Iterator[Row]:
    best = best_of(
        3 if quick else 8,
        {
            "solve": partial(pace, problem_of(AGENTS), hb.ring(AGENTS), DSOBA, STEPS, 2),
            "bare": bare(threefry.integers),
            "jax.random": bare(randint),
        },
    )
    name = "D-SOBA, hyper-parameters, K=5"
    rate = {who: f"{1 / seconds:,.0f}" for who, seconds in best.items()}
    yield Row(name, "lax.scan by hand, same draws", best["bare"] / best["solve"], 0.9,
              detail=f"{rate['solve']} and {rate['bare']} iterations/s")  # fmt: skip
    yield Row(name, "lax.scan by hand, jax.random", best["jax.random"] / best["solve"], None,
              detail=f"{rate['solve']} and {rate['jax.random']} iterations/s")  # fmt: skip
