"""Claim 7: with a server instead of gossip, no consensus error and the same rate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hobnob.report.curves import convergence
from hobnob.report.intervals import intervals
from hobnob.studies.cell import Bench, Cell, Found
from hobnob.studies.reproduce.claims._claim import Claim, Criterion, Finding, below
from hobnob.studies.reproduce.claims._rates import ladder, longest, seeds, windowed
from hobnob.studies.statistics import mean_interval, ratio_interval, slope_interval, slopes
from hobnob.studies.study import Options

AGENTS, STATES, FEATURES = 10, 20, 5
STEPS = (16000, 4000)  # full, quick
ROUNDING = 1e-20  # of a squared distance, in double precision
STEEP, NEAR, CLOSE = -0.8, 0.1, 1.25

LABELS = {
    "star": "FedSBO on a star",
    "ring": "DSBO on a ring",
    "complete": "DSBO on a complete graph",
}


class StarVariant(Claim):
    number = 7
    title = "The star variant"
    says = (
        "with a server that holds exact averages (FedSBO, Algorithm 2) the consensus errors "
        "disappear, and the rate is that of DSBO."
    )

    def setting(self, options: Options) -> str:
        return (
            f"policy evaluation (hobnob.problems.policy: {AGENTS} agents, {STATES} states, "
            f"{FEATURES} features, discount 0.9, regulariser 1), whose inner Hessian is the "
            f"identity, so that one term of the series is exact; alpha = min(0.01, 2/t), beta = "
            f"gamma = min(0.5, 50/t), {longest(options, *STEPS):,} steps, {len(seeds(options))} "
            f"seeds, and the same samples for all. Errors are |x - x*|^2 at the mean iterate, "
            f"averaged over the second half of the first T steps, T halved four times for slopes."
        )

    def plan(self, options: Options) -> list[Cell]:
        steps = longest(options, *STEPS)
        return [
            Cell(
                f"07-{network}",
                measure,
                {"network": network, "steps": steps, "seeds": seeds(options)},
                work=steps,
            )
            for network in _networks(options)
        ]

    def judge(self, options: Options, found: Mapping[str, Found]) -> Finding:
        ends = ladder(longest(options, *STEPS))
        cells = {network: found[f"07-{network}"] for network in _networks(options)}
        error = {n: windowed(c["step"], c["squared_error"], ends) for n, c in cells.items()}
        spread = float(cells["star"]["consensus"].max())
        on_ring = float(cells["ring"]["consensus"][:, -1].mean())
        slope = {n: slope_interval(ends, e) for n, e in error.items()}
        criteria = [
            Criterion(
                f"FedSBO's consensus errors, the largest of all variables at any time: below "
                f"{ROUNDING:g}",
                spread,
                below(ROUNDING),
            ),
            Criterion(
                f"FedSBO: slope of the error in T, expected -1: below {STEEP}",
                slope["star"],
                below(STEEP),
            ),
        ]
        beside = {n: error["star"] / error[n] for n in cells if n != "star"}
        for network, quotients in beside.items():
            more, last = mean_interval(slopes(ends, quotients)), ratio_interval(quotients[:, -1])
            criteria += [
                Criterion(
                    f"FedSBO's slope minus that of {LABELS[network]}: within ±{NEAR}",
                    more,
                    (-NEAR, NEAR),
                ),
                Criterion(
                    f"FedSBO's error over that of {LABELS[network]} at T = {ends[-1]:,}: between "
                    f"{1 / CLOSE:g} and {CLOSE}",
                    last,
                    (1 / CLOSE, CLOSE),
                ),
            ]
        each = ", ".join(f"{slope[n]} for {LABELS[n]}" for n in cells)
        ends_near = " and ".join(
            f"{100 * max(abs(end - 1) for end in ratio_interval(quotients[:, -1])):.2g} % of that "
            f"of {LABELS[n]}"
            for n, quotients in beside.items()
        )
        words = (
            f"FedSBO's agents are never further apart than {spread:.1g} (mean squared distance, "
            f"largest over all variables), those of DSBO on a ring end {on_ring:.2g} apart. The "
            f"slopes are {each}; at T = {ends[-1]:,} FedSBO's error is within {ends_near}. Inner "
            f"Hessians and mean Jacobians are the same for all agents of this problem, so that a "
            f"network acts on the mean iterate through noise alone; claim 6 has a problem where it "
            f"acts through more."
        )
        pictures = [
            intervals(
                {
                    LABELS[n]: {t: ratio_interval(r[:, i]) for i, t in enumerate(ends)}
                    for n, r in beside.items()
                },
                "T",
                "FedSBO's error / DSBO's",
                log_x=True,
                reference=(1, "equal"),
                name="star-variant-quotients",
                title="FedSBO beside DSBO",
                caption="Geometric means over seeds of quotients from the same samples, with 95 % "
                "intervals.",
            ),
            convergence(
                {LABELS["star"]: (cells["star"]["step"], cells["star"]["squared_error"])},
                "steps",
                "|x − x*|²",
                log_x=True,
                log_y=True,
                slope=-1,
                middle="mean",
                name="star-variant",
                title="FedSBO's error over time",
            ),
        ]
        rows = [
            {"network": n, "T": t, "seed": seed, "squared error": float(value)}
            for n in error
            for seed, row in enumerate(error[n])
            for t, value in zip(ends, row, strict=True)
        ]
        return Finding(criteria, words, pictures, rows)


def measure(bench: Bench, network: str, steps: int, seeds: list[int]) -> Found:
    from hobnob import networks
    from hobnob.algorithms.dsbo import DSBO
    from hobnob.algorithms.fedsbo import FedSBO
    from hobnob.core.schedules import capped
    from hobnob.problems.policy import policy

    method = FedSBO if network == "star" else DSBO
    result = bench.solve(
        policy(AGENTS, STATES, FEATURES),
        networks.get(network)(AGENTS),
        method(
            alpha=capped(0.01, 2),
            beta=capped(0.5, 50),
            gamma=capped(0.5, 50),
            terms=1,
            smoothness=1.0,
            strong_convexity=1.0,
        ),
        steps=steps,
        seed=seeds,
        record_every=max(1, steps // 1000),
        metrics=["squared_error", "consensus"],
    )
    history = result.history
    consensus = [values for name, values in history.items() if name.startswith("consensus_")]
    return {
        "step": history["step"][0],
        "squared_error": history["squared_error"],
        "consensus": np.max(consensus, axis=0),
    }


def _networks(options: Options) -> tuple[str, ...]:
    return ("star", "ring") if options.quick else tuple(LABELS)
