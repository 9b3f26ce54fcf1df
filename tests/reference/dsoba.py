"""D-SOBA for the whole network at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, W, d = world.K, world.W, a.width
    x, y = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    z, r = np.zeros_like(y), np.zeros_like(x)
    for t in range(world.steps):
        g_x, g_y, g_z = np.empty_like(x), np.empty_like(y), np.empty_like(z)
        for k in range(K):
            zeta, xi = world.outer_rows(k, t, "zeta"), world.inner_rows(k, t, "xi")
            at = x[k], y[k]
            if a.products == "second":
                Jz, Hz = world.J(*at, xi) @ z[k], world.H(*at, xi) @ z[k]
            else:
                above, below = (x[k], y[k] + d * z[k]), (x[k], y[k] - d * z[k])
                Jz = (world.grad_x_g(*above, xi) - world.grad_x_g(*below, xi)) / (2 * d)
                Hz = (world.grad_y_g(*above, xi) - world.grad_y_g(*below, xi)) / (2 * d)
            g_x[k] = world.grad_x_f(*at, zeta) - Jz
            g_y[k] = world.grad_y_g(*at, xi)
            g_z[k] = Hz - world.grad_y_f(*at, zeta)
        y = W @ (y - a.gamma * g_y)
        z = W @ (z - a.beta * g_z)
        r = (1 - a.theta) * r + a.theta * g_x
        x = W @ (x - a.alpha * r)
    return {"x": x, "y": y, "z": z, "r": r}
