"""F2SA: a few steps on y and z, then a step on x; and F2SA-2, with y+ and y-."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.option import Option
from tests.reference.world import Logistic

OPTIONS = [Option("central", {"difference": "central"}, exact=False)]


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    return central(world, a) if a.difference == "central" else one_sided(world, a)


def one_sided(world: Logistic, a: Any) -> dict[str, np.ndarray]:
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


def central(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    x: Any = world.x0
    plus: Any = world.y0
    minus, p, of = plus, a.penalty, (a.inner_steps,)
    for t in range(world.steps):
        for i in range(a.inner_steps):
            xi = world.inner_rows(0, t, "xi_i", at=(i,), of=of)
            zeta = world.outer_rows(0, t, "zeta_i", at=(i,), of=of)
            d_plus = world.grad_y_g(x, plus, xi) + p * world.grad_y_f(x, plus, zeta)
            d_minus = world.grad_y_g(x, minus, xi) - p * world.grad_y_f(x, minus, zeta)
            plus, minus = plus - a.gamma * d_plus, minus - a.gamma * d_minus
        xi, zeta = world.inner_rows(0, t, "xi"), world.outer_rows(0, t, "zeta")
        # Each half is the x-gradient of min_y (g + p f), at p and at -p.
        above = world.grad_x_g(x, plus, xi) + p * world.grad_x_f(x, plus, zeta)
        below = world.grad_x_g(x, minus, xi) - p * world.grad_x_f(x, minus, zeta)
        x = x - a.alpha * (above - below) / (2 * p)
    return {"x": x[None], "y": (plus + minus)[None] / 2, "z": (plus - minus)[None] / 2}
