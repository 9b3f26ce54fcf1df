"""DSGD: t gossip averages of h, then a gossip step on x."""

from __future__ import annotations

from typing import Any

import numpy as np

from hobnob.core.schedules import value_at
from tests.reference.world import Nested


def run(world: Nested, a: Any) -> dict[str, np.ndarray]:
    K, T = world.K, world.steps
    x = np.tile(world.x0, (K, 1))
    y = np.zeros((K, world.y0.size))
    for t in range(T):
        y = np.zeros((K, world.y0.size))
        for i in range(t + 1):
            eta = value_at(a.eta, i)
            rows = [world.inner_rows(k, t, "inner", at=(i,), of=(T,)) for k in range(K)]
            y = np.stack(
                [(1 - eta) * world.heard(k, y) + eta * world.h(x[k], rows[k]) for k in range(K)]
            )
        new = np.empty_like(x)
        for k in range(K):
            zeta, xi = world.outer_rows(k, t, "zeta"), world.inner_rows(k, t, "xi")
            slope = world.grad_h(x[k], xi) @ world.grad_y_f(y[k], zeta)
            new[k] = world.heard(k, x) - a.alpha * (world.grad_x_f(x[k]) + slope)
        x = new
    return {"x": x, "y": y}
