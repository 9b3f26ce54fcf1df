"""Fresh problems: drawn by chance, after the default's rules were made, and run once.

Sizes, scales, conditions, noise, data and networks come from one generator with a fixed seed, so
that nobody picked them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import hobnob as hb
from benchmarks.chosen_against_tuned.case import Case

quadratic, hyperopt = hb.problems.get("quadratic"), hb.problems.get("hyperopt")
CLASSES = {
    "breast_cancer": ("malignant", "benign"),
    "digits": tuple(map(str, range(10))),
    "iris": ("setosa", "versicolor", "virginica"),
    "wine": ("class_0", "class_1", "class_2"),
}


def fresh() -> list[Case]:
    rng = np.random.default_rng(20261118)
    return [
        *(_quadratic(rng, number, noisy=False) for number in range(8)),
        *(_quadratic(rng, number, noisy=True) for number in range(6)),
        *(_logistic(rng, number) for number in range(6)),
    ]


def _network(rng: np.random.Generator) -> hb.Network:
    agents = int(rng.integers(3, 25))
    kinds = (hb.ring, hb.path, hb.star, hb.complete, hb.exponential)
    return kinds[rng.integers(len(kinds))](agents)


def _quadratic(rng: np.random.Generator, number: int, noisy: bool) -> Case:
    network = _network(rng)
    options: dict[str, Any] = {
        "dim_x": int(rng.integers(1, 13)),
        "dim_y": int(rng.integers(2, 25)),
        "scale": float(10 ** rng.uniform(-2, 2)),
        "condition": float(10 ** rng.uniform(0.3, 2.3)),
        "heterogeneity": float(rng.uniform(0, 3)),
        "seed": int(rng.integers(10_000)),
    }
    if noisy:
        options |= {"noise": float(rng.uniform(0.1, 0.8)), "batch_size": int(rng.integers(1, 9))}

    def make() -> hb.Problem:
        return quadratic(network.size, **options)

    kind = "noisy" if noisy else "convex"
    return Case(f"fresh-{kind}-{number}", kind, make, network, noisy=noisy)


def _logistic(rng: np.random.Generator, number: int) -> Case:
    network, data = _network(rng), list(CLASSES)[rng.integers(len(CLASSES))]
    options: dict[str, Any] = {
        "positive": CLASSES[data][rng.integers(len(CLASSES[data]))],
        "batch_size": int(rng.integers(1, 17)),
        "deal": ("even", "by label")[rng.integers(2)],
        "seed": int(rng.integers(10_000)),
    }

    def make() -> hb.Problem:
        return hyperopt(data, network.size, **options)

    return Case(f"fresh-{data}-{number}", "non-convex", make, network)
