"""SPARKLE for the whole network at once: the primal-dual form, with A, B and C as matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from hobnob.core.schedules import value_at
from tests.reference.world import Logistic


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, identity = world.K, np.eye(world.K)

    def matrices(level: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        M = (identity + world.network.at_level(level).matrix) / 2
        once, twice = identity - M, (identity - M) @ (identity - M)
        return {
            "ed": (M, once, identity),
            "extra": (identity, once, M),
            "gt": (identity, twice, M @ M),
            "semi-atc-gt": (M, twice, M),
            "atc-gt": (M @ M, twice, identity),
        }[getattr(a, level)]

    members = {level: matrices(level) for level in "xyz"}
    w = {"x": np.tile(world.x0, (K, 1)), "y": np.tile(world.y0, (K, 1))}
    w["z"] = np.zeros_like(w["y"])
    D = {level: np.zeros_like(value) for level, value in w.items()}
    psi = {}
    r = np.zeros_like(w["x"])
    b = {"y": np.zeros_like(w["y"]), "z": np.zeros_like(w["z"])}

    def move(level: str, e: np.ndarray) -> None:
        A, B, C = members[level]
        psi[level] = w[level] - e
        w[level] = A @ (C @ w[level] - e) - D[level]
        D[level] = D[level] + B @ w[level]

    for t in range(world.steps):
        alpha, beta, gamma = (value_at(rate, t) for rate in (a.alpha, a.beta, a.gamma))
        g_x, g_y, g_z = np.empty_like(w["x"]), np.empty_like(w["y"]), np.empty_like(w["z"])
        zeta = [world.outer_rows(k, t, "zeta") for k in range(K)]
        xi = [world.inner_rows(k, t, "xi") for k in range(K)]
        for k in range(K):
            g_y[k] = world.grad_y_g(w["x"][k], w["y"][k], xi[k])
        b["y"] = value_at(a.momentum, t) * b["y"] + g_y
        move("y", gamma * b["y"])
        for k in range(K):
            at = w["x"][k], w["y"][k]
            g_z[k] = world.H(*at, xi[k]) @ w["z"][k] - world.grad_y_f(*at, zeta[k])
        b["z"] = value_at(a.momentum, t) * b["z"] + g_z
        move("z", beta * b["z"])
        for k in range(K):
            at = w["x"][k], w["y"][k]
            g_x[k] = world.grad_x_f(*at, zeta[k]) - world.J(*at, xi[k]) @ w["z"][k]
        r = (1 - a.theta) * r + a.theta * g_x
        move("x", alpha * r)
    # The memory of exact diffusion; other members store other quantities.
    memories = {f"{level}_memory": psi[level][:, None] for level in w if getattr(a, level) == "ed"}
    if a.momentum:
        for level in (level for level in b if f"{level}_memory" in memories):
            memory = memories[f"{level}_memory"]
            memories[f"{level}_memory"] = np.concatenate([memory, b[level][:, None]], axis=1)
    return {**w, "r": r, **memories}
