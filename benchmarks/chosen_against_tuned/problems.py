"""The problems. Those in this file are known: the default's rules were made while looking at them.

A first version was judged on all of them, and its rules for noisy problems and for the unit of x
were changed afterwards. So `fresh.py` has others.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import hobnob as hb
from benchmarks.chosen_against_tuned.case import Case
from benchmarks.chosen_against_tuned.fresh import fresh
from benchmarks.chosen_against_tuned.learning import cleaning, representation, ridge
from hobnob.problems.hyperopt import hyperopt
from hobnob.problems.policy import policy
from hobnob.problems.quadratic import quadratic

REPOSITORY = Path(__file__).parents[2]
AUSTRALIAN = REPOSITORY.parent / "shared" / "data" / "australian.libsvm"


def cases(australian: Path = AUSTRALIAN) -> list[Case]:
    """All of them; those whose file is missing too."""
    known = [
        *_known_quadratics(),
        *_quadratics(),
        *_noisy(),
        *_policies(),
        *_logistic(),
        *_australian(australian),
        *_regression(),
        *_learning(),
        *_rescaled(),
    ]
    return [*(replace(case, known=True) for case in known), *fresh()]


def rescaled(problem: hb.Problem, factor: float) -> hb.Problem:
    """The same problem in other units of x: the new x times `factor` is the old one."""

    def scaled(x: Any) -> Any:
        return jax.tree.map(lambda leaf: factor * leaf, x)

    bounds = problem.x_bounds
    return hb.Problem(
        lambda x, y, batch: problem.outer(scaled(x), y, batch),
        lambda x, y, batch: problem.inner(scaled(x), y, batch),
        jax.tree.map(lambda leaf: leaf / factor, problem.x0),
        problem.y0,
        problem.outer_data,
        problem.inner_data,
        x_bounds=bounds and (bounds[0] / factor, bounds[1] / factor),
        name=f"{problem.name}, x in units of {factor:g}",
    )


def _known_quadratics() -> list[Case]:
    """Those of tests/test_choice.py."""
    networks = (hb.ring(8), hb.path(8), hb.star(8), hb.complete(8))

    def make(number: int) -> hb.Problem:
        rng = np.random.default_rng(number)
        scale = 10 ** (-2 + 0.4 * number)
        condition = min(1e3 ** ((3 * number + 4) % 10 / 9), 1e3 / scale)
        own = rng.uniform(0, 3)
        return quadratic(8, 4, 9, scale=scale, condition=condition, heterogeneity=own, seed=number)

    return [
        Case(
            f"q{number}",
            "convex",
            lambda number=number: make(number),
            networks[number % 4],
            noisy=False,
            quick=number == 3,
        )
        for number in range(10)
    ]


def _quadratics() -> list[Case]:
    def case(name: str, network: hb.Network, quick: bool = False, **options: Any) -> Case:
        def make() -> hb.Problem:
            return quadratic(network.size, **options)

        return Case(name, "convex", make, network, noisy=False, quick=quick)

    return [
        case("quad-ring50", hb.ring(50), dim_x=3, dim_y=5, condition=10, seed=101),
        case("quad-path", hb.path(12), dim_x=6, dim_y=8, scale=0.1, condition=100, seed=102),
        case("quad-star", hb.star(20), True, dim_x=10, dim_y=20, scale=30, condition=30, seed=103),
        case(
            "quad-identical",
            hb.complete(6),
            dim_x=5,
            dim_y=12,
            scale=0.01,
            condition=300,
            heterogeneity=0,
            seed=104,
        ),
        case(
            "quad-exponential",
            hb.exponential(16),
            dim_x=2,
            dim_y=30,
            scale=5,
            condition=1000,
            heterogeneity=0.5,
            seed=105,
        ),
        case(
            "quad-erdos",
            hb.erdos_renyi(24, 0.3, seed=6),
            dim_x=20,
            dim_y=10,
            scale=1e3,
            condition=5,
            heterogeneity=4,
            seed=106,
        ),
        case("quad-single-x", hb.ring(4), dim_x=1, dim_y=40, condition=50, seed=107),
        case("quad-many-x", hb.complete(10), dim_x=40, dim_y=2, scale=0.3, condition=2, seed=108),
    ]


def _noisy() -> list[Case]:
    def case(name: str, network: hb.Network, **options: Any) -> Case:
        def make() -> hb.Problem:
            return quadratic(network.size, **options)

        return Case(name, "noisy", make, network, quick=name == "noisy-complete")

    return [
        case(
            "noisy-known",
            hb.ring(8),
            noise=0.3,
            batch_size=1,
            seed=3,
            condition=20.0,
            heterogeneity=2.0,
        ),
        case(
            "noisy-ring20",
            hb.ring(20),
            dim_x=4,
            dim_y=6,
            noise=1.0,
            batch_size=1,
            condition=8,
            seed=203,
        ),
        case(
            "noisy-complete",
            hb.complete(4),
            dim_x=8,
            dim_y=4,
            noise=0.3,
            batch_size=1,
            scale=20,
            condition=5,
            heterogeneity=0.2,
            seed=204,
        ),
        case(
            "noisy-path",
            hb.path(8),
            dim_x=3,
            dim_y=10,
            noise=0.2,
            batch_size=4,
            scale=0.2,
            condition=100,
            seed=205,
        ),
    ]


def _policies() -> list[Case]:
    def case(name: str, kind: str, network: hb.Network, **rest: Any) -> Case:
        def make() -> hb.Problem:
            return policy(network.size, **rest)

        return Case(name, kind, make, network, noisy=kind == "noisy")

    return [
        case("policy-known", "noisy", hb.ring(5), states=20),
        case("policy-star", "noisy", hb.star(10), states=40, features=6, discount=0.95, seed=5),
        case(
            "policy-exact",
            "convex",
            hb.exponential(8),
            states=30,
            discount=0.8,
            regulariser=0.1,
            noiseless=True,
            seed=7,
        ),
    ]


def _logistic() -> list[Case]:
    def case(name: str, data: str, network: hb.Network, **options: Any) -> Case:
        def make() -> hb.Problem:
            return hyperopt(data, network.size, **options)

        noisy = options["batch_size"] is not None
        return Case(name, "non-convex", make, network, noisy=noisy, quick=name == "iris")

    return [
        case("breast-known", "breast_cancer", hb.ring(8), batch_size=4),
        case("digits-known", "digits", hb.ring(8), batch_size=8, positive="8"),
        case(
            "breast-by-label",
            "breast_cancer",
            hb.star(6),
            batch_size=16,
            deal="by label",
            seed=11,
        ),
        case(
            "digits-3",
            "digits",
            hb.erdos_renyi(10, 0.4, seed=2),
            batch_size=8,
            positive="3",
            seed=5,
        ),
        case("digits-ring50", "digits", hb.ring(50), batch_size=4, positive="1", seed=6),
        case("iris", "iris", hb.complete(5), batch_size=2, positive="versicolor", seed=7),
        case(
            "wine-exact",
            "wine",
            hb.path(6),
            batch_size=None,
            positive="class_1",
            scaling="standard",
            seed=8,
        ),
        case(
            "wine",
            "wine",
            hb.exponential(8),
            batch_size=3,
            positive="class_2",
            deal="by label",
            seed=9,
        ),
    ]


def _australian(file: Path) -> list[Case]:
    def case(name: str, network: hb.Network, **options: Any) -> Case:
        def make() -> hb.Problem:
            return hyperopt(file, network.size, **options)

        return Case(name, "non-convex", make, network, file=file)

    return [
        case("australian-1", hb.ring(5), batch_size=1),
        case("australian-32", hb.ring(5), batch_size=32),
        case("australian-by-label", hb.exponential(12), batch_size=1, deal="by label", seed=10),
    ]


def _regression() -> list[Case]:
    return [
        Case(
            "diabetes",
            "non-convex",
            lambda: ridge("diabetes", agents=10, batch_size=8, seed=12),
            hb.ring(10),
        ),
        Case(
            "linnerud-exact",
            "non-convex",
            lambda: ridge("linnerud", agents=3, batch_size=None, seed=13),
            hb.complete(3),
            noisy=False,
        ),
    ]


def _learning() -> list[Case]:
    return [
        Case(
            "cleaning-known",
            "non-convex",
            lambda: cleaning(agents=8, training=120, validation=50, batch_size=32, seed=0),
            hb.ring(8),
        ),
        Case(
            "cleaning-coarse",
            "non-convex",
            lambda: cleaning(
                agents=6, training=60, validation=40, batch_size=16, coarse=True, seed=5
            ),
            hb.path(6),
        ),
        Case(
            "representation",
            "non-convex",
            lambda: representation(agents=4, examples=40, batch_size=16, seed=6),
            hb.ring(4),
            unit=0.3,
        ),
    ]


def _rescaled() -> list[Case]:
    found = []
    for factor in (1e-3, 1e3):

        def convex(factor: float = factor) -> hb.Problem:
            return rescaled(quadratic(8, 4, 6, condition=20, seed=301), factor)

        def noisy(factor: float = factor) -> hb.Problem:
            options = {"noise": 0.3, "batch_size": 2, "seed": 302}
            return rescaled(quadratic(8, 4, 6, condition=10, **options), factor)

        def other(factor: float = factor) -> hb.Problem:
            options = {"batch_size": 4, "positive": "virginica", "seed": 14}
            return rescaled(hyperopt("iris", 6, **options), factor)

        unit, ring = 1 / factor, hb.ring(8)
        found += [
            Case(f"quad-x{factor:g}", "convex", convex, ring, unit=unit, noisy=False),
            Case(f"noisy-x{factor:g}", "noisy", noisy, ring, unit=unit),
            Case(f"iris-x{factor:g}", "non-convex", other, hb.star(6), unit=unit),
        ]
    return found
