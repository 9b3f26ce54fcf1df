"""The paper's second experiment: policy evaluation by agents with rewards of their own.

Figure 3 of the paper: (a) |mean x - x*|^2 against total samples, DSBO with K = 5, 10, 20 agents and
DSGD with K = 5; (b) its logarithm against log iteration, beside slope -1; (c) the 75 % region of
the logarithm of the total samples needed for 1e-6, and in the appendix for 0.8e-6, 1.5e-6, 2e-6.
Ring with weights 1/3, |S| = 100, lambda = 1, T = 10,000, alpha = min(0.01, 2/(lambda t)),
beta = gamma = min(0.5, 50/t). Every simulation has an environment of its own.

The inner Hessian is the identity, so one term of the series is exact. DSGD's step sizes are not in
the paper: alpha as DSBO's, and 1/i inside, which makes y the plain mean of its t samples. It runs
for as many samples as DSBO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isqrt
from typing import NamedTuple

import numpy as np

from hobnob.algorithms.dsbo import DSBO
from hobnob.algorithms.dsgd import DSGD
from hobnob.core.algorithm import Algorithm
from hobnob.core.schedules import capped
from hobnob.networks.lines import ring
from hobnob.problems.policy import Policy, policy
from hobnob.report.curves import convergence
from hobnob.report.intervals import intervals
from hobnob.report.page import Section
from hobnob.report.picture import Picture
from hobnob.studies.cell import Bench, Cell, Found, stacked
from hobnob.studies.statistics import Interval, slope_interval
from hobnob.studies.study import Options, Report

AGENTS = (5, 10, 20)
STATES = 100
TARGETS = (1e-6, 0.8e-6, 1.5e-6, 2e-6)
REGION = 0.75


class PolicyRun(NamedTuple):
    """One curve of the figure."""

    method: str
    agents: int
    steps: int

    @property
    def label(self) -> str:
        return f"{self.method}, K = {self.agents}"

    def cell_name(self, sim: int) -> str:
        return f"{self.method.lower()}-K{self.agents}-T{self.steps}-{sim}"


def plan(options: Options) -> list[Cell]:
    return cells(_runs(options), simulations(options), options.data)


def cells(runs: Sequence[PolicyRun], sims: int, data: str | None, prefix: str = "") -> list[Cell]:
    return [
        Cell(
            prefix + run.cell_name(sim),
            measure,
            {**run._asdict(), "sim": sim, "data": data},
            work=run.agents * (run.steps if run.method == "DSBO" else run.steps**2 / 4),
        )
        for run in runs
        for sim in range(sims)
    ]


def measure(
    bench: Bench, method: str, agents: int, steps: int, sim: int, data: str | None = None
) -> Found:
    problem = policy(agents, STATES, seed=sim) if data is None else _on_features(data, agents, sim)
    result = bench.solve(
        problem,
        ring(agents),
        algorithm(method),
        steps=steps,
        seed=sim,
        record_every=max(1, steps // 500),
        metrics=["squared_error"],
    )
    return {name: result.history[name] for name in ("step", "samples", "squared_error")}


def algorithm(method: str) -> Algorithm:
    alpha = capped(0.01, 2.0)
    if method == "DSGD":
        return DSGD(alpha=alpha, eta=capped(1.0, 1.0))
    average = capped(0.5, 50.0)
    return DSBO(
        alpha=alpha, beta=average, gamma=average, terms=1, smoothness=1.0, strong_convexity=1.0
    )


def report(options: Options, found: Mapping[str, Found]) -> Report:
    sims, runs = simulations(options), _runs(options)
    together = gather(runs, sims, found)
    dsbo = {run: curves for run, curves in together.items() if run.method == "DSBO"}
    needed = {
        target: {run.agents: samples_needed(run, curves, target) for run, curves in dsbo.items()}
        for target in TARGETS
    }
    late = {run.agents: late_slope(c["step"][0], c["squared_error"]) for run, c in dsbo.items()}
    words = ", ".join(f"{slope} with K = {K}" for K, slope in late.items())
    reached = needed[TARGETS[0]]
    middle = ", ".join(f"{_middle(n)} (K = {K})" for K, n in reached.items())
    features = f"those of {options.data}" if options.data else "10, drawn at random"
    return Report(
        title="Policy evaluation over a ring",
        lead="The paper's Figure 3. Agents on a ring evaluate a policy from rewards of their own: "
        f"|S| = {STATES} states, discount 0.9, features: {features}. {sims} simulations, each with "
        "an environment of its own.",
        verdict="The slope of log error against log iteration over the last decade is "
        f"{words} (mean and 95 % interval over the simulations). Samples of all agents for "
        f"an error of 1e-6, median: {middle}.",
        table=[_row(run, curves) for run, curves in together.items()],
        sections=[
            Section(
                "Error against samples",
                "|mean x - x*|^2 against the samples of all agents together: (a).",
                [_against_samples(together)],
            ),
            Section(
                "Error against iterations",
                "Both axes logarithmic, beside the slope of -1 that the theory gives: (b).",
                [against_steps(dsbo)],
            ),
            Section(
                "Samples to a given error",
                f"The middle {REGION:.0%} of the simulations: the total samples at the first "
                "record where the error was at most the target, (c) and the appendix.",
                [_region(target, values) for target, values in needed.items()],
                [
                    {"error": target, **{f"K = {K}": _middle(n) for K, n in values.items()}}
                    for target, values in needed.items()
                ],
            ),
        ],
        rows=_rows(together),
        settings={
            "environment": options.data or "uniform features, transitions and mean rewards",
            "network": "ring, weights 1/3",
            "DSBO": "alpha = min(0.01, 2/t), beta = gamma = min(0.5, 50/t), b = 1",
            "DSGD": "alpha = min(0.01, 2/t), eta = 1/i, until DSBO's samples are spent",
            "simulations": sims,
            "T": f"{runs[0].steps:,}",
        },
    )


def samples_needed(run: PolicyRun, curves: Mapping[str, np.ndarray], target: float) -> np.ndarray:
    """Samples of all agents until the error is at most the target; infinite if it never is."""
    errors, samples = curves["squared_error"], curves["samples"][0] * run.agents
    first = np.argmax(errors <= target, axis=1)
    return np.where((errors <= target).any(axis=1), samples[first], np.inf)


def late_slope(steps: np.ndarray, errors: np.ndarray) -> Interval:
    """The slope of log error against log t over the last decade of t, one a simulation.

    The error is averaged in twenty windows of equal length in log t, to reduce its noise.
    """
    edges = np.geomspace(steps[-1] / 10, steps[-1], 21)
    windows = [(steps > low) & (steps <= high) for low, high in pairwise(edges)]
    windows = [inside for inside in windows if inside.any()]
    centres = [float(np.exp(np.log(steps[inside]).mean())) for inside in windows]
    means = np.stack([errors[:, inside].mean(axis=1) for inside in windows], axis=1)
    return slope_interval(centres, means)


def simulations(options: Options, full: int = 10) -> int:
    return options.sims or (3 if options.quick else full)


def dsbo_runs(options: Options) -> list[PolicyRun]:
    steps = options.steps or (2_000 if options.quick else 10_000)
    return [PolicyRun("DSBO", K, steps) for K in AGENTS]


def _runs(options: Options) -> list[PolicyRun]:
    runs = dsbo_runs(options)
    # DSBO draws two batches of transitions a step; T steps of DSGD draw T (T + 1) / 2 + T.
    return [*runs, PolicyRun("DSGD", 5, max(1, isqrt(4 * runs[0].steps)))]


def _on_features(data: str, agents: int, sim: int) -> Policy:
    """The random environment, with records of a file, scaled to [0, 1], as features of states."""
    from hobnob.problems import _tables

    rng = np.random.default_rng(sim)
    features = (_tables.scaled(_tables.load(data, None).features, "minmax") + 1) / 2
    states = min(STATES, len(features))
    chosen = features[rng.permutation(len(features))[:states]]
    moves = rng.uniform(size=(states, states))
    rewards = rng.uniform(size=(agents, states, states))
    return Policy(chosen, moves / moves.sum(axis=1, keepdims=True), rewards)


def gather(
    runs: Sequence[PolicyRun], sims: int, found: Mapping[str, Found], prefix: str = ""
) -> dict[PolicyRun, dict[str, np.ndarray]]:
    """The columns of all simulations of each run, [sims, rows]."""
    return {
        run: stacked([found[prefix + run.cell_name(sim)] for sim in range(sims)]) for run in runs
    }


def _against_samples(together: Mapping[PolicyRun, Mapping[str, np.ndarray]]) -> Picture:
    return convergence(
        {
            run.label: (c["samples"][0] * run.agents, c["squared_error"])
            for run, c in together.items()
        },
        "total samples",
        "|mean x − x*|²",
        log_y=True,
        middle="mean",
        name="figure-3a",
        title="Figure 3 (a)",
    )


def against_steps(dsbo: Mapping[PolicyRun, Mapping[str, np.ndarray]]) -> Picture:
    return convergence(
        {run.label: (c["step"][0], c["squared_error"]) for run, c in dsbo.items()},
        "iterations",
        "|mean x − x*|²",
        log_x=True,
        log_y=True,
        slope=-1,
        middle="mean",
        name="figure-3b",
        title="Figure 3 (b)",
    )


def middle_region(values: np.ndarray) -> tuple[float, float, float]:
    """The median, and the ends of the region that holds the middle 75 %."""
    outside = (1 - REGION) / 2
    low, middle, high = np.quantile(values, (outside, 0.5, 1 - outside), method="nearest")
    return float(middle), float(low), float(high)


def _region(target: float, needed: Mapping[int, np.ndarray]) -> Picture:
    """The regions by K. A K whose region is not finite is left out and named in the caption."""
    regions, never = {}, []
    for K, samples in needed.items():
        region = middle_region(samples)
        if np.isfinite(region).all():
            regions[K] = tuple(np.log10(region).tolist())
        else:
            never.append(f"K = {K}")
    main = target == TARGETS[0]
    note = f" Too few simulations got there with {', '.join(never)}." if never else ""
    return intervals(
        {f"error {target:.1e}": regions or dict.fromkeys(needed, (np.nan, np.nan, np.nan))},
        "agents K",
        "log10 of total samples",
        name=f"figure-3c-{target:.1e}",
        title=("Figure 3 (c)" if main else "Appendix") + f", error {target:.1e}",
        caption=f"Median, and the region that holds the middle {REGION:.0%}.{note}",
    )


def _middle(samples: np.ndarray) -> str:
    middle = float(np.median(samples))
    return f"{middle:,.0f}" if np.isfinite(middle) else "never"


def _row(run: PolicyRun, curves: Mapping[str, np.ndarray]) -> dict[str, object]:
    return {
        "run": run.label,
        "T": run.steps,
        "samples, all agents": int(curves["samples"][0, -1] * run.agents),
        "error at the start": float(curves["squared_error"][:, 0].mean()),
        "error at the end": float(curves["squared_error"][:, -1].mean()),
    }


def _rows(together: Mapping[PolicyRun, Mapping[str, np.ndarray]]) -> list[dict[str, object]]:
    return [
        {
            **run._asdict(),
            "sim": sim,
            "step": int(step),
            "total_samples": int(samples * run.agents),
            "squared_error": float(error),
        }
        for run, curves in together.items()
        for sim in range(len(curves["step"]))
        for step, samples, error in zip(
            *(curves[name][sim] for name in ("step", "samples", "squared_error")), strict=True
        )
    ]
