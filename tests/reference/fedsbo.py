"""Algorithm 2: one server, exact averages, Q formed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, b, L = world.K, a.terms, a.smoothness
    x: Any = world.x0
    y: Any = world.y0
    d_x, d_y = x.size, y.size
    identity = np.eye(d_y)
    s, h, u = np.zeros(d_x), np.zeros(d_y), np.zeros((d_x, d_y))
    v = np.tile(a.strong_convexity * identity, (b, 1, 1))
    for t in range(world.steps):
        Q = identity
        for i in range(b):
            Q = identity + (identity - v[i] / L) @ Q
        inverse = Q / L if a.inverse == "series" else np.linalg.inv(v.mean(axis=0))
        zeta = [world.outer_rows(k, t, "zeta") for k in range(K)]
        xi = [world.inner_rows(k, t, "xi") for k in range(K)]
        xis = [world.inner_rows(k, t, "xi_i", b) for k in range(K)]
        grad_y_g = sum(world.grad_y_g(x, y, xi[k]) for k in range(K)) / K
        grad_x_f = sum(world.grad_x_f(x, y, zeta[k]) for k in range(K)) / K
        grad_y_f = sum(world.grad_y_f(x, y, zeta[k]) for k in range(K)) / K
        J = sum(world.J(x, y, xi[k]) for k in range(K)) / K
        H = [sum(world.H(x, y, xis[k][i]) for k in range(K)) / K for i in range(b)]
        x, y = x - a.alpha * (s - u @ inverse @ h), y - a.gamma * grad_y_g
        s = (1 - a.beta) * s + a.beta * grad_x_f
        h = (1 - a.beta) * h + a.beta * grad_y_f
        u = (1 - a.beta) * u + a.beta * J
        v = np.stack([(1 - a.beta) * v[i] + a.beta * H[i] for i in range(b)])
    held = {"x": x, "y": y, "s": s, "h": h, "u": u, "v": v}
    return {name: np.stack([value] * K) for name, value in held.items()}
