"""DSBO on hyper-parameter optimisation: d = 14 features, b = 200 terms, batches of one record.

It is compared with the same recursion in NumPy, for all agents at once. q h is computed by
matrix-vector products, as in the library.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import hobnob as hb
from benchmarks.table import Row
from benchmarks.timing import Windows, best_of, pace, paced, ratio_in_turns

D, B, L = 14, 200, 5.0
ALPHA, BETA, GAMMA = 0.01, 0.1, 0.1
RECORDS = 800
DSBO = hb.DSBO(alpha=ALPHA, beta=BETA, gamma=GAMMA, terms=B, smoothness=L, strong_convexity=1.0)


def problem_of(agents: int) -> hb.Problem:
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (RECORDS, D))
    labels = np.sign(features @ np.linspace(-1, 1, D))
    return hb.problems.get("hyperopt")(data=(features, labels), agents=agents, start_weight=0.1)


class Vectorised:
    """DSBO in NumPy, for all agents at once."""

    def __init__(self, agents: int):
        problem, self.rng = problem_of(agents), np.random.default_rng(0)
        self.every, self.diagonal = np.arange(agents), np.arange(D)
        self.outer, self.inner = (
            tuple(source.arrays[key].reshape(agents, -1, *shape) for key, shape in self.SHAPES)
            for source in (problem.loaded().outer_data, problem.loaded().inner_data)
        )
        self.W = hb.ring(agents).matrix
        self.x = np.full((agents, D), np.log(0.1))
        self.y, self.s, self.h = (np.zeros((agents, D)) for _ in range(3))
        self.u, self.v = np.zeros((agents, D, D)), np.tile(np.eye(D), (agents, B, 1, 1))

    SHAPES = (("features", (D,)), ("label", ()))

    def mix(self, w: np.ndarray) -> np.ndarray:
        return np.tensordot(self.W, w, 1)

    def margin_gradient(self, records: tuple[np.ndarray, ...]) -> np.ndarray:
        features, labels = records
        rows = self.rng.integers(features.shape[1], size=len(self.every))
        a, t = features[self.every, rows], labels[self.every, rows]
        return (-t / (1 + np.exp(t * (a * self.y).sum(1))))[:, None] * a

    def hessians(self, weight: np.ndarray) -> np.ndarray:
        features, labels = self.inner
        rows = self.rng.integers(features.shape[1], size=(len(self.every), B))
        a, t = features[self.every[:, None], rows], labels[self.every[:, None], rows]
        p = 1 / (1 + np.exp(-t * np.einsum("kbd,kd->kb", a, self.y)))
        H = (p * (1 - p))[..., None, None] * a[..., :, None] * a[..., None, :]
        H[..., self.diagonal, self.diagonal] += weight[:, None]
        return H

    def step(self) -> None:
        x, y, s, h, u, v = self.x, self.y, self.s, self.h, self.u, self.v
        weight = np.exp(x)
        grad_y_f = self.margin_gradient(self.outer)
        grad_y_g = self.margin_gradient(self.inner) + weight * y
        q = h
        for i in range(B):
            q = h + q - np.einsum("kde,ke->kd", v[:, i], q) / L
        J = np.zeros_like(u)
        J[:, self.diagonal, self.diagonal] = weight * y
        H = self.hessians(weight)
        self.x = self.mix(x) - ALPHA * (s - np.einsum("kde,ke->kd", u, q / L))
        self.y = self.mix(y) - GAMMA * grad_y_g
        self.s = (1 - BETA) * self.mix(s)  # grad_x f is zero here
        self.h = (1 - BETA) * self.mix(h) + BETA * grad_y_f
        self.u = (1 - BETA) * self.mix(u) + BETA * J
        self.v = (1 - BETA) * self.mix(v) + BETA * H


def copy_seconds(megabytes: int = 200) -> float:
    """Seconds per byte that is read or written in a copy of a large array."""
    source = np.ones(megabytes * 10**6 // 8)
    target = np.empty_like(source)
    return paced(lambda: np.copyto(target, source), 1, 5) / (2 * source.nbytes)


def rows(quick: bool) -> Iterator[Row]:
    turns, pairs = (2, 12) if quick else (4, 48)
    for agents, goal in ((5, 7), (20, 11)):
        problem, network, numpy = problem_of(agents), hb.ring(agents), Vectorised(agents)
        solve = partial(pace, problem, network, DSBO, 2500 // agents)
        acts = {"solve": solve, "numpy": lambda n=numpy, k=agents: paced(n.step, 400 // k)}
        best = best_of(turns, acts | ({"byte": copy_seconds} if agents == 20 else {}))
        yield Row(
            f"DSBO, hyper-parameters, K={agents}", "vectorised NumPy",
            best["numpy"] / best["solve"], goal,
            detail=f"{1 / best['solve']:,.0f} and {1 / best['numpy']:,.0f} iterations/s",
        )  # fmt: skip
        if "byte" in best:
            moved = 2 * agents * B * D**2 * 8
            yield Row(
                f"DSBO, K={agents}: bandwidth of v", "copy of a large array",
                moved * best["byte"] / best["solve"], 0.75,
                detail=f"{moved / best['solve'] / 1e9:.1f} and {1e-9 / best['byte']:.1f} GB/s",
            )  # fmt: skip
    for agents in (5, 20) if not quick else (5,):
        run = partial(hb.solve, problem_of(agents), hb.ring(agents), DSBO)
        bare = partial(run, record_every=100, metrics=None)
        ratio = ratio_in_turns(
            pairs, Windows(1000, bare), Windows(100, partial(bare, seed=range(10)))
        )
        yield Row(f"DSBO, K={agents}: ten seeds in one program", "ten times one seed",
                  10 * ratio, 1.0)  # fmt: skip
        ratio = ratio_in_turns(
            2 * pairs,
            Windows(500, partial(run, record_every=500, metrics=None)),
            Windows(500, partial(run, record_every=100, metrics="all")),
        )
        yield Row(f"DSBO, K={agents}: recording everything every 100 steps", "not recording",
                  ratio, 0.95)  # fmt: skip
