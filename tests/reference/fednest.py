"""FedNest: local steps with corrections, averaged by a server, at both levels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, N, tau, L = world.K, a.inner_rounds, a.local_steps, a.smoothness
    x: Any = world.x0
    y: Any = world.y0
    agents = range(K)
    for t in range(world.steps):
        for n in range(N):
            whole = [world.inner_rows(k, t, "whole", at=(n,), of=(N,)) for k in agents]
            bar = sum(world.grad_y_g(x, y, rows) for rows in whole) / K
            local = []
            for k in agents:
                y_k = y
                for j in range(tau):
                    rows = world.inner_rows(k, t, "local", at=(n, j), of=(N, tau))
                    change = world.grad_y_g(x, y_k, rows) - world.grad_y_g(x, y, rows)
                    y_k = y_k - a.beta * (change + bar)
                local.append(y_k)
            y = sum(local) / K
        zeta = [world.outer_rows(k, t, "zeta") for k in agents]
        xi = [world.inner_rows(k, t, "xi") for k in agents]
        p = sum(world.grad_y_f(x, y, zeta[k]) for k in agents) / K
        total = p
        for m in range(a.terms):
            rows = [world.inner_rows(k, t, "xi_i", at=(m,), of=(a.terms,)) for k in agents]
            p = p - sum(world.H(x, y, rows[k]) @ p for k in agents) / K / L
            total = total + p
        z = total / L
        r = sum(world.grad_x_f(x, y, zeta[k]) - world.J(x, y, xi[k]) @ z for k in agents) / K
        local = []
        for k in agents:
            x_k = x
            for j in range(tau):
                rows = world.outer_rows(k, t, "local", at=(j,), of=(tau,))
                change = world.grad_x_f(x_k, y, rows) - world.grad_x_f(x, y, rows)
                x_k = x_k - a.alpha / tau * (change + r)
            local.append(x_k)
        x = sum(local) / K
    return {"x": np.stack([x] * K), "y": np.stack([y] * K)}
