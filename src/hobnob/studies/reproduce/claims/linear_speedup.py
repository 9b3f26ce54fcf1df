"""Claim 2: K agents need the same total of samples for any K, so 1/K of the steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hobnob.report.intervals import intervals
from hobnob.report.picture import Picture
from hobnob.studies.cell import Cell, Found
from hobnob.studies.reproduce import figure_3 as policy
from hobnob.studies.reproduce.claims._claim import Claim, Criterion, Finding
from hobnob.studies.reproduce.claims.policy_slope import shared_cells, shared_curves
from hobnob.studies.statistics import Interval, slope_interval
from hobnob.studies.study import Options

CLOSE = 0.25  # how far a slope's interval may reach from the theory's slope


class LinearSpeedup(Claim):
    number = 2
    title = "Linear speed-up"
    says = (
        "K agents reach an error with about the same total number of samples for K = 5, 10, 20, so "
        "the iterations fall like 1/K."
    )

    def setting(self, options: Options) -> str:
        return (
            f"the runs of claim 1. Counted is the first record at which |mean x - x*|^2 is at most "
            f"{_target(options):.0e}; the slopes are those of log count against log K, one for "
            f"each simulation."
        )

    def plan(self, options: Options) -> list[Cell]:
        return shared_cells(options)

    def judge(self, options: Options, found: Mapping[str, Found]) -> Finding:
        curves = shared_curves(options, found)
        target = _target(options)
        total = {run.agents: policy.samples_needed(run, c, target) for run, c in curves.items()}
        agents = np.array(list(total))
        samples = np.stack(list(total.values()), axis=1)
        reached = np.isfinite(samples).all(axis=1)
        if reached.sum() < 2:
            never = Interval(float("nan"), float("-inf"), float("inf"))
            criterion = Criterion(f"an error of {target:.0e} is reached", never, (0.0, 0.0))
            return Finding([criterion], "Too few simulations reached the error to tell.")
        steps = samples[reached] / agents
        of_samples = slope_interval(agents, samples[reached])
        of_steps = slope_interval(agents, steps)
        middle = np.median(samples[reached], axis=0)
        words = ", ".join(f"{n:,.0f} with K = {K}" for K, n in zip(agents, middle, strict=True))
        all_samples, at_end = _errors_at_equal_samples(curves)
        return Finding(
            [
                _criterion("samples of all agents against K", of_samples, 0.0),
                _criterion("samples of one agent, and so iterations, against K", of_steps, -1.0),
            ],
            f"All agents together needed {words} samples (median of the {reached.sum()} of "
            f"{reached.size} simulations that got there with every K). Not judged, the error at "
            f"equal samples: at {all_samples:,.0f} of all agents it goes like K to the power "
            f"{slope_interval(agents, at_end)}.",
            [_picture(agents, samples[reached], target)],
        )


def _errors_at_equal_samples(curves: Mapping[policy.PolicyRun, Found]) -> tuple[float, np.ndarray]:
    """The most samples that every K has drawn, and the mean error over their last fifth."""
    total = {run: c["samples"][0] * run.agents for run, c in curves.items()}
    most = min(samples[-1] for samples in total.values())
    late = {run: (samples > 0.8 * most) & (samples <= most) for run, samples in total.items()}
    errors = [c["squared_error"][:, late[run]].mean(axis=1) for run, c in curves.items()]
    return float(most), np.stack(errors, axis=1)


def _target(options: Options) -> float:
    return 5e-6 if options.quick else policy.TARGETS[0]


def _criterion(what: str, slope: Interval, theory: float) -> Criterion:
    low, high = theory - CLOSE, theory + CLOSE
    says = f"{what}: the slope's interval lies in [{low:g}, {high:g}]"
    return Criterion(says, slope, (low, high))


def _picture(agents: np.ndarray, samples: np.ndarray, target: float) -> Picture:
    by_agents = {int(K): n for K, n in zip(agents, samples.T, strict=True)}
    return intervals(
        {
            "all agents": {K: policy.middle_region(n) for K, n in by_agents.items()},
            "each agent": {K: policy.middle_region(n / K) for K, n in by_agents.items()},
        },
        "agents K",
        "samples",
        log_x=True,
        log_y=True,
        name="02-samples-to-an-error",
        title=f"Samples until the error is {target:.0e}",
        caption="Median of the simulations and the middle 75 %.",
    )
