"""DSBO on policy evaluation, K = 20 agents, 100 states, against NumPy for all agents at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import hobnob as hb
from benchmarks.table import Row
from benchmarks.timing import best_of, pace, paced
from hobnob.problems._alias import Boxes

AGENTS, STATES, FEATURES, DISCOUNT, REGULARISER = 20, 100, 10, 0.9, 1.0
ALPHA, BETA, GAMMA = 0.01, 0.1, 0.1
DSBO = hb.DSBO(alpha=ALPHA, beta=BETA, gamma=GAMMA, terms=1, smoothness=1.0, strong_convexity=1.0)


class Vectorised:
    """DSBO in NumPy, for all agents at once. It uses that the inner Hessian is the identity."""

    def __init__(self, problem: hb.Problem):
        self.rng, self.every, self.states = (
            np.random.default_rng(0), np.arange(AGENTS)[:, None], np.arange(STATES),
        )  # fmt: skip
        self.features, self.rewards = problem.features, problem.rewards  # type: ignore[attr-defined]
        self.cumulative = np.cumsum(problem.transitions, axis=1)  # type: ignore[attr-defined]
        self.W, self.identity = hb.ring(AGENTS).matrix, np.eye(STATES)
        self.x, self.s = np.zeros((AGENTS, FEATURES)), np.zeros((AGENTS, FEATURES))
        self.y, self.h = np.zeros((AGENTS, STATES)), np.zeros((AGENTS, STATES))
        self.u = np.zeros((AGENTS, FEATURES, STATES))
        self.v = np.tile(self.identity, (AGENTS, 1, 1, 1))

    def mix(self, w: np.ndarray) -> np.ndarray:
        return np.tensordot(self.W, w, 1)

    def following(self, uniform: np.ndarray) -> np.ndarray:
        return (self.cumulative <= uniform[:, :, None]).sum(axis=2)

    def transitions(self) -> tuple[np.ndarray, np.ndarray]:
        """For every agent and state, the next state and its reward."""
        following = self.following(self.rng.random((AGENTS, STATES)))
        noise = self.rng.normal(size=(AGENTS, STATES))
        return following, self.rewards[self.every, self.states, following] + noise

    def step(self) -> None:
        x, y, s, h, u, v = self.x, self.y, self.s, self.h, self.u, self.v
        residual = x @ self.features.T - y
        grad_x_f = residual @ self.features / STATES + REGULARISER * x
        following, reward = self.transitions()
        self.transitions()  # the Hessian's batch
        moved = self.features[following]
        grad_y_g = y - reward - DISCOUNT * np.einsum("ksm,km->ks", moved, x)
        qh = h + h - np.einsum("kst,kt->ks", v[:, 0], h)
        self.x = self.mix(x) - ALPHA * (s - np.einsum("kms,ks->km", u, qh))
        self.y = self.mix(y) - GAMMA * grad_y_g
        self.s = (1 - BETA) * self.mix(s) + BETA * grad_x_f
        self.h = (1 - BETA) * self.mix(h) - BETA * residual / STATES
        self.u = (1 - BETA) * self.mix(u) - BETA * DISCOUNT * np.moveaxis(moved, 1, 2)
        self.v = (1 - BETA) * self.mix(v) + BETA * self.identity


class WithAliases(Vectorised):
    """Draws by the library's method."""

    def __init__(self, problem: hb.Problem):
        super().__init__(problem)
        self.boxes = Boxes(problem.transitions)  # type: ignore[attr-defined]

    def following(self, uniform: np.ndarray) -> np.ndarray:
        scaled = uniform * STATES
        box = scaled.astype(np.int64)
        at = self.states * STATES + box
        return np.where(scaled - box < self.boxes.share[at], box, self.boxes.other[at])


def rows(quick: bool) -> Iterator[Row]:
    problem = hb.problems.get("policy")(agents=AGENTS, states=STATES, features=FEATURES)
    numpy, aliases = Vectorised(problem), WithAliases(problem)
    best = best_of(
        2 if quick else 5,
        {
            "solve": partial(pace, problem, hb.ring(AGENTS), DSBO, 400),
            "numpy": lambda: paced(numpy.step, 50),
            "aliases": lambda: paced(aliases.step, 50),
        },
    )
    rate = {who: f"{1 / seconds:,.0f}" for who, seconds in best.items()}
    what = f"DSBO, policy evaluation, K={AGENTS}, |S|={STATES}"
    for who, against, goal in (
        ("numpy", "vectorised NumPy", 10),
        ("aliases", "the same, drawing by aliases", None),
    ):
        yield Row(what, against, best[who] / best["solve"], goal,
                  detail=f"{rate['solve']} and {rate[who]} iterations/s")  # fmt: skip
