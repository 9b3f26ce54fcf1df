"""MA-SOBA: three steps at once, x along an average."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    x: Any = world.x0
    y: Any = world.y0
    z, r = np.zeros_like(y), np.zeros_like(x)
    for t in range(world.steps):
        zeta, xi = world.outer_rows(0, t, "zeta"), world.inner_rows(0, t, "xi")
        w = world.grad_x_f(x, y, zeta) - world.J(x, y, xi) @ z
        d_y = world.grad_y_g(x, y, xi)
        d_z = world.H(x, y, xi) @ z - world.grad_y_f(x, y, zeta)
        x, y, z = x - a.alpha * r, y - a.gamma * d_y, z - a.beta * d_z
        r = (1 - a.theta) * r + a.theta * w
    return {"x": x[None], "y": y[None], "z": z[None], "r": r[None]}
