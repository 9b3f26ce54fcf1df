"""Normalised STORM where noise has no variance: Student's t with 1.5 degrees of freedom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import hobnob as hb
from hobnob.core.algorithm import Scale
from hobnob.problems.quadratic import _inner, _outer, quadratic
from tests.reference.option import Option

pytestmark = pytest.mark.slow

STEADY = quadratic(8, 3, 4, condition=2.0, seed=1)
RING = hb.ring(8)
PLAIN: Any = hb.STORM.suggest(Scale(2.0, 1.0))
NORMALISED: Any = replace(PLAIN, alpha=0.02, beta=0.02, gamma=0.02, directions="normalised")


def student_t(key: Any, freedom: float, shape: Any, dtype: Any) -> Any:
    """Bailey's polar method, 1994: exact, and without the loops of jax.random.t."""
    smallest = jnp.finfo(dtype).tiny  # not 0
    u, v = jax.random.uniform(key, (2, *shape), dtype, smallest)
    return jnp.sqrt(freedom * (u ** (-2 / freedom) - 1)) * jnp.cos(2 * jnp.pi * v)


def heavy(source: Any, name: str, loss: Callable[..., Any]) -> hb.Simulator:
    """The agents' own matrices, with noise on `name`, the linear term of their loss."""

    def draw(key: Any, means: Any) -> Any:
        mean = means[name]
        return {**means, name: mean + student_t(key, 1.5, mean.shape, mean.dtype)}

    shards = [{n: array[k : k + 1] for n, array in source.arrays.items()} for k in range(8)]
    return hb.Simulator(shards, draw, loss)


@cache
def problem() -> hb.Problem:
    outer = heavy(STEADY.outer_data, "q", _outer)
    inner = heavy(STEADY.inner_data, "c", _inner)
    return hb.Problem(_outer, _inner, np.zeros(3), np.zeros(4), outer, inner)


def test_the_noise_is_that_of_a_student_t() -> None:
    with jax.enable_x64(True):
        drawn = student_t(jax.random.key(0), 1.5, (20_000,), jnp.float64)
    assert scipy.stats.kstest(np.asarray(drawn), scipy.stats.t(1.5).cdf).pvalue > 0.01


def test_normalised_directions_come_nearer() -> None:
    """The rule, fixed before the run: both methods try a quarter, an eighth and a sixteenth of the
    step sizes above, and keep what has the lowest median of |x - x*| over 30 seeds. Over 30 others,
    the normalised one must have at most three quarters of the other's median, and half its worst.
    """
    median, worst = {}, {}
    for name, first in (("plain", PLAIN), ("normalised", NORMALISED)):
        runtime, errors = hb.Simulate(retunable=True), []
        for factor in (1 / 4, 1 / 8, 1 / 16):
            sizes = {step: factor * getattr(first, step) for step in ("alpha", "beta", "gamma")}
            result = hb.solve(
                problem(),
                RING,
                replace(first, **sizes),
                steps=2000,
                seed=range(3000, 3060),
                metrics=None,
                runtime=runtime,
            )
            errors.append(np.linalg.norm(result.x - STEADY.solution, axis=1))
        measured = min(errors, key=lambda error: float(np.median(error[:30])))[30:]
        median[name], worst[name] = np.median(measured), measured.max()
    assert median["normalised"] <= 0.75 * median["plain"]
    assert worst["normalised"] <= 0.5 * worst["plain"]


def test_no_draw_moves_x_farther_than_its_step_size() -> None:
    """The network's mean. A plain step is as long as the noise is large."""

    def longest_move(algorithm: Any) -> float:
        seen = []
        hb.solve(
            problem(),
            RING,
            algorithm,
            steps=2000,
            record_every=1,
            metrics={"x": lambda view: seen.append(view.flat_x) or 0.0},
        )
        return float(np.linalg.norm(np.diff(seen, axis=0), axis=1).max())

    assert longest_move(NORMALISED) <= NORMALISED.alpha * (1 + 1e-9)
    assert longest_move(PLAIN) > 10 * NORMALISED.alpha


def test_without_noise_agents_end_about_a_step_apart() -> None:
    """A step size is a length: with a tenth of it, all distances are a tenth."""
    for length in (0.02, 0.002):
        algorithm = replace(NORMALISED, alpha=length, beta=length, gamma=length)
        steps = int(60 / length)
        result = hb.solve(STEADY, RING, algorithm, steps=steps, metrics=["consensus"])
        for variable in "xyz":
            apart = np.sqrt(result.history[f"consensus_{variable}"][-1])
            assert length / 2 < apart < 3 * length, variable
        assert np.linalg.norm(result.x - STEADY.solution) < length


@pytest.mark.parametrize("largest", [0.0, 1e-300, 1e30, 1e300])
def test_directions_of_any_size_get_length_1(largest: float) -> None:
    """Without overflow of their squares; what is 0 stays 0."""
    from hobnob.algorithms.storm import _of_length_1

    for dtype in (jnp.float64, jnp.float32):
        with jax.enable_x64(True):
            u = largest * jnp.array([0.6, -0.8], dtype)
            if not np.isfinite(u).all() or (largest and not np.all(u)):
                continue  # beyond the range of float32
            np.testing.assert_allclose(
                _of_length_1(u), np.array([0.6, -0.8]) * (largest > 0), rtol=1e-6
            )


def test_normalised_steps_stay_within_bounds() -> None:
    """With steps that reach the bounds, which those of the conformance suite don't."""
    lengths = {"alpha": 0.1, "beta": 0.1, "gamma": 0.1}
    long = Option("long", {"directions": "normalised", **lengths}, exact=False).of(hb.STORM)
    assert hb.testing.check_algorithm(long, only="bounds") == ["bounds"]


def test_other_directions_are_refused() -> None:
    with pytest.raises(hb.SettingError, match=r'directions = .* must be "plain" or "normalised"'):
        replace(PLAIN, directions="clipped")
