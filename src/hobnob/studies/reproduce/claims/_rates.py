"""Shared by claims about rates and networks: sizes, a heterogeneous problem, windows."""

from __future__ import annotations

import numpy as np

from hobnob.problems.quadratic import Quadratic, quadratic
from hobnob.studies.study import Options


def seeds(options: Options, full: int = 10) -> list[int]:
    return list(range(options.sims or (4 if options.quick else full)))


def longest(options: Options, full: int, quick: int) -> int:
    """The number of steps of the longest run. The others are fractions of it."""
    if options.steps:
        # The shortest run has a sixteenth, in which beta = sqrt(K/T) must be at most 1.
        return max(512, options.steps)
    return quick if options.quick else full


DIFFERING = (
    "heterogeneous quadratics (hobnob.problems.quadratic: d_x = d_y = 3, heterogeneity = 1, so "
    "that Hessians, Jacobians and gradients all differ between agents; condition = 1, scale = 0.5, "
    "noise = 0.2, 32 records an agent, one a draw)"
)


def differing(agents: int) -> Quadratic:
    """Agents whose Hessians lie between 0.25 and 0.75, before noise, around a mean of 0.5."""
    return quadratic(
        agents,
        dim_x=3,
        dim_y=3,
        heterogeneity=1.0,
        condition=1.0,
        scale=0.5,
        noise=0.2,
        records=32,
        batch_size=1,
    )


def least_curvature(problem: Quadratic) -> float:
    """The paper's mu: the smallest curvature of F, whose gradient is affine."""
    at_zero = problem.closed_form(np.zeros(problem.dim_x)).gradient
    hessian = [problem.closed_form(e).gradient - at_zero for e in np.eye(problem.dim_x)]
    return float(np.linalg.eigvalsh(np.array(hessian))[0])


def ladder(steps: int) -> list[int]:
    """Five lengths, each twice the one before, up to `steps`."""
    return [steps // 2**i for i in (4, 3, 2, 1, 0)]


def windowed(step: np.ndarray, error: np.ndarray, ends: list[int]) -> np.ndarray:
    """The mean of error [S, R] over the second half of the first t steps, for every t of `ends`.

    One squared error varies by more than its mean, so a window averages many.
    """
    return np.stack([error[:, (step > t / 2) & (step <= t)].mean(1) for t in ends], axis=1)
