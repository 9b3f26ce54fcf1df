"""SCGD: an average of h, then a step on x."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Nested


def run(world: Nested, a: Any) -> dict[str, np.ndarray]:
    x: Any = world.x0
    y: Any = world.y0
    for t in range(world.steps):
        zeta, xi = world.outer_rows(0, t, "zeta"), world.inner_rows(0, t, "xi")
        y = (1 - a.beta) * y + a.beta * world.h(x, xi)
        slope = world.grad_h(x, xi) @ world.grad_y_f(y, zeta)
        x = x - a.alpha * (world.grad_x_f(x) + slope)
    return {"x": x[None], "y": y[None]}
