"""SimFBO: local steps on all three unknowns, whose weighted directions a server averages."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, tau = world.K, a.local_steps
    x: Any = world.x0
    y: Any = world.y0
    z = np.zeros_like(y)
    for t in range(world.steps):
        h_x, h_y, h_z = np.zeros((K, x.size)), np.zeros((K, y.size)), np.zeros((K, y.size))
        for k in range(K):
            x_k, y_k, z_k = x, y, z
            for j in range(tau):
                zeta = world.outer_rows(k, t, "zeta", at=(j,), of=(tau,))
                xi = world.inner_rows(k, t, "xi", at=(j,), of=(tau,))
                weight = a.decay**j
                u_x = world.grad_x_f(x_k, y_k, zeta) - world.J(x_k, y_k, xi) @ z_k
                u_y = world.grad_y_g(x_k, y_k, xi)
                u_z = world.H(x_k, y_k, xi) @ z_k - world.grad_y_f(x_k, y_k, zeta)
                x_k = x_k - a.local_alpha * weight * u_x
                y_k = y_k - a.local_gamma * weight * u_y
                z_k = z_k - a.local_beta * weight * u_z
                h_x[k] += weight * u_x
                h_y[k] += weight * u_y
                h_z[k] += weight * u_z
        x = x - a.alpha * h_x.mean(axis=0)
        y = y - a.gamma * h_y.mean(axis=0)
        z = z - a.beta * h_z.mean(axis=0)
    return {name: np.stack([value] * K) for name, value in (("x", x), ("y", y), ("z", z))}
