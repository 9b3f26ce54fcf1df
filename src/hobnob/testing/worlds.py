"""The small ready problems and networks that the checks run on.

There are two worlds. In the *sampled* one a few agents with shards of different lengths draw
batches. In the *steady* one nothing is random, x is bounded and the solution is known. Both
have a *personal* version, in which every agent has its own y.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

from hobnob.core.data import Records
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.networks.hubs import complete
from hobnob.networks.lines import ring
from hobnob.problems.compositional import Compositional
from hobnob.problems.quadratic import Quadratic, quadratic

DIM = 4
SEED = 7
RAGGED = [5, 2, 9, 3, 4, 7]  # records an agent
STEADY_AGENTS = 8
BOUND = 5.0  # of every |x_i| in the steady world; its solution is well inside

# Agent 0 knows everyone, so that the table of neighbours is as wide as any of six agents.
IRREGULAR = nx.Graph([(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 2), (3, 4)])


def logistic(lengths: list[int], batch_size: int | None = 2, personal: bool = False) -> Problem:
    """Ragged shards of a random classification problem, with one weight exp(x_i) per feature."""
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

    return Problem(
        outer,
        inner,
        np.full(DIM, -0.5),
        np.full(DIM, 0.1),
        [shard(n) for n in lengths],
        [shard(n + 3) for n in lengths],
        batch_size,
        personal=personal,
    )


def compositional(lengths: list[int], batch_size: int | None = 2) -> Compositional:
    """f(h(x)) with h(x; A, b) = tanh(A x) + b and f(y; c) = |y - c|^2 / 2, and a regulariser."""
    rng = np.random.default_rng(5)
    A = rng.normal(size=(DIM + 1, DIM))

    def mapping_shard(n: int) -> dict[str, np.ndarray]:
        return {"A": A + rng.normal(size=(n, DIM + 1, DIM)) / 3, "b": rng.normal(size=(n, DIM + 1))}

    def outer_shard(n: int) -> np.ndarray:
        return 1 + rng.normal(size=(n, DIM + 1))

    return Compositional(
        lambda x, batch: jnp.mean(jnp.tanh(batch["A"] @ x) + batch["b"], axis=0),
        lambda y, batch: jnp.mean(jnp.sum((y - batch) ** 2, axis=1)) / 2,
        np.full(DIM, 0.2),
        [mapping_shard(n + 3) for n in lengths],
        [outer_shard(n) for n in lengths],
        batch_size,
        regulariser=lambda x: 0.05 * jnp.sum(x**2),
    )


def sampled(nested: bool, alone: bool, personal: bool = False) -> tuple[Problem, Network]:
    """A world with noise: six agents on an irregular graph, or one."""
    lengths = RAGGED[:1] if alone else RAGGED
    problem = compositional(lengths) if nested else logistic(lengths, personal=personal)
    return problem, complete(1) if alone else Network(IRREGULAR)


def steady(
    nested: bool,
    alone: bool,
    personal: bool = False,
    heterogeneity: float = 1.0,
    pull: float = 1.0,
) -> tuple[Problem, Network]:
    """A world without noise. `pull` multiplies the targets: a large one pulls x to its bounds."""
    agents = 1 if alone else STEADY_AGENTS
    if nested:
        problem = _steady_nested(agents, heterogeneity, pull)
    else:
        problem = _steady_quadratic(agents, personal, heterogeneity, pull)
    most = np.full(problem.dim_x, BOUND)
    problem.x_bounds = -most, most
    return problem, ring(agents)


def _steady_quadratic(agents: int, personal: bool, heterogeneity: float, pull: float) -> Problem:
    made = quadratic(agents, condition=4.0, seed=1, heterogeneity=heterogeneity)
    outer = [{"Q": shard["Q"], "q": pull * shard["q"]} for shard in shards(made.outer_data)]
    return Quadratic(outer, shards(made.inner_data), personal=personal)


def _steady_nested(agents: int, heterogeneity: float, pull: float) -> Problem:
    rng = np.random.default_rng(2)

    def differing(*shape: int) -> np.ndarray:
        return rng.normal(size=shape) + heterogeneity * rng.normal(size=(agents, 1, *shape)) / 2

    A, b, c = differing(4, 3) / 2, differing(4), differing(4)
    return Compositional(
        lambda x, batch: jnp.mean(batch["A"] @ x + batch["b"], axis=0),
        lambda y, batch: jnp.mean(jnp.sum((y - batch) ** 2, axis=1)) / 2,
        np.zeros(3),
        [{"A": A[k], "b": b[k]} for k in range(agents)],
        [pull * c[k] for k in range(agents)],
        None,
        regulariser=lambda x: 0.1 * jnp.sum(x**2),
    )


def shards(source: Records) -> list[Any]:
    """The records of each agent."""
    ends = source.starts + source.lengths
    return [
        jax.tree.map(lambda array, a=a, b=b: array[a:b], source.arrays)
        for a, b in zip(source.starts, ends, strict=True)
    ]
