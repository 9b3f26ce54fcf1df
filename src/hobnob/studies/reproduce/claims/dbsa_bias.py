"""Claim 3: DSBO beats DBSA at equal samples; DBSA ends at a wrong point."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from hobnob.algorithms.dbsa import DBSA
from hobnob.algorithms.dsbo import DSBO
from hobnob.core.algorithm import Algorithm
from hobnob.core.data import Source
from hobnob.core.schedules import pl_average, pl_outer
from hobnob.networks.lines import ring
from hobnob.problems.quadratic import Quadratic, quadratic
from hobnob.report.curves import convergence
from hobnob.studies.cell import Bench, Cell, Found
from hobnob.studies.reproduce.claims._claim import Claim, Criterion, Finding, above, below
from hobnob.studies.search import CHOOSING, attempt, chosen, seeds, steps_within
from hobnob.studies.statistics import ratio_interval
from hobnob.studies.study import Options

AGENTS, DIM_X, DIM_Y, TERMS = 8, 3, 4, 16
L, MU = 0.75, 0.25  # of the inner problems; those of the agents go from 0.125 to 0.75
MU_OUTER = 0.5
OFFSETS = (10.0, 30.0, 100.0)  # C1 of the paper's step sizes, the same choice for both methods
KINDS = {"identical": 0.0, "different": 1.0}
METHODS = ("DSBO", "DBSA")


class DbsaBias(Claim):
    number: ClassVar[int] = 3
    title: ClassVar[str] = "DSBO beats DBSA, which is biased"
    says: ClassVar[str] = (
        "DSBO needs fewer samples than DBSA, and DBSA may not converge to the optimum at all, "
        "since the mean of local hypergradients is not the hypergradient of the means."
    )

    def setting(self, options: Options) -> str:
        offsets = ", ".join(f"{offset:g}" for offset in _offsets(options))
        return (
            f"problems.quadratic({AGENTS}, {DIM_X}, {DIM_Y}, condition=2, scale={MU}, noise=0.5, "
            f"batch_size=1) with heterogeneity 0 and 1 on a ring; b = {TERMS}, L = {L}; T = "
            f"{_steps(options):,} for DSBO, and for DBSA as many as cost the same samples an "
            f"agent. Both take alpha_t = 2/({MU_OUTER} (C1 + t)); beta_t = gamma_t = C1/(C1 + t) "
            f"for DSBO, and the same in i for DBSA's inner steps; C1 is the best of {offsets} on "
            f"{CHOOSING} seeds, and {_sims(options)} other seeds are measured."
        )

    def plan(self, options: Options) -> list[Cell]:
        size = {"steps": _steps(options), "sims": _sims(options)}
        cells = []
        for method in METHODS:
            for offset in _offsets(options):
                quiet = method == "DBSA" and offset == _offsets(options)[0]
                kinds = (*KINDS, "noiseless") if quiet else tuple(KINDS)
                asked = {"method": method, "offset": offset, "kinds": kinds, **size}
                cells.append(Cell(f"03-{method}-{offset:g}", descend, asked, solves=len(kinds)))
        return cells

    def judge(self, options: Options, found: Mapping[str, Found]) -> Finding:
        curves, last, offsets = {}, {}, {}
        for kind in KINDS:
            for method in METHODS:
                tried = {c: found[f"03-{method}-{c:g}"] for c in _offsets(options)}
                c = chosen(tried, lambda run, kind=kind: run[f"{kind}_error"][:, -1])
                run = tried[c]
                curves[f"{method}, {kind} agents"] = run["samples"], run[f"{kind}_error"][CHOOSING:]
                last[kind, method], offsets[kind, method] = run[f"{kind}_x"][CHOOSING:], c
        problem = make("different")
        optimum, wrong = problem.solution, where_local_hypergradients_vanish(problem)
        floor = float(_squared(wrong - optimum))

        errors = {key: _squared(x - make(key[0]).solution) for key, x in last.items()}
        worse = {
            kind: ratio_interval(errors[kind, "DBSA"] / errors[kind, "DSBO"]) for kind in KINDS
        }
        ends = last["different", "DBSA"]
        nearer = ratio_interval(_squared(ends - wrong) / _squared(ends - optimum))
        quiet = found[f"03-DBSA-{_offsets(options)[0]:g}"]["noiseless_x"][0]
        still = float(_squared(quiet - wrong) / floor)
        criteria = [
            *(
                Criterion(
                    f"{kind.capitalize()} agents: DBSA's squared error over DSBO's, at equal "
                    f"samples: above 1.",
                    ratio,
                    above(1),
                )
                for kind, ratio in worse.items()
            ),
            Criterion(
                "Different agents: DBSA's squared distance from the point where the mean of exact "
                "local hypergradients vanishes, over that from the optimum: below 1.",
                nearer,
                below(1),
            ),
            Criterion(
                "Different agents without noise: the same distance over that between the two "
                "points, squared: below 0.1, so DBSA's floor is bias and not noise.",
                still,
                below(0.1),
            ),
        ]
        middle = {key: float(np.median(values)) for key, values in errors.items()}
        words = (
            f"At equal samples DBSA's squared error is {worse['different'].value:.3g} times "
            f"DSBO's where agents differ ({middle['different', 'DBSA']:.2g} against "
            f"{middle['different', 'DSBO']:.2g}), and {worse['identical'].value:.3g} times where "
            f"they are identical ({middle['identical', 'DBSA']:.2g} against "
            f"{middle['identical', 'DSBO']:.2g}). Where agents differ, local hypergradients cancel "
            f"at a squared distance of {floor:.2g} from the optimum; DBSA without noise ends at "
            f"{float(_squared(quiet - optimum)):.2g}."
        )
        picture = convergence(
            curves,
            "samples",
            "squared error",
            log_x=True,
            log_y=True,
            reference=(floor, "where local hypergradients cancel"),
            name="03-dbsa",
            title="|x − x*|² of the mean iterate against samples per agent",
        )
        rows = [
            {
                "agents": kind,
                "method": method,
                "chosen C1": c,
                "squared error": middle[kind, method],
            }
            for (kind, method), c in offsets.items()
        ]
        return Finding(criteria, words, [picture], rows)


def descend(
    bench: Bench, method: str, offset: float, kinds: tuple[str, ...], steps: int, sims: int
) -> Found:
    """For all seeds and kinds of agents: the error of the mean iterate over time, and its end."""
    network, algorithm = ring(AGENTS), _algorithm(method, offset)
    if method == "DBSA":
        samples_of_dsbo = steps * (TERMS + 2)
        steps = steps_within(samples_of_dsbo, make("different"), network, algorithm)
    lost = np.full((len(seeds(sims)), DIM_X), np.inf)
    found: dict[str, Any] = {"samples": np.zeros(1)}
    for kind in kinds:
        result = attempt(
            bench,
            make(kind),
            network,
            algorithm,
            steps=steps,
            seed=seeds(sims),
            metrics=["squared_error"],
            record_every=max(1, steps // 50),
        )
        found[f"{kind}_x"] = result.x if result else lost
        found[f"{kind}_error"] = result.history["squared_error"] if result else lost[:, :1]
        if result:
            found["samples"] = result.history["samples"][0]
    return found


@lru_cache
def make(kind: str) -> Quadratic:
    """The same number of records with and without noise, so that one program serves both."""
    return quadratic(
        AGENTS,
        DIM_X,
        DIM_Y,
        heterogeneity=KINDS.get(kind, 1.0),
        condition=2.0,
        scale=MU,
        noise=0.0 if kind == "noiseless" else 0.5,
        records=32,
        batch_size=1,
    )


def where_local_hypergradients_vanish(problem: Quadratic) -> np.ndarray:
    """x with mean_k (grad_x f_k - J_k q_k grad_y f_k) = 0 at (x, y*(x)), q_k of agent k's own H."""

    def mean_by_agent(data: Source, name: str) -> np.ndarray:
        records = data.arrays[name]
        return records.reshape(AGENTS, -1, *records.shape[1:]).mean(axis=1)

    A, B = (mean_by_agent(problem.inner_data, name) for name in "AB")
    Q, q = (mean_by_agent(problem.outer_data, name) for name in "Qq")
    factor = np.eye(problem.dim_y) - A / L
    inverse = sum(np.linalg.matrix_power(factor, j) for j in range(TERMS + 1)) / L

    def mean_of_local(x: np.ndarray) -> np.ndarray:
        z = np.concatenate([x, problem.closed_form(x).y])
        slope = Q @ z - q
        along_x, along_y = slope[:, : x.size, None], slope[:, x.size :, None]
        return (along_x + B.swapaxes(1, 2) @ inverse @ along_y).mean(axis=0)[:, 0]  # J = -B'

    # It is affine in x.
    start = mean_of_local(np.zeros(problem.dim_x))
    slopes = np.stack([mean_of_local(e) - start for e in np.eye(problem.dim_x)], axis=1)
    return -np.linalg.solve(slopes, start)


def _algorithm(method: str, offset: float) -> Algorithm:
    alpha, average = pl_outer(MU_OUTER, offset), pl_average(offset)
    if method == "DBSA":
        return DBSA(alpha=alpha, eta=average, terms=TERMS, smoothness=L)
    return DSBO(
        alpha=alpha,
        beta=average,
        gamma=average,
        terms=TERMS,
        smoothness=L,
        strong_convexity=MU,
    )


def _squared(differences: np.ndarray) -> np.ndarray:
    return np.sum(differences**2, axis=-1)


def _steps(options: Options) -> int:
    return options.steps or (800 if options.quick else 8000)


def _sims(options: Options) -> int:
    return options.sims or 10


def _offsets(options: Options) -> tuple[float, ...]:
    return OFFSETS[1:2] if options.quick else OFFSETS
