"""F2SA: a few steps on y and z, then a step on x."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    x: Any = world.x0
    y: Any = world.y0
    z = y
    multiplier = 1 / a.penalty
    for t in range(world.steps):
        of = (a.inner_steps,)
        for i in range(a.inner_steps):
            xi = world.inner_rows(0, t, "xi_i", at=(i,), of=of)
            zeta = world.outer_rows(0, t, "zeta_i", at=(i,), of=of)
            d_y = world.grad_y_f(x, y, zeta) + multiplier * world.grad_y_g(x, y, xi)
            d_z = world.grad_y_g(x, z, xi)
            y, z = y - a.gamma / multiplier * d_y, z - a.gamma * d_z
        xi, zeta = world.inner_rows(0, t, "xi"), world.outer_rows(0, t, "zeta")
        apart = world.grad_x_g(x, y, xi) - world.grad_x_g(x, z, xi)
        x = x - a.alpha * (world.grad_x_f(x, y, zeta) + multiplier * apart)
    return {"x": x[None], "y": y[None], "z": z[None]}
