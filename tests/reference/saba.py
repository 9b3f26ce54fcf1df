"""SABA: SOBA with a table of every record's last values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    x: Any = world.x0
    y: Any = world.y0
    z = np.zeros_like(y)
    d_x, d_y = x.size, y.size
    n_outer, n_inner = world.problem.outer_data.records, world.problem.inner_data.records
    outer, inner = np.zeros((n_outer, d_x + d_y)), np.zeros((n_inner, d_x + 2 * d_y))
    for t in range(world.steps):
        v = np.zeros(d_x + d_y)
        means, seen = (outer.mean(axis=0), inner.mean(axis=0)), (outer.copy(), inner.copy())
        zeta, xi = world.outer_rows(0, t, "zeta"), world.inner_rows(0, t, "xi")
        for i in zeta:
            one = np.array([i])
            now = np.concatenate([world.grad_x_f(x, y, one), world.grad_y_f(x, y, one)])
            v += (now - outer[i]) / len(zeta)
            seen[0][i] = now
        w = np.zeros(d_x + 2 * d_y)
        for i in xi:
            one = np.array([i])
            Jz, Hz = world.J(x, y, one) @ z, world.H(x, y, one) @ z
            now = np.concatenate([Jz, world.grad_y_g(x, y, one), Hz])
            w += (now - inner[i]) / len(xi)
            seen[1][i] = now
        v, w = v + means[0], w + means[1]
        outer, inner = seen
        grad_x_f, grad_y_f = v[:d_x], v[d_x:]
        Jz, grad_y_g, Hz = w[:d_x], w[d_x : d_x + d_y], w[d_x + d_y :]
        x = x - a.alpha * (grad_x_f - Jz)
        y = y - a.gamma * grad_y_g
        z = z - a.beta * (Hz - grad_y_f)
    state = {"x": x, "y": y, "z": z, "outer": outer, "inner": inner}
    state |= {"outer_mean": outer.mean(axis=0), "inner_mean": inner.mean(axis=0)}
    return {name: value[None] for name, value in state.items()}
