"""Decentralised STORM for the whole network at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.option import Option
from tests.reference.world import Logistic

# A step size is a length here, which no curvature suggests. These are short: at the solution, which
# they don't reach within a check, rounding errors grow. They don't reach bounds either.
LENGTHS = {"alpha": 0.01, "beta": 0.01, "gamma": 0.01}
OPTIONS = [
    Option(
        "normalised",
        {"directions": "normalised", **LENGTHS},
        exact=False,
        elsewhere=("bounds",),  # test_heavy_tails.py
    )
]


def unit(u: np.ndarray) -> np.ndarray:
    """Every agent's direction, at length 1."""
    return np.stack([row / np.sqrt(row @ row) for row in u])


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, W = world.K, world.W
    w = [np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1)), np.zeros((K, world.y0.size))]
    before = w
    v = [np.zeros_like(part) for part in w]
    u = v

    def G(at: Any, t: int) -> list[np.ndarray]:
        x, y, z = at
        found = [np.empty_like(part) for part in at]
        for k in range(K):
            zeta, xi = world.outer_rows(k, t, "zeta"), world.inner_rows(k, t, "xi")
            point = x[k], y[k]
            found[0][k] = world.grad_x_f(*point, zeta) - world.J(*point, xi) @ z[k]
            found[1][k] = world.grad_y_g(*point, xi)
            found[2][k] = world.H(*point, xi) @ z[k] - world.grad_y_f(*point, zeta)
        return found

    for t in range(world.steps):
        theta = 1 if t == 0 else a.theta
        here, there = G(w, t), G(before, t)
        new = [here[i] + (1 - theta) * (v[i] - there[i]) for i in range(3)]
        u = [W @ u[i] + new[i] - v[i] for i in range(3)]
        v, before = new, w
        d = [unit(part) for part in u] if a.directions == "normalised" else u
        w = [W @ w[i] - step * d[i] for i, step in enumerate((a.alpha, a.gamma, a.beta))]
    x, y, z = w
    joined = (np.concatenate(parts, axis=1) for parts in (before, v, u))
    return {"x": x, "y": y, "z": z, **dict(zip(("before", "v", "u"), joined, strict=True))}
