"""Heterogeneous quadratics, with F, its gradient, y*(x) and x* in closed form.

Agent k holds, with z = (x, y) joined into one vector,

    g_k(x, y) = 1/2 y' A_k y - y' (B_k x + c_k)
    f_k(x, y) = 1/2 z' Q_k z - q_k' z

with A_k and Q_k symmetric and positive definite. Write A, B, ... for means over agents:

    y*(x)     = S x + A^-1 c,   S = A^-1 B
    grad F(x) = [I S'] (Q z - q)   at z = (x, y*(x))

F is strongly convex: its Hessian [I S'] Q [I S']' has no eigenvalue below the smallest of Q. If the
problem is personal, each agent has its own A, B, ..., and F is the mean over agents of such F.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.analysis.exact import Exact
from hobnob.core.data import Records
from hobnob.core.problem import Problem
from hobnob.ground.errors import SettingError
from hobnob.problems import _checks

Shard = dict[str, np.ndarray]


class Quadratic(Problem):
    """A bilevel problem whose records are matrices.

    Args:
        outer_data: one dict(Q, q) per agent, with shapes [n, d_x + d_y, d_x + d_y] and
            [n, d_x + d_y] for n records.
        inner_data: one dict(A, B, c) per agent, with shapes [n, d_y, d_y], [n, d_y, d_x], [n, d_y].
        batch_size: as in `Problem`.
        personal: as in `Problem`.
        dtype: the precision to compute in.
        name: for reports.
    """

    def __init__(
        self,
        outer_data: Sequence[Shard],
        inner_data: Sequence[Shard],
        batch_size: int | None = None,
        *,
        personal: bool = False,
        dtype: Any = np.float64,
        name: str = "quadratic",
    ):
        _, dim_y, dim_x = np.shape(inner_data[0]["B"])
        super().__init__(
            _outer,
            _inner,
            np.zeros(dim_x, dtype),
            np.zeros(dim_y, dtype),
            outer_data,
            inner_data,
            batch_size,
            personal=personal,
            name=name,
        )
        # From the stored data, so that the closed form has the same float32 rounding.
        outer, inner = (_means(s, personal) for s in (self.outer_data, self.inner_data))
        self._parts = [
            _Part(o["Q"], o["q"], np.linalg.solve(i["A"], i["B"]), np.linalg.solve(i["A"], i["c"]))
            for o, i in zip(outer, inner, strict=True)
        ]
        # grad F(x) = (mean of the curvatures) x - (mean of the pulls)
        terms = [part.of_gradient() for part in self._parts]
        self.solution = np.linalg.solve(
            *(np.mean(term, axis=0) for term in zip(*terms, strict=True))
        )

    def closed_form(self, x: Any) -> Exact:
        """F(x), its gradient and y*(x), without iterating."""
        values, gradients, ys = zip(
            *(part.at(np.asarray(x, np.float64)) for part in self._parts), strict=True
        )
        y = np.stack(ys) if self.personal else ys[0]
        return Exact(float(np.mean(values)), np.mean(gradients, axis=0), y)


class _Part(NamedTuple):
    """One inner problem with its outer loss: that of the means, or an agent's own."""

    Q: np.ndarray
    q: np.ndarray
    slope: np.ndarray  # y*(x) = slope x + offset
    offset: np.ndarray

    def of_gradient(self) -> tuple[np.ndarray, np.ndarray]:
        """C and p of grad F(x) = C x - p."""
        dim_x = self.slope.shape[1]
        along = np.vstack([np.eye(dim_x), self.slope])  # how z moves with x
        at_zero = np.concatenate([np.zeros(dim_x), self.offset])
        return along.T @ self.Q @ along, along.T @ (self.q - self.Q @ at_zero)

    def at(self, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """F(x), its gradient and y*(x)."""
        y = self.slope @ x + self.offset
        z = np.concatenate([x, y])
        slope_z = self.Q @ z - self.q
        value = float(z @ self.Q @ z / 2 - self.q @ z)
        return value, slope_z[: x.size] + self.slope.T @ slope_z[x.size :], y


def quadratic(
    agents: int = 8,
    dim_x: int = 5,
    dim_y: int = 6,
    *,
    heterogeneity: float = 1.0,
    condition: float = 10.0,
    scale: float = 1.0,
    noise: float = 0.0,
    records: int | str | None = None,
    batch_size: int | None = None,
    personal: bool = False,
    seed: int = 0,
    dtype: str = "float64",
) -> Quadratic:
    """A random heterogeneous quadratic.

    Args:
        agents, dim_x, dim_y: how many agents, and the lengths of x and y.
        heterogeneity: 0 makes all agents identical. B_k, c_k and q_k are `common + heterogeneity *
            own`. A_k and Q_k lie heterogeneity / (1 + heterogeneity) of the way from their mean to
            the point where the first of them would stop being positive definite.
        condition, scale: the eigenvalues of the mean of A_k go from scale to scale * condition,
            those of a single agent at most twice as far. `scale` multiplies all of g_k: it changes
            the right step sizes, but neither y*(x) nor F.
        noise: the standard deviation of the records' entries around their agent's matrices; their
            mean over a shard is exactly the agent's own. Only a `batch_size` lets it show: without
            one, agents take their whole shards.
        records: the records of each agent, or "ragged" for shards of different lengths. The default
            is 1 without noise and 32 with it.
        batch_size: as in `Problem`.
        personal: as in `Problem`: every agent has a y of its own.
        seed: of the matrices.
        dtype: the precision, "float64" or "float32".
    """
    agents = _checks.whole("agents", agents)
    dim_x, dim_y = _checks.whole("dim_x", dim_x), _checks.whole("dim_y", dim_y)
    own = _checks.number("heterogeneity", heterogeneity, 0)
    condition = _checks.number("condition", condition, 1)
    scale = _checks.number("scale", scale, 0, excluded=True)
    noise = _checks.number("noise", noise, 0)
    lengths = _lengths(records, agents, noise)
    rng = np.random.default_rng(seed)

    def differing(*shape: int) -> np.ndarray:
        return rng.normal(size=shape) + own * rng.normal(size=(agents, *shape))

    inner = {
        "A": scale * _positive_definite(rng, agents, dim_y, 1, condition, own),
        "B": scale * differing(dim_y, dim_x) / np.sqrt(dim_x),
        "c": scale * differing(dim_y),
    }
    outer = {
        "Q": _positive_definite(rng, agents, dim_x + dim_y, 0.5, 2, own),
        "q": differing(dim_x + dim_y),
    }

    def shards(means: Shard, spread: float) -> list[Shard]:
        return [
            {name: _around(rng, name, mean[k], spread, n) for name, mean in means.items()}
            for k, n in enumerate(lengths)
        ]

    return Quadratic(
        shards(outer, noise),
        shards(inner, noise * scale),
        batch_size,
        personal=personal,
        dtype=_checks.precision(dtype),
    )


def _outer(x: jax.Array, y: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    z = jnp.concatenate([x, y])
    return jnp.mean(batch["Q"] @ z @ z / 2 - batch["q"] @ z)


def _inner(x: jax.Array, y: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    return jnp.mean(batch["A"] @ y @ y / 2 - batch["B"] @ x @ y - batch["c"] @ y)


def _means(source: Any, personal: bool) -> list[Shard]:
    """Each agent's mean over its records in float64, or the mean of these as the only entry."""
    assert isinstance(source, Records)
    if personal:
        spans = zip(source.starts, source.starts + source.lengths, strict=True)
        return [
            {
                name: array[a:b].mean(axis=0, dtype=np.float64)
                for name, array in source.arrays.items()
            }
            for a, b in spans
        ]
    weights = np.repeat(1 / (source.size * source.lengths), source.lengths)
    return [{name: np.tensordot(weights, array, 1) for name, array in source.arrays.items()}]


def _positive_definite(
    rng: np.random.Generator, agents: int, size: int, least: float, condition: float, own: float
) -> np.ndarray:
    """One matrix per agent; the eigenvalues of their mean go from least to least * condition."""
    axes, _ = np.linalg.qr(rng.normal(size=(size, size)))
    root = axes * np.sqrt(least * condition ** np.linspace(0, 1, size))
    turns = rng.normal(size=(agents, size, size))
    turns = turns + turns.swapaxes(1, 2)
    turns -= turns.mean(axis=0)
    # At norm 1 the first matrix would become singular. A single agent has turns of 0.
    turns /= max(np.linalg.norm(turns, 2, axis=(1, 2)).max(), 1e-12)
    matrices = root @ (np.eye(size) + own / (1 + own) * turns) @ root.T
    return (matrices + matrices.swapaxes(1, 2)) / 2


def _around(
    rng: np.random.Generator, name: str, mean: np.ndarray, noise: float, count: int
) -> np.ndarray:
    """`count` records with exactly this mean. Those of A and Q are symmetric."""
    drawn = rng.normal(size=(count, *mean.shape))
    if name in "AQ":
        drawn = np.tril(drawn) + np.tril(drawn, -1).swapaxes(1, 2)
    return mean + noise * (drawn - drawn.mean(0))


def _lengths(records: int | str | None, agents: int, noise: float) -> list[int]:
    if records == "ragged":
        return [8 + 4 * (agent % 4) for agent in range(agents)]
    if records is None:
        return [32 if noise else 1] * agents
    if isinstance(records, str):
        raise SettingError(f'records must be a whole number or "ragged", not {records!r}.')
    count = _checks.whole("records", records)
    if noise and count == 1:
        raise SettingError("records = 1 leaves no room for noise around a mean. Use 2 or more.")
    return [count] * agents
