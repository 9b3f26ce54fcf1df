"""MA-DSBO-GT for the whole network at once: MA-DSBO with tracking on y, z and x."""

from __future__ import annotations

from typing import Any

import numpy as np

from hobnob.core.schedules import power, value_at
from tests.reference.option import Option
from tests.reference.world import Logistic

# It vanishes fast, or a problem without flat directions would not be solved to 1e-9.
OPTIONS = [Option("ridge", {"ridge": power(1.0, 2.5)}, exact=True)]


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, W, N = world.K, world.W, a.inner_steps
    agents = range(K)
    x, y = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    z, s, d = np.zeros_like(y), np.zeros_like(y), np.zeros_like(y)
    q, p = np.zeros_like(y), np.zeros_like(y)
    r, h = np.zeros_like(x), np.zeros_like(x)
    for t in range(world.steps):
        ridge = value_at(a.ridge, t)
        for i in range(N):
            xi = [world.inner_rows(k, t, "inner", at=(i,), of=(N,)) for k in agents]
            new = np.stack([world.grad_y_g(x[k], y[k], xi[k]) + ridge * y[k] for k in agents])
            p, q = W @ p + new - q, new
            y = W @ y - a.gamma * p
        for i in range(N):
            zeta = [world.outer_rows(k, t, "zeta_i", at=(i,), of=(N,)) for k in agents]
            xi = [world.inner_rows(k, t, "xi_i", at=(i,), of=(N,)) for k in agents]
            new = np.empty_like(s)
            for k in agents:
                at = x[k], y[k]
                H = world.H(*at, xi[k]) + ridge * np.eye(len(z[k]))
                new[k] = H @ z[k] - world.grad_y_f(*at, zeta[k])
            d, s = W @ d + new - s, new
            z = W @ z - a.beta * d
        u = np.empty_like(x)
        for k in agents:
            zeta_k, xi_k = world.outer_rows(k, t, "zeta"), world.inner_rows(k, t, "xi")
            u[k] = world.grad_x_f(x[k], y[k], zeta_k) - world.J(x[k], y[k], xi_k) @ z[k]
        x = W @ x - a.alpha * h
        new = (1 - a.theta) * r + a.theta * u
        h, r = W @ h + new - r, new
    return {"x": x, "y": y, "z": z, "q": q, "p": p, "s": s, "d": d, "r": r, "h": h}
