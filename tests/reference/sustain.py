"""SUSTAIN: STORM on both levels, with one random term of the series."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    x: Any = world.x0
    y: Any = world.y0
    x_before, y_before = x, y
    u, v = np.zeros_like(x), np.zeros_like(y)

    def G(x: Any, y: Any, t: int) -> np.ndarray:
        return world.grad_y_g(x, y, world.inner_rows(0, t, "xi'"))

    def D(x: Any, y: Any, t: int) -> np.ndarray:
        zeta, xi = world.outer_rows(0, t, "zeta"), world.inner_rows(0, t, "xi")
        q = np.eye(y.size) * a.terms / a.smoothness
        for j in range(world.below(0, t, "n", a.terms)):
            rows = world.inner_rows(0, t, "xi_j", at=(j,), of=(a.terms - 1,))
            q = (np.eye(y.size) - world.H(x, y, rows) / a.smoothness) @ q
        z = q @ world.grad_y_f(x, y, zeta)
        return world.grad_x_f(x, y, zeta) - world.J(x, y, xi) @ z

    for t in range(world.steps):
        theta = 1 if t == 0 else a.theta
        v = G(x, y, t) + (1 - theta) * (v - G(x_before, y_before, t))
        u = D(x, y, t) + (1 - theta) * (u - D(x_before, y_before, t))
        x_before, y_before = x, y
        x, y = x - a.alpha * u, y - a.beta * v
    state = {"x": x, "y": y, "x_before": x_before, "y_before": y_before, "u": u, "v": v}
    return {name: value[None] for name, value in state.items()}
