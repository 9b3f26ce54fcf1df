"""MA-DSBO for the whole network at once: gossip on y, tracking on z."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, W, N = world.K, world.W, a.inner_steps
    agents = range(K)
    x, y = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    z, s, d = np.zeros_like(y), np.zeros_like(y), np.zeros_like(y)
    r = np.zeros_like(x)
    for t in range(world.steps):
        for i in range(N):
            xi = [world.inner_rows(k, t, "inner", at=(i,), of=(N,)) for k in agents]
            y = W @ y - a.gamma * np.stack([world.grad_y_g(x[k], y[k], xi[k]) for k in agents])
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
        x = W @ x - a.alpha * r
        r = (1 - a.theta) * r + a.theta * u
    return {"x": x, "y": y, "z": z, "s": s, "d": d, "r": r}
