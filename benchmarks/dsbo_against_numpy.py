"""Iterations per second of DSBO beside a vectorised NumPy version of the same recursion.

Both run hyper-parameter optimisation of a logistic regression with d = 14, b = 200, batches of one
record, float64, on a ring with weights 1/3, in the same process, one after the other, three times.
Machines are shared: the ratio is what counts.
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np

import hobnob as hb

D, B, L = 14, 200, 5.0
ALPHA, BETA, GAMMA = 0.01, 0.1, 0.1


def records(agents: int, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    def shard(n: int) -> dict[str, np.ndarray]:
        return {"a": rng.uniform(-1, 1, (n, D)), "t": rng.choice([-1.0, 1.0], n)}

    return [shard(345 // agents) for _ in range(agents)]


def library(agents: int, steps: int) -> float:
    rng = np.random.default_rng(0)

    def outer(x: jax.Array, y: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean(jax.nn.softplus(-batch["t"] * (batch["a"] @ y)))

    def inner(x: jax.Array, y: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
        return outer(x, y, batch) + jnp.exp(x) @ y**2 / 2

    start = np.zeros(D)
    problem = hb.Problem(outer, inner, start, start, records(agents, rng), records(agents, rng))
    dsbo = hb.DSBO(alpha=ALPHA, beta=BETA, gamma=GAMMA, terms=B, smoothness=L, strong_convexity=1.0)
    result = hb.solve(problem, hb.ring(agents), dsbo, steps=steps, metrics=None)
    return steps / float(result.history["seconds"][-1])


def vectorised_numpy(agents: int, steps: int) -> float:
    """All agents at once; Q h by matrix-vector products, as in the library."""
    rng = np.random.default_rng(0)
    outer, inner = records(agents, rng), records(agents, rng)
    A_f, t_f = (np.stack([r[key] for r in outer]) for key in ("a", "t"))
    A_g, t_g = (np.stack([r[key] for r in inner]) for key in ("a", "t"))
    W, n, every = hb.ring(agents).matrix, A_f.shape[1], np.arange(agents)
    x, y, s, h = (np.zeros((agents, D)) for _ in range(4))
    u = np.zeros((agents, D, D))
    v = np.tile(np.eye(D), (agents, B, 1, 1))
    diagonal = np.arange(D)

    def mix(w: np.ndarray) -> np.ndarray:
        return np.tensordot(W, w, 1)

    clock = time.perf_counter()
    for _ in range(steps):
        i, j = rng.integers(n, size=agents), rng.integers(n, size=agents)
        js = rng.integers(n, size=(agents, B))
        a, t = A_f[every, i], t_f[every, i]
        grad_y_f = (-t / (1 + np.exp(t * (a * y).sum(1))))[:, None] * a
        a, t = A_g[every, j], t_g[every, j]
        weight = np.exp(x)
        grad_y_g = (-t / (1 + np.exp(t * (a * y).sum(1))))[:, None] * a + weight * y
        a, t = A_g[every[:, None], js], t_g[every[:, None], js]
        p = 1 / (1 + np.exp(-t * np.einsum("kbd,kd->kb", a, y)))
        H = (p * (1 - p))[..., None, None] * a[..., :, None] * a[..., None, :]
        H[..., diagonal, diagonal] += weight[:, None]
        q = h
        for b in range(B):
            q = h + q - np.einsum("kde,ke->kd", v[:, b], q) / L
        J = np.zeros((agents, D, D))
        J[:, diagonal, diagonal] = weight * y
        x_new = mix(x) - ALPHA * (s - np.einsum("kde,ke->kd", u, q / L))
        y_new = mix(y) - GAMMA * grad_y_g
        s = (1 - BETA) * mix(s)  # grad_x f is zero here
        h = (1 - BETA) * mix(h) + BETA * grad_y_f
        u = (1 - BETA) * mix(u) + BETA * J
        v = (1 - BETA) * mix(v) + BETA * H
        x, y = x_new, y_new
    return steps / (time.perf_counter() - clock)


def main() -> None:
    print(f"{'agents':>6} {'hobnob':>10} {'NumPy':>10} {'ratio':>7}   iterations per second")
    for agents, steps in ((5, 600), (20, 200)):
        for _ in range(3):
            ours, theirs = library(agents, 4 * steps), vectorised_numpy(agents, steps)
            print(f"{agents:>6} {ours:>10,.0f} {theirs:>10,.0f} {ours / theirs:>7.1f}")


if __name__ == "__main__":
    main()
