"""Adaptive for the whole network at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K = world.K
    M = (np.eye(K) + world.W) / 2
    x, y = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    r, g_y, g_z = np.zeros_like(x), np.zeros_like(y), np.zeros_like(y)
    Mu_x, Mu_y, Mu_z = np.zeros_like(x), np.zeros_like(y), np.zeros_like(y)
    z, h, s, top = np.zeros_like(y), np.zeros_like(y), np.zeros_like(x), np.zeros_like(x)
    for t in range(1, world.steps + 1):
        zeta = [world.outer_rows(k, t - 1, "zeta") for k in range(K)]
        xi = [world.inner_rows(k, t - 1, "xi") for k in range(K)]
        before = r, g_y, g_z
        r, g_y, g_z = np.empty_like(x), np.empty_like(y), np.empty_like(y)
        probe = np.empty_like(y)
        for k in range(K):
            v = world.signs(k, t - 1, "v", y.shape[1])
            probe[k] = v * (world.H(x[k], y[k], xi[k]) @ v)
            g_y[k] = world.grad_y_g(x[k], y[k], xi[k])
        h = 0.99 * h + 0.01 * probe**2
        D = 1 / np.sqrt(h / (1 - 0.99**t))
        u_y = Mu_y + g_y - before[1]
        y, Mu_y = M @ (y - a.gamma * D * u_y), M @ u_y
        for k in range(K):
            g_z[k] = world.H(x[k], y[k], xi[k]) @ z[k] - world.grad_y_f(x[k], y[k], zeta[k])
        u_z = Mu_z + g_z - before[2]
        z, Mu_z = M @ (z - a.gamma * D * u_z), M @ u_z
        for k in range(K):
            direction = world.grad_x_f(x[k], y[k], zeta[k]) - world.J(x[k], y[k], xi[k]) @ z[k]
            r[k] = (1 - a.theta) * before[0][k] + a.theta * direction
        u_x = Mu_x + r - before[0]
        s = 0.999 * s + 0.001 * u_x**2
        S = s / (1 - 0.999**t)
        top = np.maximum(top, S)
        x = M @ (x - a.alpha * u_x / np.sqrt(np.maximum(S, 0.01 * top)))
        Mu_x = M @ u_x
    trackers = {"Mu_x": Mu_x, "Mu_y": Mu_y, "Mu_z": Mu_z, "g_y": g_y, "g_z": g_z}
    return {"x": x, "y": y, "z": z, "r": r, "h": h, "s": s, "top": top, **trackers}
