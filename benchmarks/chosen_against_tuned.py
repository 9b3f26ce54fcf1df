"""How far the step sizes that `solve` chooses are from the best ones, in steps to a target.

On the ten random problems of tests/test_choice.py: the steps until |grad F| is a ten-thousandth of
what it was, with the chosen step sizes and with the best of a grid around them, which only somebody
with time to search would have.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import hobnob as hb
from hobnob.algorithms.sparkle import SPARKLE

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.test_choice import NETWORKS, random_problem  # noqa: E402

INNER, OUTER = (0.5, 1, 2), (0.5, 1, 2, 4, 8, 16)  # factors on gamma and beta, and on alpha


def main() -> None:
    runtime = hb.Simulate(retunable=True)  # all of a problem's runs share one compilation
    ratios = []
    for number in range(10):
        problem, network = random_problem(number), NETWORKS[number % len(NETWORKS)]
        choice = hb.choose(problem, network)
        chosen = choice.algorithm
        assert isinstance(chosen, SPARKLE)

        def needed(inner: float, outer: float) -> float:
            step_sizes = {
                "gamma": inner * chosen.gamma,  # noqa: B023
                "beta": inner * chosen.beta,  # noqa: B023
                "alpha": outer * chosen.alpha,  # noqa: B023
            }
            try:
                result = hb.solve(
                    problem,  # noqa: B023
                    network,  # noqa: B023
                    replace(chosen, **step_sizes),  # noqa: B023
                    steps=2 * choice.steps,  # noqa: B023
                    tolerance=choice.tolerance,  # noqa: B023
                    record_every=max(1, choice.steps // 200),  # noqa: B023
                    metrics=["gradient_norm"],
                    runtime=runtime,
                    progress=False,
                )
            except hb.DivergenceError:
                return np.inf
            return result.steps if result.status == "converged" else np.inf

        found = {(i, o): needed(i, o) for i in INNER for o in OUTER}
        best = min(found, key=found.__getitem__)
        ratios.append(found[1, 1] / found[best])
        print(
            f"problem {number}: chosen {found[1, 1]:,.0f} steps, best {found[best]:,.0f} with gamma "
            f"x {best[0]:g} and alpha x {best[1]:g}: {ratios[-1]:.1f} times as many",
            flush=True,
        )
    print(f"median {np.median(ratios):.1f}, most {max(ratios):.1f}")


if __name__ == "__main__":
    main()
