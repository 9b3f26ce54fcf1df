"""EdgeSPARKLE for the whole network at once: m[k, j] is what flowed from agent k to agent j."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.option import Option
from tests.reference.world import Logistic

OPTIONS = [
    Option("three rounds", {"rounds": "three", "momentum": 0.3}, exact=True),
    Option("local steps", {"local_steps": 3}, exact=True),
]


def run(world: Logistic, a: Any) -> dict[str, np.ndarray]:
    K, W, tau = world.K, world.W, a.local_steps
    u = {"x": np.tile(world.x0, (K, 1)), "y": np.tile(world.y0, (K, 1))}
    u["z"] = np.zeros_like(u["y"])
    m = {level: np.zeros((K, *w.shape)) for level, w in u.items()}
    r = np.zeros_like(u["x"])
    b = {"y": np.zeros_like(u["y"]), "z": np.zeros_like(u["z"])}

    def moved(level: str, e: np.ndarray, speak: bool) -> np.ndarray:
        v = u[level] - e - m[level].sum(axis=1) / 2 / tau
        if not speak:
            return v
        for k in range(K):
            for j in range(K):
                m[level][k, j] += W[k, j] * (v[k] - v[j])
        return (v + W @ v) / 2

    for t in range(world.steps):
        for i in range(tau):
            # Local steps draw in a loop; the last one, after which agents speak, is outside of it.
            speak = i == tau - 1
            where: Any = {} if speak else {"at": (i,), "of": (tau - 1,)}
            zeta = [world.outer_rows(k, t, "zeta", **where) for k in range(K)]
            xi = [world.inner_rows(k, t, "xi", **where) for k in range(K)]
            g_x, g_y, g_z = (np.empty_like(u[level]) for level in "xyz")
            after = dict(u)
            for k in range(K):
                g_y[k] = world.grad_y_g(u["x"][k], u["y"][k], xi[k])
            b["y"] = a.momentum * b["y"] + g_y
            after["y"] = moved("y", a.gamma * b["y"], speak)
            if a.rounds == "three":
                u["y"] = after["y"]
            for k in range(K):
                at = u["x"][k], u["y"][k]
                g_z[k] = world.H(*at, xi[k]) @ u["z"][k] - world.grad_y_f(*at, zeta[k])
            b["z"] = a.momentum * b["z"] + g_z
            after["z"] = moved("z", a.beta * b["z"], speak)
            if a.rounds == "three":
                u["z"] = after["z"]
            for k in range(K):
                at = u["x"][k], u["y"][k]
                g_x[k] = world.grad_x_f(*at, zeta[k]) - world.J(*at, xi[k]) @ u["z"][k]
            r = (1 - a.theta) * r + a.theta * g_x
            after["x"] = moved("x", a.alpha * r, speak)
            u = after
    flows = {f"{level}_flows": by_neighbour(W, m[level]) for level in u}
    return {**u, "r": r, "b_y": b["y"], "b_z": b["z"], **flows}


def by_neighbour(W: np.ndarray, m: np.ndarray) -> np.ndarray:
    """[K, K, d] -> [K, 5, d], 5 being the most neighbours that one of the six agents has."""
    rows = np.zeros((len(W), 5, m.shape[-1]))
    for k in range(len(W)):
        near = [j for j in range(len(W)) if j != k and W[k, j]]
        rows[k, : len(near)] = m[k, near]
    return rows
