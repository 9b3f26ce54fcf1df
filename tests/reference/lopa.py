"""LoPA for the whole network at once: y and z of each agent are its own, only x is mixed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, W = world.K, world.W
    x, y = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    z, r, h = np.zeros_like(y), np.zeros_like(x), np.zeros_like(x)
    for t in range(world.steps):
        u, g_y, g_z = np.empty_like(x), np.empty_like(y), np.empty_like(z)
        for k in range(K):
            zeta, xi = world.outer_rows(k, t, "zeta"), world.inner_rows(k, t, "xi")
            at = x[k], y[k]
            u[k] = world.grad_x_f(*at, zeta) - world.J(*at, xi) @ z[k]
            g_y[k] = world.grad_y_g(*at, xi)
            g_z[k] = world.H(*at, xi) @ z[k] - world.grad_y_f(*at, zeta)
        y = y - a.gamma * g_y
        z = z - a.beta * g_z
        new = (1 - a.theta) * r + a.theta * u
        h = W @ h + new - r if a.direction == "gt" else new
        r = new
        x = W @ x - a.alpha * h
    return {"x": x, "y": y, "z": z, "r": r, "h": h}
