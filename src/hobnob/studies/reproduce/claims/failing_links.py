"""Claim 8: links that fail do no harm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

import numpy as np

from hobnob.algorithms.dsbo import DSBO
from hobnob.core.links import Drop
from hobnob.core.schedules import pl_average, pl_outer
from hobnob.networks.lines import ring
from hobnob.problems.quadratic import Quadratic, quadratic
from hobnob.report.intervals import Measured, intervals
from hobnob.studies.cell import Bench, Cell, Found
from hobnob.studies.reproduce.claims._claim import Claim, Criterion, Finding, below
from hobnob.studies.statistics import ratio_interval
from hobnob.studies.study import Options

AGENTS, TERMS, OFFSET = 10, 8, 30.0
L, MU, MU_OUTER = 0.75, 0.25, 0.5
RATES = (5, 10, 30)  # percent of the links that are down in a round
CONTROL = 99  # not judged; it shows what harm would look like
MOST = 1.25  # an error up to this factor larger counts as no harm


class FailingLinks(Claim):
    number: ClassVar[int] = 8
    title: ClassVar[str] = "Links that fail"
    says: ClassVar[str] = (
        "The algorithm is robust: where a communication channel fails, the agents still learn "
        "jointly as long as the network stays connected."
    )

    def setting(self, options: Options) -> str:
        return (
            f"problems.quadratic({AGENTS}, 3, 4, condition=2, scale={MU}, noise=0.5, batch_size=1) "
            f"on a ring, DSBO with b = {TERMS}, L = {L}, alpha_t = 2/({MU_OUTER} (C1 + t)), beta_t "
            f"= gamma_t = C1/(C1 + t), C1 = {OFFSET:g}, T = {_steps(options):,}; hb.Drop in every "
            f"round, and the same {_sims(options)} seeds, hence the same samples, without. "
            f"{CONTROL} % is there to tell what harm looks like."
        )

    def plan(self, options: Options) -> list[Cell]:
        size = {"steps": _steps(options), "sims": _sims(options)}
        return [
            Cell(f"08-{rate:02d}-percent", descend, {"percent": rate, **size})
            for rate in (0, *_rates(options))
        ]

    def judge(self, options: Options, found: Mapping[str, Found]) -> Finding:
        whole = found["08-00-percent"]
        optimum = make().solution
        criteria, words = [], []
        mean: dict[object, Measured] = {}
        own: dict[object, Measured] = {}
        for rate in _rates(options):
            run = found[f"08-{rate:02d}-percent"]
            error = ratio_interval(_squared(run["x"] - optimum) / _squared(whole["x"] - optimum))
            each = ratio_interval(_of_agents(run, optimum) / _of_agents(whole, optimum))
            moved = _squared(run["x"] - whole["x"]).mean()
            apart = moved / _squared(whole["x"] - optimum).mean()
            words.append(
                f"With {rate} % of the links down, the mean iterate's squared error is "
                f"{error.value:.4g} times the one without failures, that of the agents' own points "
                f"{each.value:.4g} times; the squared distance of the two end points is "
                f"{apart:.2g} of the error."
            )
            if rate == CONTROL:
                continue
            mean[f"{rate} %"], own[f"{rate} %"] = error, each
            criteria += [
                Criterion(
                    f"{rate} % down: the mean iterate's squared error at the end over that without "
                    f"failures: the interval ends below {MOST}.",
                    error,
                    below(MOST),
                ),
                Criterion(
                    f"{rate} % down: the same for the agents' own points, mean over agents: the "
                    f"interval ends below {MOST}.",
                    each,
                    below(MOST),
                ),
            ]
        picture = intervals(
            {"mean iterate": mean, "agents' own": own},
            "links down in a round",
            "error over that without failures",
            reference=(1.0, "no harm"),
            name="08-links",
            title="squared error at the end, relative to the run without failures",
            caption=f"Geometric mean over {_sims(options)} seeds.",
        )
        return Finding(criteria, " ".join(words), [picture])


def descend(bench: Bench, percent: int, steps: int, sims: int) -> Found:
    """The end of a run: the mean iterate [seeds, d_x] and the agents' own [seeds, K, d_x]."""
    result = bench.solve(
        make(),
        ring(AGENTS),
        DSBO(
            alpha=pl_outer(MU_OUTER, OFFSET),
            beta=pl_average(OFFSET),
            gamma=pl_average(OFFSET),
            terms=TERMS,
            smoothness=L,
            strong_convexity=MU,
        ),
        steps=steps,
        seed=list(range(sims)),
        metrics=None,
        record_every=max(1, steps // 4),
        links=Drop(percent / 100) if percent else None,
    )
    return {"x": result.x, "agents": result.agents["x"]}


@lru_cache
def make() -> Quadratic:
    return quadratic(AGENTS, 3, 4, condition=2.0, scale=MU, noise=0.5, batch_size=1)


def _squared(differences: np.ndarray) -> np.ndarray:
    return np.sum(differences**2, axis=-1)


def _of_agents(run: Found, optimum: np.ndarray) -> np.ndarray:
    return _squared(run["agents"] - optimum).mean(axis=-1)


def _steps(options: Options) -> int:
    return options.steps or (600 if options.quick else 10_000)


def _sims(options: Options) -> int:
    return options.sims or 10


def _rates(options: Options) -> tuple[int, ...]:
    return RATES[-1:] if options.quick else (*RATES, CONTROL)
