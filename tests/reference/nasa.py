"""NASA: averages of h and of the gradient, one time scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Nested


def run(world: Nested, a: Any) -> dict[str, np.ndarray]:
    x, y, z = world.x0, world.y0, np.zeros_like(world.x0)
    for t in range(world.steps):
        zeta, xi = world.outer_rows(0, t, "zeta"), world.inner_rows(0, t, "xi")
        x = x + a.tau * ((x - z / a.c) - x)
        slope = world.grad_h(x, xi) @ world.grad_y_f(y, zeta)
        z = (1 - a.a * a.tau) * z + a.a * a.tau * (world.grad_x_f(x) + slope)
        y = (1 - a.b * a.tau) * y + a.b * a.tau * world.h(x, xi)
    return {"x": x[None], "y": y[None], "z": z[None]}
