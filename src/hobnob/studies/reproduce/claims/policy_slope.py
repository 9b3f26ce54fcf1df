"""Claim 1: in policy evaluation the error falls like 1/t."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hobnob.studies.cell import Cell, Found
from hobnob.studies.reproduce import figure_3 as policy
from hobnob.studies.reproduce.claims._claim import Claim, Criterion, Finding
from hobnob.studies.study import Options

CLOSE = (-1.2, -0.8)
SIMS = 30  # with ten, the interval of the slope is too wide to decide
PREFIX = "01-02-"  # claim 2 uses the same runs


class PolicySlope(Claim):
    number = 1
    title = "The slope in policy evaluation"
    says = "the slopes of log |mean x - x*|^2 against log t are close to -1 for K = 5, 10, 20."

    def setting(self, options: Options) -> str:
        (run, *_), sims = policy.dsbo_runs(options), policy.simulations(options, SIMS)
        return (
            f"as in hobnob reproduce policy: ring with weights 1/3, |S| = {policy.STATES}, "
            f"T = {run.steps:,}, the paper's step sizes, {sims} simulations with an environment "
            f"each. The slope is that of a least-squares line through the mean errors in twenty "
            f"windows, even in log t, over the last decade of t; one for each simulation."
        )

    def plan(self, options: Options) -> list[Cell]:
        return shared_cells(options)

    def judge(self, options: Options, found: Mapping[str, Found]) -> Finding:
        curves = shared_curves(options, found)
        slopes = {
            run.agents: policy.late_slope(c["step"][0], c["squared_error"])
            for run, c in curves.items()
        }
        criteria = [
            Criterion(
                f"K = {K}: the slope's interval lies in {list(CLOSE)}",
                slope,
                CLOSE,
            )
            for K, slope in slopes.items()
        ]
        words = ", ".join(f"{slope.value:.2f} with K = {K}" for K, slope in slopes.items())
        return Finding(criteria, f"The mean slopes are {words}.", [policy.against_steps(curves)])


def shared_cells(options: Options) -> list[Cell]:
    """The cells that this claim and claim 2 share."""
    sims = policy.simulations(options, SIMS)
    return policy.cells(policy.dsbo_runs(options), sims, options.data, PREFIX)


def shared_curves(
    options: Options, found: Mapping[str, Found]
) -> dict[policy.PolicyRun, dict[str, np.ndarray]]:
    sims = policy.simulations(options, SIMS)
    return policy.gather(policy.dsbo_runs(options), sims, found, PREFIX)
