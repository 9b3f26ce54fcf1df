"""What a plain NumPy transcription of an algorithm needs: data, derivatives, samples, W.

The problem is a ridge-regularised logistic regression with one weight exp(x_i) per feature, whose
derivatives are written out by hand. Samples are the library's own draws, so that a transcription
and the library see the same records.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hobnob as hb
from hobnob import keys

DIM = 4
SEED = 7


def logistic_problem(lengths: list[int], batch_size: int | None = 2) -> hb.Problem:
    """Ragged shards of a random classification problem."""
    rng = np.random.default_rng(3)
    truth = rng.normal(size=DIM)

    def shard(n: int) -> dict[str, np.ndarray]:
        a = rng.normal(size=(n, DIM)) + rng.normal(size=DIM) / 2
        return {"a": a, "t": np.where(a @ truth + rng.normal(size=n) > 0, 1.0, -1.0)}

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(jax.nn.softplus(-batch["t"] * (batch["a"] @ y))) + 0.05 * jnp.sum(x**2)

    def inner(x: Any, y: Any, batch: Any) -> Any:
        fit = jnp.mean(jax.nn.softplus(-batch["t"] * (batch["a"] @ y)))
        return fit + jnp.sum(jnp.exp(x) * y**2) / 2

    return hb.Problem(
        outer,
        inner,
        np.full(DIM, -0.5),
        np.full(DIM, 0.1),
        [shard(n) for n in lengths],
        [shard(n + 3) for n in lengths],
        batch_size,
    )


class World:
    """The problem above for NumPy. `rows` come from `outer_rows` and `inner_rows`."""

    def __init__(self, problem: hb.Problem, network: hb.Network, steps: int):
        self.problem, self.W, self.steps = problem, network.matrix, steps
        self.K = network.size
        self.x0, self.y0 = problem.x0, problem.y0

    def outer_rows(self, k: int, t: int, slot: str, count: int | None = None) -> np.ndarray:
        return _draws(self.problem, "outer_data", self.steps, slot, count)[k][t]

    def inner_rows(self, k: int, t: int, slot: str, count: int | None = None) -> np.ndarray:
        return _draws(self.problem, "inner_data", self.steps, slot, count)[k][t]

    def grad_x_f(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return 0.1 * x

    def grad_y_f(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self._fit_gradient("outer_data", y, rows)

    def grad_y_g(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self._fit_gradient("inner_data", y, rows) + np.exp(x) * y

    def J(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.diag(np.exp(x) * y)

    def H(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        a, t = self._records("inner_data", rows)
        p = 1 / (1 + np.exp(-t * (a @ y)))
        return (a.T * (p * (1 - p))) @ a / len(t) + np.diag(np.exp(x))

    def _fit_gradient(self, level: str, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        a, t = self._records(level, rows)
        return -(a.T @ (t / (1 + np.exp(t * (a @ y))))) / len(t)

    def _records(self, level: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        arrays = getattr(self.problem, level).arrays
        return arrays["a"][rows], arrays["t"][rows]


@cache
def _draws(problem: hb.Problem, level: str, steps: int, slot: str, count: int | None) -> np.ndarray:
    """The rows that every agent draws in every step: [agents, steps, (count,) batch]."""
    source = getattr(problem, level)

    def draw(agent: Any, place: Any, step: Any) -> Any:
        return source.draw(keys.of_slot(keys.of_agent(SEED, agent), step, slot), place, count)

    over_steps = jax.vmap(draw, in_axes=(None, None, 0))
    over_agents = jax.vmap(over_steps, in_axes=(0, source.per_agent, None))
    with problem.precision():
        agents, ts = jnp.arange(source.size, dtype=jnp.uint32), jnp.arange(steps)
        return np.asarray(jax.jit(over_agents)(agents, source.place(), ts))
