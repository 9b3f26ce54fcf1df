"""AmIGO: a few steps on y, a few on z, then a step on x."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    x: Any = world.x0
    y: Any = world.y0
    z = np.zeros_like(y)
    for t in range(world.steps):
        of = (a.inner_steps,)
        for i in range(a.inner_steps):
            rows = world.inner_rows(0, t, "inner", at=(i,), of=of)
            y = y - a.gamma * world.grad_y_g(x, y, rows)
        zeta, xi = world.outer_rows(0, t, "zeta"), world.inner_rows(0, t, "xi")
        right = world.grad_y_f(x, y, zeta)
        for i in range(a.inner_steps):
            rows = world.inner_rows(0, t, "xi_i", at=(i,), of=of)
            z = z - a.beta * (world.H(x, y, rows) @ z - right)
        x = x - a.alpha * (world.grad_x_f(x, y, zeta) - world.J(x, y, xi) @ z)
    return {"x": x[None], "y": y[None], "z": z[None]}
