"""Claim 4: the rate where F is not convex."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from hobnob.core.problem import Problem
from hobnob.metrics.view import View
from hobnob.report.intervals import intervals
from hobnob.report.picture import Picture
from hobnob.studies.cell import Bench, Cell, Found
from hobnob.studies.reproduce.claims._claim import Claim, Criterion, Finding, below
from hobnob.studies.reproduce.claims._rates import ladder, longest, seeds
from hobnob.studies.statistics import Interval, mean_interval, slope_interval
from hobnob.studies.study import Options

DIM, RECORDS, NOISE = 3, 60, 0.3
OUTER_SCALE, TERMS = 0.5, 16
STEEP = -0.4  # -1/2 with some room for what is left of the second term


class NonconvexRate(Claim):
    number = 4
    title = "Nonconvex rate"
    says = (
        "with alpha = C0 sqrt(K/T) and beta = gamma = sqrt(K/T), the squared gradient at the mean "
        "iterate, averaged over a run, is O(1/sqrt(KT)) + O(K / (T (1 - rho)^2))."
    )

    def setting(self, options: Options) -> str:
        steps, agents, middle = _sizes(options)
        return (
            f"f is the sum over {DIM} coordinates of r^2 / (1 + r^2), r = y - target, with two "
            f"thirds of the targets around 1 and one third around -1; g = y'Ay/2 - y'(Bx + c) with "
            f"A = B = I and c = 0 in the mean; all records, {RECORDS} of each kind, scatter by "
            f"{NOISE}. So y*(x) = x, and F is concave at the start, x = 0, where its largest "
            f"curvature is {_curvatures().max():.2f}. Every agent holds the same records, so F is "
            f"the same for all K, and draws single ones on its own. DSBO on rings with C0 = "
            f"{OUTER_SCALE}, {TERMS} terms, L = 2, mu = 0.5, {len(seeds(options))} seeds; T = "
            f"{', '.join(map(str, steps))} at K = {middle}; K = {', '.join(map(str, agents))} at "
            f"T = {steps[-1]}."
        )

    def plan(self, options: Options) -> list[Cell]:
        runs = _runs(options)
        if not options.quick:
            runs.append(("complete", max(_sizes(options)[1]), _sizes(options)[0][-1]))
        return [
            Cell(
                _cell(*run),
                measure,
                dict(zip(("network", "agents", "steps"), run, strict=True))
                | {"seeds": seeds(options)},
                work=run[1] * run[2],
            )
            for run in runs
        ]

    def judge(self, options: Options, found: Mapping[str, Found]) -> Finding:
        steps, agents, middle = _sizes(options)
        along_t = [found[_cell("ring", middle, t)] for t in steps]
        along_k = [found[_cell("ring", k, steps[-1])] for k in agents]

        def slope(x: list[int], cells: list[Found], part: str) -> Interval:
            return slope_interval(x, np.stack([cell[part] for cell in cells], axis=1))

        in_t, in_k = slope(steps, along_t, "whole"), slope(agents, along_k, "whole")
        late_t, late_k = slope(steps, along_t, "late"), slope(agents, along_k, "late")
        words = (
            f"The mean squared gradient falls like T to the power {in_t} and like K to the power "
            f"{in_k}; 1/sqrt(KT) has -1/2 in both. In the second halves of the runs, where the "
            f"start is forgotten and noise alone keeps the gradient from 0, the powers are "
            f"{late_t} and {late_k}."
        )
        well_connected = found.get(_cell("complete", agents[-1], steps[-1]))
        if well_connected is not None:
            quotient = mean_interval(along_k[-1]["whole"] / well_connected["whole"])
            words += (
                f" The network is in the second term alone: at K = {agents[-1]} a ring's mean "
                f"squared gradient is {quotient} times that of a complete graph, from the same "
                f"samples."
            )
        return Finding(
            [
                Criterion(f"slope in T, expected -1/2: below {STEEP}", in_t, below(STEEP)),
                Criterion(f"slope in K, expected -1/2: below {STEEP}", in_k, below(STEEP)),
            ],
            words,
            [
                _picture("T", steps, along_t, f"K = {middle}"),
                _picture("K", agents, along_k, f"T = {steps[-1]}"),
            ],
            [
                {
                    "run": name,
                    "seed": seed,
                    "mean squared gradient": float(value),
                    "second half": float(late),
                }
                for name in [_cell(*run) for run in _runs(options)]
                for seed, (value, late) in enumerate(
                    zip(found[name]["whole"], found[name]["late"], strict=True)
                )
            ],
        )


def measure(bench: Bench, network: str, agents: int, steps: int, seeds: list[int]) -> Found:
    from hobnob import networks
    from hobnob.algorithms.dsbo import DSBO
    from hobnob.core.schedules import nonconvex

    def gradient(view: View) -> float:
        return squared_gradient(view.flat_x)

    result = bench.solve(
        alike(agents),
        networks.get(network)(agents),
        DSBO(
            alpha=nonconvex(OUTER_SCALE),
            beta=nonconvex(),
            gamma=nonconvex(),
            terms=TERMS,
            smoothness=2.0,
            strong_convexity=0.5,
        ),
        steps=steps,
        seed=seeds,
        # Often enough for the first steps, where the gradient is largest.
        record_every=max(1, steps // 2000),
        metrics=["outer_loss", gradient],
    )
    after_start = result.history["gradient"][:, 1:]
    late = after_start[:, after_start.shape[1] // 2 :]
    return {"whole": after_start.mean(axis=1), "late": late.mean(axis=1)}


def alike(agents: int) -> Problem:
    """A nonconvex problem whose agents hold the same records."""
    import jax.numpy as jnp

    targets, inner_records = _records()

    def outer(x: Any, y: Any, batch: Any) -> Any:
        squares = (y - batch) ** 2
        return jnp.mean(jnp.sum(squares / (1 + squares), axis=1))

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(batch["A"] @ y @ y / 2 - batch["B"] @ x @ y - batch["c"] @ y)

    start = np.zeros(DIM)
    return Problem(outer, inner, start, start, [targets] * agents, [inner_records] * agents)


def squared_gradient(x: np.ndarray) -> float:
    """|grad F(x)|^2 in closed form, since y*(x) = x. It saves the exact solver."""
    residuals = x - _records()[0]
    gradient = (2 * residuals / (1 + residuals**2) ** 2).mean(axis=0)
    return float(gradient @ gradient)


@cache
def _records() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)

    def scatter(*shape: int) -> np.ndarray:
        drawn = NOISE * rng.normal(size=(RECORDS, *shape))
        return drawn - drawn.mean(axis=0)

    turns = scatter(DIM, DIM)
    inner = {
        "A": np.eye(DIM) + (turns + turns.swapaxes(1, 2)) / np.sqrt(2),
        "B": np.eye(DIM) + scatter(DIM, DIM),
        "c": scatter(DIM),
    }
    centres = np.where(np.arange(RECORDS) % 3 == 0, -1.0, 1.0)
    return centres[:, None] + scatter(DIM), inner


def _curvatures() -> np.ndarray:
    """Second derivatives of F at x = 0, by coordinate: F is a sum over coordinates."""
    squares = _records()[0] ** 2
    return ((2 - 6 * squares) / (1 + squares) ** 3).mean(axis=0)


def _sizes(options: Options) -> tuple[list[int], list[int], int]:
    """The lengths T, the numbers of agents K, and the K at which T is varied."""
    if options.quick:
        steps = longest(options, 0, 8000)
        return [steps // 8, steps], [1, 4], 4
    return ladder(longest(options, 32000, 0)), [1, 2, 4, 8, 16], 8


def _runs(options: Options) -> list[tuple[str, int, int]]:
    steps, agents, middle = _sizes(options)
    along_t = [("ring", middle, t) for t in steps]
    return along_t + [("ring", k, steps[-1]) for k in agents if k != middle]


def _cell(network: str, agents: int, steps: int) -> str:
    return f"04-{network}-{agents}-{steps}"


def _picture(axis: str, places: list[int], cells: list[Found], label: str) -> Picture:
    return intervals(
        {
            f"whole run, {label}": {
                p: mean_interval(c["whole"]) for p, c in zip(places, cells, strict=True)
            },
            "second half": {
                p: mean_interval(c["late"]) for p, c in zip(places, cells, strict=True)
            },
        },
        axis,
        "mean squared gradient",
        log_x=True,
        log_y=True,
        slope=-0.5,
        name=f"nonconvex-rate-in-{axis}",
        title=f"The mean squared gradient against {axis}",
        caption="Bars: 95 % intervals of the mean over seeds.",
    )
