"""Claim 5: how far agents are apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hobnob.report.intervals import intervals
from hobnob.report.picture import Picture
from hobnob.studies.cell import Bench, Cell, Found
from hobnob.studies.reproduce.claims._claim import Claim, Criterion, Finding, below
from hobnob.studies.reproduce.claims._rates import DIFFERING, differing, seeds
from hobnob.studies.statistics import Interval, mean_interval, slope_interval
from hobnob.studies.study import Options

AGENTS, TERMS = 16, 4
STEP = 0.004  # well below 1 - sqrt(rho) = 0.05 of the ring, so that beta's damping stays small
FACTORS = (1.0, 0.5, 0.25, 0.125)
SMOOTHNESS, CONVEXITY = 1.0, 0.25  # the L_g and mu_g given to DSBO
OWN_STEP = {"x": "alpha", "y": "gamma", "s": "beta", "h": "beta", "u": "beta", "v": "beta"}
NEAR = 0.2
RECORDS = 60  # of a stage

# A run goes through stages of constant step sizes, one variable's sweep after the other.
# The first stage only reaches the stationary state.
SWEEPS = ("alpha", "gamma", "beta", "all")
STAGES = [("none", 1.0)] * 2 + [(swept, f) for swept in SWEEPS for f in FACTORS[1:]]


class ConsensusErrors(Claim):
    number = 5
    title = "Consensus errors"
    says = (
        "summed over agents, the squared distances to the mean are O(K alpha^2 / (1 - rho)^2) for "
        "x, the same with gamma for y, and with beta for s, h, u and v."
    )

    def setting(self, options: Options) -> str:
        stage = _stage(options)
        return (
            f"{AGENTS} agents with {DIFFERING}; DSBO with constant steps, alpha = beta = gamma = "
            f"{STEP}, {TERMS} terms, L = {SMOOTHNESS:g}, mu = {CONVEXITY}; then one of the "
            f"steps halved three times, then all together. Each setting is kept for {stage:,} "
            f"steps, of which the second half is averaged; {len(seeds(options))} seeds. Errors are "
            f"means over agents, so K is divided out. Networks: {', '.join(_networks(options))}."
        )

    def plan(self, options: Options) -> list[Cell]:
        return [
            Cell(
                _cell(network),
                measure,
                {"network": network, "stage": _stage(options), "seeds": seeds(options)},
            )
            for network in _networks(options)
        ]

    def judge(self, options: Options, found: Mapping[str, Found]) -> Finding:
        networks = _networks(options)
        distance = np.array([1 / (1 - float(found[_cell(n)]["rho"])) for n in networks])
        ring = found[_cell("ring")]
        in_step = {w: _slope(ring[w], own) for w, own in OWN_STEP.items()}
        base = {w: np.stack([found[_cell(n)][w][:, 1] for n in networks], axis=1) for w in OWN_STEP}
        in_network = {w: slope_interval(distance, errors) for w, errors in base.items()}
        criteria = [
            Criterion(
                f"{w} on a ring: slope in {own}, expected 2: within 2 ± {NEAR}",
                in_step[w],
                (2 - NEAR, 2 + NEAR),
            )
            for w, own in OWN_STEP.items()
        ] + [
            Criterion(
                f"{w}: slope in 1 / (1 - rho) over the networks: at most 2",
                in_network[w],
                below(2),
            )
            for w in OWN_STEP
        ]
        # The bound itself, with its constants: the largest ratio of an error to its bound.
        bound = {w: 4 * STEP**2 * m * distance**2 for w, m in added().items()}
        shares = {
            (w, n): mean_interval(base[w][:, i] / bound[w][i])
            for w in OWN_STEP
            for i, n in enumerate(networks)
        }
        where, share = max(shares.items(), key=lambda item: item[1].high)
        criteria.append(
            Criterion(
                "consensus error over 4 step^2 M / (1 - rho)^2, M the mean square of what an agent "
                "adds, the largest over variables and networks: at most 1",
                share,
                below(1),
            )
        )
        together, in_beta = _slope(ring["x"], "all"), _slope(ring["x"], "beta")
        steps = ", ".join(f"{in_step[w]} ({w} in {own})" for w, own in OWN_STEP.items())
        gaps = ", ".join(f"{in_network[w]} ({w})" for w in OWN_STEP)
        words = (
            f"Slopes in the step on a ring: {steps}. Slopes in 1 / (1 - rho), which is "
            f"{distance[-1]:.2g} on a complete graph and {distance[0]:.3g} on a ring: {gaps}. As "
            f"an inequality, with the constants of its proof, no error is more than {share} of "
            f"the bound, which {where[0]} reaches on the {where[1]} network. "
            f"For x the proof bounds by a constant how far the directions s - u q h differ "
            f"between agents. They are made of variables that agree better themselves as beta "
            f"falls or the network mixes: x's error has slope {in_beta} in beta, and {together} "
            f"where all steps fall together."
        )
        return Finding(
            criteria,
            words,
            [_by_step(ring), _by_network(networks, distance, base)],
            list(_rows(networks, found)),
        )


@dataclass(frozen=True)
class Staged:
    """A step size that is constant within each stage."""

    values: tuple[float, ...]
    stage: int

    def __call__(self, step: Any) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(self.values)[step // self.stage]


def measure(bench: Bench, network: str, stage: int, seeds: list[int]) -> Found:
    from hobnob import networks
    from hobnob.algorithms.dsbo import DSBO

    def staged(name: str) -> Staged:
        values = (STEP * (f if swept in (name, "all") else 1.0) for swept, f in STAGES)
        return Staged(tuple(values), stage)

    mesh = networks.get(network)(AGENTS)
    result = bench.solve(
        differing(AGENTS),
        mesh,
        DSBO(
            alpha=staged("alpha"),
            beta=staged("beta"),
            gamma=staged("gamma"),
            terms=TERMS,
            smoothness=SMOOTHNESS,
            strong_convexity=CONVEXITY,
        ),
        steps=stage * len(STAGES),
        seed=seeds,
        record_every=stage // RECORDS,
        metrics=["consensus"],
    )
    # Rows 1 .. RECORDS end the first stage, and so on; row 0 is the start.
    by_stage = {
        w: result.history[f"consensus_{w}"][:, 1:].reshape(len(seeds), len(STAGES), RECORDS)
        for w in OWN_STEP
    }
    late = {w: values[..., RECORDS // 2 :].mean(axis=-1) for w, values in by_stage.items()}
    return late | {"rho": np.array(mesh.rho)}


def _stage(options: Options) -> int:
    """Steps of a stage, a multiple of the recording interval."""
    steps = options.steps / len(STAGES) if options.steps else (600 if options.quick else 3000)
    return RECORDS * max(1, round(steps / RECORDS))


def _places(swept: str) -> list[int]:
    """The stages of a sweep, the first of which all sweeps share."""
    return [1, *(i for i, (name, _) in enumerate(STAGES) if name == swept)]


def _slope(errors: np.ndarray, swept: str) -> Interval:
    return slope_interval(FACTORS, errors[:, _places(swept)])


def _by_step(ring: Found) -> Picture:
    return intervals(
        {
            f"{w}, in {own}": {
                STEP * f: mean_interval(ring[w][:, i])
                for f, i in zip(FACTORS, _places(own), strict=True)
            }
            for w, own in OWN_STEP.items()
        },
        "step size",
        "consensus error",
        log_x=True,
        log_y=True,
        slope=2,
        name="consensus-by-step",
        title="Consensus errors on a ring against the step size",
        caption="Each variable against its own step size, the other steps kept.",
    )


def _by_network(
    networks: tuple[str, ...], distance: np.ndarray, base: Mapping[str, np.ndarray]
) -> Picture:
    """Errors divided by the form of the bound: level if they are proportional to it."""
    return intervals(
        {
            w: {
                networks[i]: mean_interval(errors[:, i] / (STEP * distance[i]) ** 2)
                for i in reversed(range(len(networks)))
            }
            for w, errors in base.items()
        },
        "network",
        "error · (1 − rho)² / step²",
        log_y=True,
        name="consensus-by-network",
        title="Consensus errors beside step² / (1 − rho)²",
        caption=f"All steps {STEP}. What is proportional to the bound is level. 1 / (1 − rho) is "
        + ", ".join(f"{d:.3g} ({n})" for n, d in zip(networks, distance, strict=True))
        + ".",
    )


def added() -> dict[str, float]:
    """The mean square of an agent's increment of each variable, at the solution.

    For x it is the paper's bound on s - u q h, four times C_f^2 (1 + (L_g / mu_g)^2).
    """
    problem = differing(AGENTS)
    outer, inner = problem.outer_data.arrays, problem.inner_data.arrays
    x = problem.solution
    y = problem.closed_form(x).y
    gradients = outer["Q"] @ np.concatenate([x, y]) - outer["q"]

    def mean_square(records: np.ndarray) -> float:
        return float(np.sum(records**2) / len(records))

    return {
        "x": 4 * mean_square(gradients) * (1 + (SMOOTHNESS / CONVEXITY) ** 2),
        "y": mean_square(inner["A"] @ y - inner["B"] @ x - inner["c"]),
        "s": mean_square(gradients[:, : x.size]),
        "h": mean_square(gradients[:, x.size :]),
        "u": mean_square(inner["B"]),
        "v": TERMS * mean_square(inner["A"]),
    }


def _rows(networks: tuple[str, ...], found: Mapping[str, Found]) -> Iterator[dict[str, object]]:
    for network in networks:
        for w in OWN_STEP:
            for (swept, factor), error in zip(STAGES, found[_cell(network)][w].T, strict=True):
                yield {
                    "network": network,
                    "variable": w,
                    "swept": swept,
                    "factor": factor,
                    "consensus error": float(error.mean()),
                }


def _networks(options: Options) -> tuple[str, ...]:
    return ("ring", "torus", *(() if options.quick else ("exponential",)), "complete")


def _cell(network: str) -> str:
    return f"05-{network}"
