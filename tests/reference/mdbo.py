"""MDBO for the whole network at once, with every agent's own inverse formed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, W, b, L = world.K, world.W, a.terms, a.smoothness
    identity = np.eye(world.y0.size)
    x, y = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    m_x, m_y = np.zeros_like(x), np.zeros_like(y)
    u_x, u_y = m_x, m_y
    for t in range(world.steps):
        new_x, new_y = np.empty_like(x), np.empty_like(y)
        for k in range(K):
            zeta, xi = world.outer_rows(k, t, "zeta"), world.inner_rows(k, t, "xi")
            at = x[k], y[k]
            Q = identity
            for i in range(b):
                H = world.H(*at, world.inner_rows(k, t, "xi_i", at=(i,), of=(b,)))
                Q = identity + (identity - H / L) @ Q
            local = world.grad_x_f(*at, zeta) - world.J(*at, xi) @ Q @ world.grad_y_f(*at, zeta) / L
            new_x[k] = (1 - a.theta) * m_x[k] + a.theta * local
            new_y[k] = (1 - a.theta) * m_y[k] + a.theta * world.grad_y_g(*at, xi)
        u_x, u_y = W @ u_x + new_x - m_x, W @ u_y + new_y - m_y
        m_x, m_y = new_x, new_y
        x, y = W @ x - a.alpha * u_x, W @ y - a.gamma * u_y
    return {"x": x, "y": y, "m_x": m_x, "m_y": m_y, "u_x": u_x, "u_y": u_y}
