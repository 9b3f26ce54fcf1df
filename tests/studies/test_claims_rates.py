"""The claims about rates judge rightly: on numbers whose law is known, both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hobnob as hb
from hobnob.studies.cell import Bench
from hobnob.studies.reproduce.claims import claims, consensus_errors, nonconvex_rate
from hobnob.studies.reproduce.claims._claim import Finding
from hobnob.studies.study import Options

pytestmark = pytest.mark.slow

SEEDS = 10
FULL = Options()


def judged(number: int, found: Mapping[str, Any], options: Options = FULL) -> Finding:
    (claim,) = claims((number,))
    assert set(found) == {cell.name for cell in claim.plan(options)}
    finding = claim.judge(options, found)
    assert finding.words
    assert finding.pictures
    return finding


def verdicts(finding: Finding) -> list[bool]:
    return [criterion.holds for criterion in finding.criteria]


def jitter(shape: Any, size: float = 0.02, seed: int = 0) -> np.ndarray:
    return np.exp(size * np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("options", [FULL, Options(quick=True), Options(steps=1000, sims=3)])
@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_cells_carry_the_number_of_their_claim(number: int, options: Options) -> None:
    (claim,) = claims((number,))
    names = [cell.name for cell in claim.plan(options)]
    assert len(set(names)) == len(names)
    assert all(name.startswith(f"{number:02d}-") for name in names)
    for cell in claim.plan(options):
        few = options.sims or (4 if options.quick else None)
        assert len(cell.options["seeds"]) == (few or (30 if number == 6 else 10))
    assert claim.setting(options)


@pytest.mark.parametrize(
    ("power_t", "power_k", "expected"),
    [(-0.5, -0.5, [True, True]), (-0.3, -0.5, [False, True]), (-0.5, 0.0, [True, False])],
)
def test_nonconvex_rate(power_t: float, power_k: float, expected: list[bool]) -> None:
    (claim,) = claims((4,))
    found = {}
    for i, cell in enumerate(claim.plan(FULL)):
        value = cell.options["steps"] ** power_t * cell.options["agents"] ** power_k
        found[cell.name] = {part: value * jitter(SEEDS, seed=i) for part in ("whole", "late")}
    assert verdicts(judged(4, found)) == expected


def test_the_closed_gradient_is_that_of_the_problem() -> None:
    x = np.array([0.3, -0.8, 1.1])
    exact = hb.exact(nonconvex_rate.alike(2), x)
    np.testing.assert_allclose(exact.y, x, atol=1e-12)
    np.testing.assert_allclose(nonconvex_rate.squared_gradient(x), np.sum(exact.gradient**2))


Law = Callable[[str, float, float], float]


@pytest.mark.parametrize(
    ("law", "in_step", "in_network", "bounded"),
    [
        # As the bound says; then of another power in the step, in the network, and too large.
        (lambda w, step, far: 1.0 * step**2 * far**1.5, True, True, True),
        (lambda w, step, far: 0.01 * step * far**1.5, False, True, True),
        (lambda w, step, far: 0.1 * step**2 * far**3, True, False, True),
        (lambda w, step, far: 1e6 * step**2 * far**1.5, True, True, False),
    ],
)
def test_consensus_errors(law: Law, in_step: bool, in_network: bool, bounded: bool) -> None:
    rho = {"ring": 0.9, "torus": 0.36, "exponential": 0.25, "complete": 0.0}
    found = {}
    for i, (network, r) in enumerate(rho.items()):
        cell = found[f"05-{network}"] = {"rho": np.array(r)}
        for w, own in consensus_errors.OWN_STEP.items():
            errors = [
                law(w, consensus_errors.STEP * (f if swept in (own, "all") else 1), 1 / (1 - r))
                for swept, f in consensus_errors.STAGES
            ]
            cell[w] = np.array(errors) * jitter((SEEDS, len(errors)), seed=i)
    assert verdicts(judged(5, found)) == 6 * [in_step] + 6 * [in_network] + [bounded]


def test_a_staged_step_is_constant_within_a_stage() -> None:
    step = consensus_errors.Staged((0.5, 0.25), 3)
    assert [float(step(t)) for t in range(6)] == 3 * [0.5] + 3 * [0.25]


@pytest.mark.parametrize(
    ("second_term", "stays", "expected"),
    [(1000.0, 1.0, [True, True]), (1000.0, 1.5, [True, False]), (0.0, 1.2, [False, True])],
)
def test_network_fades(second_term: float, stays: float, expected: list[bool]) -> None:
    step = np.arange(64, 64001, 64)
    noise = jitter((SEEDS, step.size), 0.5)  # of the samples, which all networks share
    found = {}
    for i, (network, rho) in enumerate({"ring": 0.9, "torus": 0.36, "complete": 0.0}.items()):
        far = 0.0 if network == "complete" else second_term / (1 - rho)
        factor = stays if network == "ring" else 1.0
        error = factor * (1 / step + far / step**2.0)
        found[f"06-{network}"] = {
            "step": step,
            "squared_error": error * noise * jitter(noise.shape, seed=i + 1),
            "rho": np.array(rho),
        }
    assert verdicts(judged(6, found)) == expected


@pytest.mark.parametrize(
    ("spread", "power", "factor", "expected"),
    [
        (1e-30, -1.0, 1.0, [True, True, True, True, True, True]),
        (1e-10, -1.0, 1.0, [False, True, True, True, True, True]),
        (1e-30, -0.6, 1.0, [True, False, False, False, False, False]),
        (1e-30, -1.0, 1.5, [True, True, True, False, True, False]),
    ],
)
def test_star_variant(spread: float, power: float, factor: float, expected: list[bool]) -> None:
    step = np.arange(16, 16001, 16)
    noise = jitter((SEEDS, step.size), 0.5)
    found = {}
    for i, network in enumerate(("star", "ring", "complete")):
        error = factor * step**power if network == "star" else step**-1.0
        found[f"07-{network}"] = {
            "step": step,
            "squared_error": error * noise * jitter(noise.shape, seed=i + 1),
            "consensus": np.full(noise.shape, spread if network == "star" else 1e-4),
        }
    assert verdicts(judged(7, found)) == expected


def test_a_cell_measures(tmp_path: Path) -> None:
    """The gradient is measured over the run: it starts at that of x = 0 and falls."""
    parts: list[float] = []
    found = nonconvex_rate.measure(
        Bench(tmp_path, parts.append), network="ring", agents=4, steps=1024, seeds=[0, 1]
    )
    assert parts[-1] == 1
    start = nonconvex_rate.squared_gradient(np.zeros(nonconvex_rate.DIM))
    assert found["whole"].shape == (2,)
    assert (found["whole"] < start).all()
    assert (found["late"] < found["whole"]).all()
