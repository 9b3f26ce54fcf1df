"""TTSA: a step on y, then a step on x with one random term of the series."""

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
        y = y - a.beta * world.grad_y_g(x, y, world.inner_rows(0, t, "xi'"))
        zeta, xi = world.outer_rows(0, t, "zeta"), world.inner_rows(0, t, "xi")
        q = identity * a.terms / L
        for j in range(world.below(0, t, "n", a.terms)):
            rows = world.inner_rows(0, t, "xi_j", at=(j,), of=(a.terms - 1,))
            q = (identity - world.H(x, y, rows) / L) @ q
        z = q @ world.grad_y_f(x, y, zeta)
        x = x - a.alpha * (world.grad_x_f(x, y, zeta) - world.J(x, y, xi) @ z)
    return {"x": x[None], "y": y[None]}
