"""Claim 9: the error of the truncated series for the inverse Hessian."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.algorithms._series import stored_series
from hobnob.core.schedules import neumann_terms
from hobnob.problems.quadratic import quadratic
from hobnob.report.curves import convergence
from hobnob.report.intervals import Measured, intervals
from hobnob.studies.cell import Bench, Cell, Found
from hobnob.studies.reproduce.claims._claim import Claim, Criterion, Finding, below
from hobnob.studies.statistics import mean_interval, slope_interval
from hobnob.studies.study import Options

CONDITIONS = (3, 30)  # L / mu of the pooled inner Hessian: well and ill conditioned
DIM = 10
SMALLEST = 1e-10  # below it, rounding errors show
RUN_LENGTH = 1000  # for the paper's b, which must leave at most 1 / T^3
BETAS = (0.025, 0.1, 0.4)
FEW_TERMS = 4  # few enough for the truncation to show in spite of noise
SLOPE_REACH, NOISE_REACH = (0.9, 1.1), (0.4, 0.6)
BIAS_REACH = (0.9, 1.1)


class TruncatedSeries(Claim):
    number: ClassVar[int] = 9
    title: ClassVar[str] = "The truncated series"
    says: ClassVar[str] = (
        "With b terms, q h misses the inverse Hessian times h by a factor (1 - kappa)^b, where "
        "kappa = mu/L, and by the noise of the averages v, whose square is of order beta."
    )

    def setting(self, options: Options) -> str:
        return (
            f"The pooled inner Hessian H of problems.quadratic(8, dim_y={DIM}, noise=0.5) with "
            f"kappa = 1/{CONDITIONS[0]} and 1/{CONDITIONS[1]}, {_sims(options)} normal vectors h, "
            f"and the library's series with all v_i = H. Then v_i that are running averages, with "
            f"weight beta, of single records' Hessians: kappa = 1/{CONDITIONS[0]}, b = "
            f"{FEW_TERMS}, {_sims(options)} groups of {_draws(options)} independent draws."
        )

    def plan(self, options: Options) -> list[Cell]:
        sims, draws = _sims(options), _draws(options)
        return [
            *(
                Cell(f"09-condition-{c}", with_exact_averages, {"condition": c, "sims": sims})
                for c in CONDITIONS
            ),
            Cell("09-sampled", with_sampled_averages, {"sims": sims, "draws": draws}, work=3),
        ]

    def judge(self, options: Options, found: Mapping[str, Found]) -> Finding:
        criteria, words, curves = [], [], {}
        for condition in CONDITIONS:
            here = found[f"09-condition-{condition}"]
            terms, errors = here["terms"], here["errors"]
            factor = 1 - 1 / condition
            bound = factor ** (terms + 1.0)
            worst = float((errors / bound).max())
            late = bound < np.sqrt(SMALLEST)
            slope = mean_interval(
                np.polyfit(terms[late], np.log(errors[:, late]).T, 1)[0] / np.log(factor)
            )
            left = float(here["papers_error"].max()) * RUN_LENGTH**3
            kappa = f"kappa = 1/{condition}"
            criteria += [
                Criterion(
                    f"{kappa}: the largest relative error over (1 - kappa)^(b+1), over all b and "
                    f"h: at most 1.",
                    worst,
                    below(1 + 1e-6),
                ),
                Criterion(
                    f"{kappa}: the slope of log error in b over log(1 - kappa): within "
                    f"{SLOPE_REACH[0]} to {SLOPE_REACH[1]}.",
                    slope,
                    SLOPE_REACH,
                ),
                Criterion(
                    f"{kappa}: the error with the paper's b for T = {RUN_LENGTH}, times T^3: at "
                    f"most 1.",
                    left,
                    below(1),
                ),
            ]
            words.append(
                f"With {kappa} the error is at most {worst:.3g} of (1 - kappa)^(b+1), and its "
                f"logarithm falls at {slope.value:.3g} times log(1 - kappa) a term."
            )
            curves[f"error, κ = 1/{condition}"] = terms, errors
            curves[f"bound, κ = 1/{condition}"] = terms, bound

        sampled = found["09-sampled"]
        betas, noise = sampled["betas"], sampled["noise"]
        power = slope_interval(betas, noise)
        bias = mean_interval(sampled["bias"])
        criteria += [
            Criterion(
                f"Sampled v: the slope of log noise of q h against log beta: within "
                f"{NOISE_REACH[0]} to {NOISE_REACH[1]}, where the paper has 1/2.",
                power,
                NOISE_REACH,
            ),
            Criterion(
                f"Sampled v, beta = {betas[1]:g}: the mean error of q h along the truncation "
                f"error, as a multiple of it: within {BIAS_REACH[0]} to {BIAS_REACH[1]}, so "
                f"truncation is nearly all of the bias.",
                bias,
                BIAS_REACH,
            ),
        ]
        words.append(
            f"With sampled v the noise of q h is of order beta^{power.value:.2f}, and its bias is "
            f"{bias.value:.3g} times the truncation error."
        )
        points: dict[object, Measured] = {
            float(b): mean_interval(column) for b, column in zip(betas, noise.T, strict=True)
        }
        return Finding(
            criteria,
            " ".join(words),
            [
                convergence(
                    curves,
                    "terms b",
                    "relative error of q h",
                    log_x=True,
                    log_y=True,
                    name="09-truncation",
                    title="what the truncated series misses, beside (1 − κ)^(b+1)",
                ),
                intervals(
                    {"noise of q h": points},
                    "β",
                    "root mean square noise",
                    log_x=True,
                    log_y=True,
                    slope=0.5,
                    name="09-noise",
                    title="the noise of q h against the weight of the newest sample",
                    caption=f"Relative to |H⁻¹ h|; mean of {len(noise)} groups of draws.",
                ),
            ],
        )


def with_exact_averages(bench: Bench, condition: int, sims: int) -> Found:
    """|q h - H^-1 h| / |H^-1 h| for several b and h, with all v_i = H."""
    hessian = _records(condition).mean(axis=0)
    smoothness = float(np.linalg.eigvalsh(hessian)[-1])
    most = np.log(SMALLEST) / np.log(1 - 1 / condition)
    terms = np.unique(np.geomspace(1, most, 12).round().astype(int))
    h = np.random.default_rng(condition).normal(size=(sims, DIM))
    exact = np.linalg.solve(hessian, h.T).T

    @jax.jit
    def series(v: jax.Array) -> jax.Array:
        return jax.vmap(lambda h: stored_series(h, v, smoothness))(jnp.asarray(h))

    def errors(b: int) -> np.ndarray:
        with jax.enable_x64(True):
            found = np.asarray(series(jnp.broadcast_to(hessian, (b, DIM, DIM))))
        return np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1)

    papers = neumann_terms(RUN_LENGTH, condition, 1)
    return {
        "terms": terms,
        "errors": np.stack([errors(b) for b in terms.tolist()], axis=1),
        "papers_error": errors(papers),
    }


def with_sampled_averages(bench: Bench, sims: int, draws: int) -> Found:
    """q h with v_i+ = (1 - beta) v_i + beta H(xi_i) at a fixed point: its noise and bias."""
    records = _records(CONDITIONS[0])
    hessian = records.mean(axis=0)
    smoothness = float(np.linalg.eigvalsh(hessian)[-1])
    h = np.random.default_rng(0).normal(size=DIM)
    exact = np.linalg.solve(hessian, h)

    @jax.jit
    def sampled(key: jax.Array, beta: jax.Array, steps: jax.Array) -> jax.Array:
        def one(key: jax.Array) -> jax.Array:
            def step(t: jax.Array, v: jax.Array) -> jax.Array:
                picked = jax.random.randint(
                    jax.random.fold_in(key, t), (FEW_TERMS,), 0, len(records)
                )
                return (1 - beta) * v + beta * jnp.asarray(records)[picked]

            start = jnp.broadcast_to(jnp.asarray(hessian), (FEW_TERMS, DIM, DIM))
            return stored_series(
                jnp.asarray(h), jax.lax.fori_loop(0, steps, step, start), smoothness
            )

        return jax.vmap(one)(jax.random.split(key, draws))

    noise = np.empty((sims, len(BETAS)))
    bias = np.empty((sims, len(BETAS)))
    with jax.enable_x64(True):
        truncated = stored_series(
            jnp.asarray(h), jnp.broadcast_to(hessian, (FEW_TERMS, DIM, DIM)), smoothness
        )
        missed = np.asarray(truncated) - exact
        for group in range(sims):
            for i, beta in enumerate(BETAS):
                key = jax.random.fold_in(jax.random.key(group), i)
                # After 5 / beta steps the averages no longer depend on their start.
                found = np.asarray(sampled(key, beta, int(5 / beta)))
                noise[group, i] = np.sqrt(found.var(axis=0, ddof=1).sum())
                bias[group, i] = (found.mean(axis=0) - exact) @ missed / (missed @ missed)
    return {
        "betas": np.array(BETAS),
        "noise": noise / np.linalg.norm(exact),
        "bias": bias[:, 1],
    }


def _records(condition: int) -> np.ndarray:
    """The inner Hessians of all records; their mean has the curvature 1 to `condition`."""
    problem = quadratic(8, dim_y=DIM, condition=float(condition), noise=0.5)
    return np.asarray(problem.inner_data.arrays["A"])


def _sims(options: Options) -> int:
    return options.sims or 10


def _draws(options: Options) -> int:
    return 100 if options.quick else 1000
