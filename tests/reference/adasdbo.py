"""AdaSDBO for the whole network at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, W = world.K, world.W
    x, y = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    z = np.zeros_like(y)
    S_x, S_y, S_z = (np.full(K, a.initial) for _ in "xyz")
    for t in range(world.steps):
        x_next, y_next, z_next = np.empty_like(x), np.empty_like(y), np.empty_like(z)
        for k in range(K):
            zeta, xi = world.outer_rows(k, t, "zeta"), world.inner_rows(k, t, "xi")
            at = x[k], y[k]
            u_y = world.grad_y_g(*at, xi)
            u_z = world.H(*at, xi) @ z[k] - world.grad_y_f(*at, zeta)
            u_x = world.grad_x_f(*at, zeta) - world.J(*at, xi) @ z[k]
            S_x[k] += np.linalg.norm(u_x) ** 2
            S_y[k] += np.linalg.norm(u_y) ** 2
            S_z[k] += np.linalg.norm(u_z) ** 2
            larger = max(S_y[k], S_z[k])
            y_next[k] = y[k] - a.gamma / S_y[k] ** 0.5 * u_y
            z_next[k] = z[k] - a.beta / larger**0.5 * u_z
            x_next[k] = x[k] - a.alpha / (S_x[k] ** 0.5 * larger**0.5) * u_x
        x, y, z = W @ x_next, W @ y_next, W @ z_next
        S_x, S_y, S_z = W @ S_x, W @ S_y, W @ S_z
    return {"x": x, "y": y, "z": z, "S": np.stack([S_x, S_y, S_z], axis=1)}
