"""Claim 6: the network matters less and less."""

from __future__ import annotations

from collections.abc import Mapping

from hobnob.report.curves import convergence
from hobnob.report.intervals import intervals
from hobnob.studies.cell import Bench, Cell, Found
from hobnob.studies.reproduce.claims._claim import Claim, Criterion, Finding, below
from hobnob.studies.reproduce.claims._rates import (
    DIFFERING,
    differing,
    ladder,
    least_curvature,
    longest,
    seeds,
    windowed,
)
from hobnob.studies.statistics import ratio_interval, slope_interval
from hobnob.studies.study import Options

AGENTS, OFFSET, TERMS = 16, 50, 12
STEPS = (64000, 8000)  # full, quick
CLOSE = 1.25
SIMS = 30  # with ten, the interval of the final quotient is too wide to decide


class NetworkFades(Claim):
    number = 6
    title = "The network's influence fades"
    says = (
        "under the PL condition the error is O(1/(KT)) + O(ln T / (T^2 (1 - rho)^2)): the network "
        "is in the second term alone, which vanishes beside the first as T grows."
    )

    def setting(self, options: Options) -> str:
        return (
            f"{AGENTS} agents with {DIFFERING}; DSBO with the paper's steps for PL, alpha = 2 / "
            f"(mu (C1 + t)), beta = gamma = C1 / (C1 + t), C1 = {OFFSET}, mu = "
            f"{least_curvature(differing(AGENTS)):.2f} the smallest curvature of F, {TERMS} terms, "
            f"L = 1; {longest(options, *STEPS):,} steps, {len(seeds(options, SIMS))} seeds, and "
            f"the same samples on every network. Errors are |x - x*|^2 at the mean, averaged "
            f"over the second half of the first T steps."
        )

    def plan(self, options: Options) -> list[Cell]:
        steps = longest(options, *STEPS)
        return [
            Cell(
                _cell(name),
                measure,
                {"network": name, "steps": steps, "seeds": seeds(options, SIMS)},
                work=steps,
            )
            for name in _networks(options)
        ]

    def judge(self, options: Options, found: Mapping[str, Found]) -> Finding:
        ends = ladder(longest(options, *STEPS))
        names = _networks(options)
        error = {
            n: windowed(found[_cell(n)]["step"], found[_cell(n)]["squared_error"], ends)
            for n in names
        }
        rho = {n: float(found[_cell(n)]["rho"]) for n in names}
        beside = {n: error[n] / error["complete"] for n in names if n != "complete"}
        first, last = (ratio_interval(beside["ring"][:, i]) for i in (0, -1))
        change = ratio_interval(beside["ring"][:, -1] / beside["ring"][:, 0])
        slopes = {n: slope_interval(ends, error[n]) for n in names}
        others = " ".join(
            f"For a {n} (rho = {rho[n]:.2f}) the quotient is {ratio_interval(r[:, -1])}."
            for n, r in beside.items()
            if n != "ring"
        )
        apart = "cannot be told from 1" if last.holds(1) else "is still apart from 1"
        words = (
            f"A ring (rho = {rho['ring']:.2f}) has {first} times the error of a complete graph "
            f"(rho = 0) at T = {ends[0]:,}, and {last} times at T = {ends[-1]:,}, which {apart}. "
            f"{others} In between the error falls with slope {slopes['ring']} on the ring and "
            f"{slopes['complete']} on the complete graph; the first term of the bound has -1, the "
            f"second -2."
        )
        return Finding(
            [
                Criterion(
                    f"error on a ring over error on a complete graph, at T = {ends[-1]:,} over "
                    f"that at T = {ends[0]:,}: below 1",
                    change,
                    below(1),
                ),
                Criterion(
                    f"error on a ring over error on a complete graph at T = {ends[-1]:,}, in the "
                    f"limit 1: at most {CLOSE}",
                    last,
                    below(CLOSE),
                ),
            ],
            words,
            [
                intervals(
                    {
                        f"{n}, rho = {rho[n]:.2f}": {
                            t: ratio_interval(r[:, i]) for i, t in enumerate(ends)
                        }
                        for n, r in beside.items()
                    },
                    "T",
                    "error / error on a complete graph",
                    log_x=True,
                    log_y=True,
                    reference=(1, "complete, rho = 0"),
                    name="network-fades",
                    title="What a worse network costs",
                    caption="Geometric means over seeds of quotients from the same samples, with "
                    "95 % intervals.",
                ),
                convergence(
                    {n: (found[_cell(n)]["step"], found[_cell(n)]["squared_error"]) for n in names},
                    "steps",
                    "|x − x*|²",
                    log_x=True,
                    log_y=True,
                    middle="mean",
                    name="network-fades-errors",
                    title="The error over time",
                ),
            ],
            [
                {"network": n, "rho": rho[n], "T": t, "seed": seed, "squared error": float(value)}
                for n in names
                for seed, row in enumerate(error[n])
                for t, value in zip(ends, row, strict=True)
            ],
        )


def measure(bench: Bench, network: str, steps: int, seeds: list[int]) -> Found:
    from hobnob import networks
    from hobnob.algorithms.dsbo import DSBO
    from hobnob.core.schedules import pl_average, pl_outer

    problem, mesh = differing(AGENTS), networks.get(network)(AGENTS)
    result = bench.solve(
        problem,
        mesh,
        DSBO(
            alpha=pl_outer(least_curvature(problem), OFFSET),
            beta=pl_average(OFFSET),
            gamma=pl_average(OFFSET),
            terms=TERMS,
            smoothness=1.0,
            strong_convexity=0.25,
        ),
        steps=steps,
        seed=seeds,
        record_every=max(1, steps // 1000),
        metrics=["squared_error"],
    )
    history = result.history
    return {
        "step": history["step"][0],
        "squared_error": history["squared_error"],
        "rho": mesh.rho,
    }


def _networks(options: Options) -> tuple[str, ...]:
    return ("ring", "complete") if options.quick else ("ring", "torus", "complete")


def _cell(network: str) -> str:
    return f"06-{network}"
