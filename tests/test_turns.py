"""Steps on the device: as many as requested, independent of chunks, until one fails."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.run import turns
from tests.simulated import simulated

LARGE_FROM = {"one step a turn": 2**62, "two steps a turn": 0}


@pytest.fixture(params=LARGE_FROM.values(), ids=list(LARGE_FROM))
def turn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_LARGE_STATE", request.param)


class Count(NamedTuple):
    x: jax.Array
    y: jax.Array
    seen: jax.Array


def counted(start: int, stop: int, bad: int = -1) -> tuple[int, Count, bool]:
    """A run whose step `bad` makes y infinite; `seen` lists every step made."""

    def advance(state: Count, step: Any) -> Count:
        y = jnp.where(step == bad, jnp.inf, state.y)
        return Count(state.x + 1, y, state.seen.at[step].set(state.x[0] + 1))

    first = Count(jnp.zeros(1), jnp.zeros(2), jnp.zeros(12))
    act = jax.jit(lambda start, stop: turns.run_until(stop, advance, start, first))
    step, state, finite = act(np.int32(start), np.int32(stop))
    return int(step), jax.tree.map(np.asarray, state), bool(finite)


@pytest.mark.usefixtures("turn")
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 6])
def test_every_step_is_made_once_and_in_order(start: int, count: int) -> None:
    step, state, finite = counted(start, start + count)
    assert (step, finite) == (start + count, True)
    expected = np.zeros(12)
    expected[start : start + count] = np.arange(1, count + 1)
    np.testing.assert_array_equal(state.seen, expected)


@pytest.mark.usefixtures("turn")
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("bad", [2, 3])
def test_the_step_that_goes_wrong_is_the_last(start: int, bad: int) -> None:
    step, state, finite = counted(start, 9, bad)
    assert (step, finite) == (bad + 1, False)
    assert state.x[0] == bad + 1 - start


@pytest.mark.parametrize(
    ("numbers", "finite"),
    [
        ([1.0, 3e38, 3e38, 0.0], True),  # whose sum is infinite in float32
        ([1.0, np.inf, 1.0, 1.0], False),
        ([-np.inf, np.inf, 0.0, 0.0], False),
        ([0.0, 0.0, 0.0, np.nan], False),
        ([1, 2, 3, 4], True),
        ([True, False, True, True], True),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_numbers_that_are_not_finite_are_seen(numbers: list[Any], finite: bool, dtype: Any) -> None:
    given = np.array(numbers)
    given = given.astype(dtype) if given.dtype == np.float64 else given
    with jax.enable_x64(dtype == np.float64):
        found = jax.jit(turns.all_finite)({"small": jnp.ones(()), "large": jnp.asarray(given)})
    assert bool(found) == finite


ALGORITHMS = {
    "fast": hb.DSBO(alpha=0.1, beta=0.1, gamma=0.1, terms=5, smoothness=2, strong_convexity=0.1),
    "plain": hb.DSOBA(alpha=0.1, beta=0.1, gamma=0.1, theta=0.2),
}


def after(algorithm: hb.Algorithm, seed: Any, *stops: int) -> list[np.ndarray]:
    problem = hb.problems.get("quadratic")(agents=5)
    with problem.precision():
        run = simulated(problem, hb.ring(5), algorithm.bind(5, 20), seed)
        state = run.initial_state()
        for start, stop in zip((0, *stops), stops, strict=False):
            state = run.advance(state, start, stop).state
        return [np.asarray(leaf) for leaf in jax.tree.leaves(run.gather_unpacked(state))]


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("seed", [0, [0, 1]], ids=["one seed", "two seeds"])
def test_it_does_not_matter_where_a_chunk_begins(
    algorithm: hb.Algorithm, seed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = after(algorithm, seed, 20)
    monkeypatch.setattr(turns, "_LARGE_STATE", 0)
    two, in_chunks = after(algorithm, seed, 20), after(algorithm, seed, 3, 4, 11, 20)
    for a, b, c in zip(one, two, in_chunks, strict=True):
        np.testing.assert_array_equal(b, c)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
