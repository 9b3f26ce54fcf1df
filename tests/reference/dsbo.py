"""Algorithm 1 for the whole network at once, in plain NumPy: loops as in the paper, Q formed."""

from __future__ import annotations

from typing import Any

import numpy as np

from hobnob.core.schedules import value_at
from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, b, L = world.K, a.terms, a.smoothness
    d_x, d_y = world.x0.size, world.y0.size
    identity = np.eye(d_y)
    x, y = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    s, h, u = np.zeros((K, d_x)), np.zeros((K, d_y)), np.zeros((K, d_x, d_y))
    v = np.tile(a.strong_convexity * identity, (K, b, 1, 1))
    for t in range(world.steps):
        alpha, beta, gamma = (value_at(rate, t) for rate in (a.alpha, a.beta, a.gamma))
        x_, y_, s_, h_, u_, v_ = (np.empty_like(w) for w in (x, y, s, h, u, v))
        for k in range(K):
            zeta = world.outer_rows(k, t, "zeta")
            xi = world.inner_rows(k, t, "xi")
            xis = world.inner_rows(k, t, "xi_i", b)
            Q = identity
            for i in range(b):
                Q = identity + (identity - v[k, i] / L) @ Q
            q = Q / L

            x_[k] = world.heard(k, x) - alpha * (s[k] - u[k] @ q @ h[k])
            y_[k] = world.heard(k, y) - gamma * world.grad_y_g(x[k], y[k], xi)
            s_[k] = (1 - beta) * world.heard(k, s) + beta * world.grad_x_f(x[k], y[k], zeta)
            h_[k] = (1 - beta) * world.heard(k, h) + beta * world.grad_y_f(x[k], y[k], zeta)
            u_[k] = (1 - beta) * world.heard(k, u) + beta * world.J(x[k], y[k], xi)
            mixed = world.heard(k, v)
            for i in range(b):
                v_[k, i] = (1 - beta) * mixed[i] + beta * world.H(x[k], y[k], xis[i])
        x, y, s, h, u, v = x_, y_, s_, h_, u_, v_
    return {"x": x, "y": y, "s": s, "h": h, "u": u, "v": v}
