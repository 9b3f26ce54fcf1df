"""stocBiO: N steps on y, then a step on x with the full series."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    x: Any = world.x0
    y: Any = world.y0
    L = a.smoothness
    identity = np.eye(y.size)
    for t in range(world.steps):
        steps = a.inner_steps
        for i in range(steps):
            y = y - a.beta * world.grad_y_g(
                x, y, world.inner_rows(0, t, "inner", at=(i,), of=(steps,))
            )
        zeta, xi = world.outer_rows(0, t, "zeta"), world.inner_rows(0, t, "xi")
        Q = identity
        for i in range(a.terms):
            rows = world.inner_rows(0, t, "xi_i", at=(i,), of=(a.terms,))
            Q = identity + (identity - world.H(x, y, rows) / L) @ Q
        q = Q / L
        z = q @ world.grad_y_f(x, y, zeta)
        x = x - a.alpha * (world.grad_x_f(x, y, zeta) - world.J(x, y, xi) @ z)
    return {"x": x[None], "y": y[None]}
