"""DBSA: t gossip steps on y, then a gossip step on x along the local hypergradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from hobnob.core.schedules import value_at
from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, T, b, L = world.K, world.steps, a.terms, a.smoothness
    identity = np.eye(world.y0.size)
    x, y = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    for t in range(T):
        for i in range(t + 1):
            eta = value_at(a.eta, i)
            rows = [world.inner_rows(k, t, "inner", at=(i,), of=(T,)) for k in range(K)]
            y = np.stack(
                [world.heard(k, y) - eta * world.grad_y_g(x[k], y[k], rows[k]) for k in range(K)]
            )
        new = np.empty_like(x)
        for k in range(K):
            zeta, xi = world.outer_rows(k, t, "zeta"), world.inner_rows(k, t, "xi")
            Q = identity
            for i in range(b):
                H = world.H(x[k], y[k], world.inner_rows(k, t, "xi_i", at=(i,), of=(b,)))
                Q = identity + (identity - H / L) @ Q
            z = Q @ world.grad_y_f(x[k], y[k], zeta) / L
            local = world.grad_x_f(x[k], y[k], zeta) - world.J(x[k], y[k], xi) @ z
            new[k] = world.heard(k, x) - a.alpha * local
        x = new
    return {"x": x, "y": y}
