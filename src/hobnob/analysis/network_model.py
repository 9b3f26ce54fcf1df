"""A linear model of a whole network: each agent's own directions, and the messages between them.

`linear_model.py` follows the mean of all agents. That is not enough where agents differ and the
network is slow: there, large steps drive agents apart faster than messages bring them together. In
this model every agent k has its own directions,

    G_k = c_k + B_k (x, y, z)_k        at distances from (x0, y*(x0), z*(x0)),

and the agents run SPARKLE's exact diffusion with momentum. It costs K times as much as the mean
does, so a short list of settings is tried.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hobnob.analysis.linear_model import EVERY, LIMIT, LinearModel, Settings


class NetworkModel(NamedTuple):
    """The model of the mean, and each agent's Jacobian [K, d, d] and directions [K, d]."""

    mean: LinearModel
    jacobians: np.ndarray
    directions: np.ndarray

    def race(self, W: np.ndarray, settings: Settings, share: float) -> np.ndarray:
        """The steps until |grad F| at the mean x has fallen to a `share` of its start.

        It is infinite for those that diverge, or that take three times the fastest one's steps.
        """
        mean, K, S = self.mean, len(W), len(settings.alpha)
        M, d_x, d_y = (np.eye(K) + W) / 2, mean.g.size, mean.y_start.size
        cut = d_x, d_x + d_y
        (C_x, C_y, C_z), (P_y, H, _), (P_z, E, H_z) = (
            [np.swapaxes(block, 1, 2) for block in np.split(rows, cut, axis=2)]
            for rows in np.split(self.jacobians, cut, axis=1)
        )
        c_x, c_y, c_z = (part[:, None] for part in np.split(self.directions, cut, axis=1))
        steps, racing, limit, now = np.full(S, np.inf), np.arange(S), float(LIMIT), settings

        def mixed(stack: np.ndarray) -> np.ndarray:
            return (M @ stack.reshape(K, -1)).reshape(stack.shape)

        x = np.zeros((K, S, d_x))
        y, z = (np.tile(start, (K, S, 1)) for start in (mean.y_start, mean.z_start))
        psi_x, psi_y, psi_z = x, y, z
        b_y, b_z = np.zeros_like(y), np.zeros_like(z)
        size = np.linalg.norm(mean.g)
        for step in range(1, LIMIT + 1):
            alpha, gamma, m = (field[:, None] for field in now)
            b_y = m * b_y + c_y + y @ H + x @ P_y
            y, psi_y = mixed(2 * y - gamma * b_y - psi_y), y - gamma * b_y
            b_z = m * b_z + c_z + z @ H_z + y @ E + x @ P_z
            z, psi_z = mixed(2 * z - gamma * b_z - psi_z), z - gamma * b_z
            r = c_x + x @ C_x + y @ C_y + z @ C_z
            x, psi_x = mixed(2 * x - alpha * r - psi_x), x - alpha * r
            if step % EVERY:
                continue
            gradient = mean.slope(x.mean(axis=0), r.mean(axis=0))
            arrived = gradient <= share * size
            steps[racing[arrived]] = step
            if arrived.any() and limit == LIMIT:
                limit = 3 * step
            on = ~arrived & (gradient < 1e6 * size) & (np.abs(y).max(axis=(0, 2)) < 1e100)
            if not on.any() or step >= limit:
                break
            if not on.all():
                racing, now = racing[on], now.rows(on)
                x, y, z, b_y, b_z, psi_x, psi_y, psi_z = (
                    part[:, on] for part in (x, y, z, b_y, b_z, psi_x, psi_y, psi_z)
                )
        return steps
