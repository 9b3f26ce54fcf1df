"""MA-DSBO-GT for the whole network at once: MA-DSBO with tracking on y, z and x."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, W, N = world.K, world.W, a.inner_steps
    agents = range(K)
    x, y = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    z, s, d = np.zeros_like(y), np.zeros_like(y), np.zeros_like(y)
    q, p = np.zeros_like(y), np.zeros_like(y)
    r, h = np.zeros_like(x), np.zeros_like(x)
    for t in range(world.steps):
        for i in range(N):
            xi = [world.inner_rows(k, t, "inner", at=(i,), of=(N,)) for k in agents]
            new = np.stack([world.grad_y_g(x[k], y[k], xi[k]) for k in agents])
            p, q = W @ p + new - q, new
            y = W @ y - a.gamma * p
        for i in range(N):
            zeta = [world.outer_rows(k, t, "zeta_i", at=(i,), of=(N,)) for k in agents]
            xi = [world.inner_rows(k, t, "xi_i", at=(i,), of=(N,)) for k in agents]
            new = np.empty_like(s)
            for k in agents:
                at = x[k], y[k]
                new[k] = world.H(*at, xi[k]) @ z[k] - world.grad_y_f(*at, zeta[k])
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
