"""How far the step sizes that `solve` chooses are from the best ones, in steps to a target.

On the ten random problems of tests/test_choice.py: the steps until |grad F| has fallen to a
ten-thousandth, with the chosen step sizes and with the best of a grid around them.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import hobnob as hb

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.test_choice import NETWORKS, random_problem

INNER, OUTER = (0.5, 1, 2), (0.5, 1, 2, 4, 8, 16)  # factors on gamma and beta, and on alpha
RUNTIME = hb.Simulate(retunable=True)  # all runs of one problem share one compilation


def steps_needed(
    problem: hb.Problem, network: hb.Network, choice: hb.Choice, inner: float, outer: float
) -> float:
    """Infinity if the run diverges, or needs more than twice the chosen steps."""
    step_sizes = {
        name: value * (outer if name == "alpha" else inner)
        for name, value in choice.algorithm.step_sizes().items()
        if name != "theta"
    }
    try:
        result = hb.solve(
            problem,
            network,
            replace(choice.algorithm, **step_sizes),
            steps=2 * choice.steps,
            tolerance=choice.tolerance,
            record_every=max(1, choice.steps // 200),
            metrics=["gradient_norm"],
            runtime=RUNTIME,
            progress=False,
        )
    except hb.DivergenceError:
        return np.inf
    return result.steps if result.status == "converged" else np.inf


def main() -> None:
    ratios = []
    for number in range(10):
        problem, network = random_problem(number), NETWORKS[number % len(NETWORKS)]
        choice = hb.choose(problem, network)
        found = {
            (inner, outer): steps_needed(problem, network, choice, inner, outer)
            for inner in INNER
            for outer in OUTER
        }
        (inner, outer), best = min(found.items(), key=lambda item: item[1])
        ratios.append(found[1, 1] / best)
        print(
            f"problem {number}: chosen {found[1, 1]:,.0f} steps, best {best:,.0f} with gamma x "
            f"{inner:g} and alpha x {outer:g}: {ratios[-1]:.1f} times as many",
            flush=True,
        )
    print(f"median {np.median(ratios):.1f}, most {max(ratios):.1f}")


if __name__ == "__main__":
    main()
