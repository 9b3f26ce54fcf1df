"""The paper's first experiment: regularisation weights of a classifier, tuned over a ring.

Figure 2 of the paper: (a) loss against total samples, DSBO with K = 5, 10, 20 agents and DBSA with
K = 5; (b) validation loss against iterations, DSBO with K = 5, 10, 20. Ring with weights 1/3,
b = 200, alpha = 0.1 sqrt(K/T), beta = gamma = 10 sqrt(K/T), T = 20,000, and 50,000 where DSBO and
DBSA are compared at K = 5. Every simulation splits the data anew.

DBSA's step sizes are not in the paper. Here its alpha follows DSBO's rule, and its inner steps
fall like 1/i, which solves the inner problem ever better. It runs for as many samples as DSBO.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import NamedTuple

import numpy as np

from hobnob.algorithms.dbsa import DBSA
from hobnob.algorithms.dsbo import DSBO
from hobnob.analysis.exact import optimum
from hobnob.core.algorithm import Algorithm
from hobnob.core.schedules import capped, nonconvex
from hobnob.networks.lines import ring
from hobnob.problems.hyperopt import hyperopt
from hobnob.report.curves import convergence
from hobnob.report.page import Section, Tabs
from hobnob.report.picture import Picture
from hobnob.studies.cell import Bench, Cell, Found, stacked
from hobnob.studies.statistics import Interval, mean_interval
from hobnob.studies.study import Options, Report

AGENTS = (5, 10, 20)
TERMS = 200
DEALS = {"even": "Records dealt evenly", "by label": "Records dealt by label"}
MEASURES = {
    "outer_loss": "validation loss at (x, y)",
    "objective": "validation loss at (x, y*(x))",
    "inner_loss": "training loss at (x, y)",
}
STAND_IN = "breast_cancer"  # ships with scikit-learn; the paper's data set does not


class HyperoptRun(NamedTuple):
    """One curve of the figure: its algorithm, agents, steps and how the data are dealt."""

    method: str
    agents: int
    steps: int
    deal: str

    @property
    def label(self) -> str:
        return f"{self.method}, K = {self.agents}"

    def cell_name(self, sim: int) -> str:
        deal = self.deal.replace(" ", "-")
        return f"{self.method.lower()}-K{self.agents}-T{self.steps}-{deal}-{sim}"


def plan(options: Options) -> list[Cell]:
    return [
        Cell(
            run.cell_name(sim),
            measure,
            {**run._asdict(), "sim": sim, "data": options.data or STAND_IN},
            work=run.steps * (run.agents if run.method == "DSBO" else 0.01 * run.steps),
        )
        for run in _runs(options)
        for sim in range(_sims(options))
    ]


def measure(
    bench: Bench, method: str, agents: int, steps: int, deal: str, sim: int, data: str
) -> Found:
    problem = hyperopt(data, agents, deal=deal, seed=sim)
    features = problem.inner_data.arrays["features"]
    # A record's logistic loss curves by |a|^2 / 4 at most, and the weights start at 1.
    smoothness = float((features**2).sum(axis=1).max()) / 4 + 1
    if method == "DSBO":
        algorithm: Algorithm = DSBO(
            alpha=nonconvex(0.1),
            beta=nonconvex(10),
            gamma=nonconvex(10),
            terms=TERMS,
            smoothness=smoothness,
            strong_convexity=1.0,
        )
    else:
        algorithm = DBSA(
            alpha=nonconvex(0.1), eta=capped(0.1, 2.0), terms=TERMS, smoothness=smoothness
        )
    history = bench.history(
        problem,
        ring(agents),
        algorithm,
        steps=steps,
        seed=sim,
        record_every=max(1, steps // 200),
        metrics=list(MEASURES),
    )
    columns = ("step", "samples", *MEASURES)
    return {**{name: history[name] for name in columns}, "best": optimum(problem).value}


def report(options: Options, found: Mapping[str, Found]) -> Report:
    sims, runs = _sims(options), _runs(options)
    together = {run: stacked([found[run.cell_name(sim)] for sim in range(sims)]) for run in runs}
    sections, table = [], []
    for deal, title in DEALS.items():
        here = {run: curves for run, curves in together.items() if run.deal == deal}
        table += [_row(run, curves, title) for run, curves in here.items()]
        sections.append(_section(title, deal, here))
    end, best = _at_end(runs[0].deal, together)
    data = options.data or (
        f"scikit-learn's {STAND_IN} (a stand-in: give the Australian credit data with --data)"
    )
    return Report(
        title="Hyper-parameter optimisation over a ring",
        lead="The paper's Figure 2. Agents on a ring tune one regularisation weight a feature of a "
        f"logistic regression together. {sims} simulations, each with its own split of the data.",
        verdict=f"At equal samples with five agents and records dealt evenly, DSBO ends at a "
        f"validation loss of {end['DSBO']}, DBSA at {end['DBSA']}; the best with all data in one "
        f"place is {best}. Mean over {sims} splits, with its 95 % interval.",
        table=table,
        sections=sections,
        rows=_rows(together),
        settings={
            "data": data,
            "network": "ring, weights 1/3",
            "weights": "exp(x), from x = 0",
            "batch": "one record",
            "DSBO": f"b = {TERMS}, alpha = 0.1 sqrt(K/T), beta = gamma = 10 sqrt(K/T)",
            "DBSA": f"b = {TERMS}, alpha = 0.1 sqrt(K/T), eta = min(0.1, 2/i), until DSBO's "
            "samples are spent",
            "smoothness": "largest |a|^2/4 of a training record, plus 1",
            "simulations": sims,
            "T": f"{runs[0].steps:,}; {max(r.steps for r in runs):,} for the comparison at K = 5",
        },
    )


def _sims(options: Options) -> int:
    return options.sims or (2 if options.quick else 10)


def _runs(options: Options) -> list[HyperoptRun]:
    steps = options.steps or (10_000 if options.quick else 20_000)
    long = steps if options.quick else steps * 5 // 2
    samples = long * (TERMS + 2)
    # T iterations of DBSA draw T (T + 1) / 2 batches for y, and b + 2 each time for x.
    dbsa = max(1, isqrt(2 * samples + (TERMS + 2) ** 2) - (TERMS + 2))
    # In short runs 10 sqrt(K/T) is too large a step for 20 agents: y diverges.
    agents = AGENTS[:2] if options.quick else AGENTS
    sizes = [*(("DSBO", K, steps) for K in agents), ("DSBO", 5, long), ("DBSA", 5, dbsa)]
    sizes = list(dict.fromkeys(sizes))
    return [HyperoptRun(*size, deal) for deal in DEALS for size in sizes]


def _samples(run: HyperoptRun, curves: Mapping[str, np.ndarray]) -> np.ndarray:
    """Samples of all agents. Simulations that diverged have infinity, all others agree."""
    return curves["samples"].min(axis=0) * run.agents


def _section(title: str, deal: str, runs: Mapping[HyperoptRun, dict[str, np.ndarray]]) -> Section:
    name = deal.replace(" ", "-")
    first = next(iter(runs))
    # (a) compares at equal samples: with five agents the longer run, which comes after the other.
    last = {(run.method, run.agents): run for run in runs}
    by_samples = {run: runs[run] for run in last.values()}
    by_steps = {r: c for r, c in runs.items() if r.method == "DSBO" and r.steps == first.steps}
    best = float(np.mean([curves["best"].mean() for curves in runs.values()]))

    def picture(figure: str, column: str) -> Picture:
        chosen = by_samples if figure == "a" else by_steps
        axis = "total samples" if figure == "a" else "iterations"
        return convergence(
            {
                run.label: (
                    _samples(run, c) if figure == "a" else c["step"][0],
                    c[column],
                )
                for run, c in chosen.items()
            },
            axis,
            MEASURES[column],
            log_y=False,
            middle="mean",
            reference=(best, "best centralised") if column != "inner_loss" else None,
            name=f"figure-2{figure}-{name}-{column.replace('_', '-')}",
            title=f"Figure 2 ({figure}), {title.lower()}",
        )

    return Section(
        title,
        "(a) against the samples of all agents together; (b) against iterations. The dotted line "
        "is the mean over the splits of what L-BFGS finds with all data in one place. (x, y) are "
        "the means over the agents; y*(x) solves the inner problem exactly.",
        [
            Tabs("(a)", {label: picture("a", column) for column, label in MEASURES.items()}),
            Tabs(
                "(b)",
                {MEASURES[column]: picture("b", column) for column in ("outer_loss", "objective")},
            ),
        ],
    )


def _row(run: HyperoptRun, curves: Mapping[str, np.ndarray], title: str) -> dict[str, object]:
    return {
        "data": title,
        "run": run.label,
        "T": run.steps,
        "samples, all agents": float(_samples(run, curves)[-1]),
        "start": float(curves["objective"][:, 0].mean()),
        "end": str(mean_interval(curves["objective"][:, -1])),
        "end, own y": str(mean_interval(curves["outer_loss"][:, -1])),
        "best": float(curves["best"].mean()),
    }


def _at_end(
    deal: str, together: Mapping[HyperoptRun, Mapping[str, np.ndarray]]
) -> tuple[dict[str, Interval], Interval]:
    """F at the end of the two runs with equal samples, and at the optimum."""
    pair = [run for run in together if run.deal == deal][-2:]
    ends = {run.method: mean_interval(together[run]["objective"][:, -1]) for run in pair}
    return ends, mean_interval(together[pair[0]]["best"])


def _rows(together: Mapping[HyperoptRun, Mapping[str, np.ndarray]]) -> list[dict[str, object]]:
    return [
        {
            **run._asdict(),
            "sim": sim,
            "step": int(curves["step"][sim, i]),
            "total_samples": float(curves["samples"][sim, i] * run.agents),
            **{name: float(curves[name][sim, i]) for name in MEASURES},
            "best": float(curves["best"][sim]),
        }
        for run, curves in together.items()
        for sim in range(len(curves["step"]))
        for i in range(curves["step"].shape[1])
    ]
