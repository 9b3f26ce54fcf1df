"""The first-order penalty method for the whole network at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.option import Option
from tests.reference.world import Logistic

OPTIONS = [Option("central", {"difference": "central"}, exact=False)]


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    return central(world, a) if a.difference == "central" else one_sided(world, a)


def one_sided(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, W, p = world.K, world.W, a.penalty
    x, y = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    z = y
    m = [np.zeros_like(part) for part in (x, y, z)]
    u = m
    for t in range(world.steps):
        m_x, m_y, m_z = np.empty_like(x), np.empty_like(y), np.empty_like(z)
        for k in range(K):
            zeta, xi = world.outer_rows(k, t, "zeta"), world.inner_rows(k, t, "xi")
            at_y, at_z = (x[k], y[k]), (x[k], z[k])
            pull = world.grad_x_g(*at_y, xi) - world.grad_x_g(*at_z, xi)
            m_x[k] = world.grad_x_f(*at_y, zeta) + pull / p
            m_y[k] = world.grad_y_f(*at_y, zeta) + world.grad_y_g(*at_y, xi) / p
            m_z[k] = world.grad_y_g(*at_z, xi) / p
        u = [W @ u[i] + new - m[i] for i, new in enumerate((m_x, m_y, m_z))]
        m = [m_x, m_y, m_z]
        x, y, z = W @ x - a.alpha * u[0], W @ y - a.gamma * u[1], W @ z - a.gamma * u[2]
    joined = {"m": np.concatenate(m, axis=1), "u": np.concatenate(u, axis=1)}
    return {"x": x, "y": y, "z": z, **joined}


def central(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    """With y+ and y- themselves, each tracked; the library holds their mean and half-difference."""
    K, W, p = world.K, world.W, a.penalty
    x, plus = np.tile(world.x0, (K, 1)), np.tile(world.y0, (K, 1))
    minus = plus
    m = [np.zeros_like(part) for part in (x, plus, minus)]
    u = m
    for t in range(world.steps):
        m_x, m_plus, m_minus = np.empty_like(x), np.empty_like(plus), np.empty_like(minus)
        for k in range(K):
            zeta, xi = world.outer_rows(k, t, "zeta"), world.inner_rows(k, t, "xi")
            above, below = (x[k], plus[k]), (x[k], minus[k])
            outer = world.grad_x_f(*above, zeta) + world.grad_x_f(*below, zeta)
            inner = world.grad_x_g(*above, xi) - world.grad_x_g(*below, xi)
            m_x[k] = outer / 2 + inner / (2 * p)
            m_plus[k] = world.grad_y_g(*above, xi) / p + world.grad_y_f(*above, zeta)
            m_minus[k] = world.grad_y_g(*below, xi) / p - world.grad_y_f(*below, zeta)
        u = [W @ u[i] + new - m[i] for i, new in enumerate((m_x, m_plus, m_minus))]
        m = [m_x, m_plus, m_minus]
        x, plus, minus = (
            W @ x - a.alpha * u[0],
            W @ plus - a.gamma * u[1],
            W @ minus - a.gamma * u[2],
        )

    def joined(x: np.ndarray, plus: np.ndarray, minus: np.ndarray) -> np.ndarray:
        return np.concatenate([x, (plus + minus) / 2, (plus - minus) / 2], axis=1)

    held = {"x": x, "y": (plus + minus) / 2, "z": (plus - minus) / 2}
    return {**held, "m": joined(*m), "u": joined(*u)}
