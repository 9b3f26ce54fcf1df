"""Data of agents: they draw their own rows, uniformly and repeatably, and average exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hobnob as hb
from hobnob.core.data import Place, Records, Simulator, in_precision
from hobnob.ground import keys

EXAMPLES = settings(derandomize=True, max_examples=15, deadline=None)
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=4)
SEEDS = st.integers(0, 2**32 - 1)


def shards(lengths: list[int], seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Records that contain their agent's number."""
    rng = np.random.default_rng(seed)
    return [
        {"row": rng.normal(size=(n, 2)), "owner": np.full(n, agent, np.int32)}
        for agent, n in enumerate(lengths)
    ]


def own(source: Any, agent: int) -> Place:
    """One agent's part of the place, as runtimes pass it on."""
    place, axes = source.place(), source.per_agent
    arrays = jax.tree.map(lambda a: a[agent], place.arrays) if axes.arrays == 0 else place.arrays
    return Place(arrays, place.start[agent], place.length[agent])


def drawn(
    records: Any, seed: int, agent: int, step: int, slot: str, count: int | None = None
) -> np.ndarray:
    key = keys.of_slot(keys.of_agent(np.uint32(seed), agent), step, slot)
    return np.asarray(records.draw(key, own(records, agent), count))


def loss(x: Any, y: Any, batch: Any) -> Any:
    return jnp.mean(jnp.cos(batch["row"] @ y) * x[0] + batch["row"][:, 0] ** 2)


def loss_by_hand(x: np.ndarray, y: np.ndarray, shard: dict[str, np.ndarray]) -> float:
    return float(np.mean(np.cos(shard["row"] @ y) * x[0] + shard["row"][:, 0] ** 2))


# --- records -----------------------------------------------------------------------------------


@EXAMPLES
@given(LENGTHS, st.sampled_from([1, 4]), SEEDS, st.sampled_from([None, 3]))
def test_draws_come_from_the_own_shard(
    lengths: list[int], batch_size: int, seed: int, count: int | None
) -> None:
    records = Records(shards(lengths), batch_size)
    for agent, length in enumerate(lengths):
        rows = drawn(records, seed, agent, 3, "xi", count)
        assert rows.shape == ((batch_size,) if count is None else (count, batch_size))
        assert rows.dtype == np.int32
        first = sum(lengths[:agent])
        assert ((first <= rows) & (rows < first + length)).all()
        assert (records.arrays["owner"][rows] == agent).all()


@EXAMPLES
@given(SEEDS, st.integers(0, 3), st.integers(0, 10**6))
def test_the_same_key_draws_the_same_rows(seed: int, agent: int, step: int) -> None:
    records = Records(shards([1000] * 4), 8)
    base = drawn(records, seed, agent, step, "xi")
    assert (drawn(records, seed, agent, step, "xi") == base).all()
    # 8 of 1000 rows, so that two independent draws agree with probability 1e-24.
    for other in (
        drawn(records, seed ^ 1, agent, step, "xi"),
        drawn(records, seed, agent, step + 1, "xi"),
        drawn(records, seed, agent, step, "zeta"),
    ):
        assert (other != base).any()
    neighbour = (agent + 1) % 4
    theirs = drawn(records, seed, neighbour, step, "xi") - 1000 * neighbour
    assert (theirs != base - 1000 * agent).any()


@pytest.mark.parametrize(
    "pair",
    [
        lambda r, t: (drawn(r, 0, 0, t, "xi", 40), drawn(r, 0, 0, t, "zeta", 40)),
        lambda r, t: (drawn(r, 0, 0, t, "xi", 40), drawn(r, 0, 0, t + 1000, "xi", 40)),
        lambda r, t: (drawn(r, 0, 0, t, "xi", 40), drawn(r, 0, 1, t, "xi", 40) - 5),
        lambda r, t: (drawn(r, 0, 0, t, "xi", 40), drawn(r, 1, 0, t, "xi", 40)),
        lambda r, t: (drawn(r, 0, 0, t, "xi", 80)[:40], drawn(r, 0, 0, t, "xi", 80)[40:]),
    ],
    ids=["slots", "steps", "agents", "seeds", "batches of one draw"],
)
def test_other_draws_are_independent(pair: Callable[..., Any]) -> None:
    """A chi-square test of independence on 5 x 5 tables, each at 99.9 % confidence."""
    records = Records(shards([5, 5]), 1)
    pairs = [pair(records, step) for step in range(50)]
    left, right = (np.ravel(part) for part in zip(*pairs, strict=True))
    table = np.zeros((5, 5))
    np.add.at(table, (left, right), 1)
    assert table.sum() == 2000
    found: Any = scipy.stats.chi2_contingency(table)
    assert found.pvalue > 1e-3


def test_rows_of_short_and_long_shards_are_drawn_evenly() -> None:
    """Chi-square tests of uniform frequencies, each at 99.9 % confidence.

    90 does not divide 2^32, and the shards are adjacent in memory: neither may matter.
    """
    records = Records(shards([3, 90]), 16)
    for agent, length in enumerate([3, 90]):
        rows = drawn(records, 7, agent, 0, "xi", 2000).ravel() - records.starts[agent]
        seen = np.bincount(rows, minlength=length)
        assert seen.size == length
        assert scipy.stats.chisquare(seen).pvalue > 1e-3


def test_batches_are_unbiased() -> None:
    """The mean of 4000 batch losses is within 3.3 standard errors of the shard's: 99.9 %."""
    data = shards([3, 90])
    records = Records(data, 4)
    x, y = np.array([0.7], np.float32), np.array([0.3, -1.1], np.float32)
    for agent in range(2):
        place = own(records, agent)
        handles = drawn(records, 1, agent, 0, "xi", 4000)
        each = jax.vmap(lambda h, p=place: records.evaluate(loss, x, y, p, h))(handles)
        error = np.mean(each) - loss_by_hand(x, y, data[agent])
        assert abs(error) < 3.3 * np.std(each) / 4000**0.5


@pytest.mark.parametrize("agent", [0, 1])
def test_both_precisions_draw_the_same_rows(agent: int) -> None:
    narrow = in_precision(Records(shards([3, 90]), 8), np.float32)
    wide = in_precision(Records(shards([3, 90]), 8), np.float64)
    assert narrow.arrays["row"].dtype == np.float32
    assert wide.arrays["row"].dtype == np.float64
    assert narrow.arrays["owner"].dtype == wide.arrays["owner"].dtype == np.int32
    few = drawn(narrow, 5, agent, 2, "xi", 10)
    with jax.enable_x64(True):
        many = drawn(wide, 5, agent, 2, "xi", 10)
    assert few.dtype == many.dtype == np.int32
    assert (few == many).all()


@settings(EXAMPLES, max_examples=6)
@given(LENGTHS, SEEDS)
@example([3, 3, 3], 0)
@example([1, 6], 0)
def test_whole_shards_are_plain_means(lengths: list[int], seed: int) -> None:
    data = shards(lengths, seed)
    whole, batched = Records(data, None), Records(data, 2)
    x, y = np.array([0.7]), np.array([0.3, -1.1])

    @jax.jit
    def measured(x: jax.Array, y: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        everything = jnp.zeros((), jnp.int32)
        agents = range(len(lengths))
        pooled = [source.pooled(loss, x, y, source.place()) for source in (whole, batched)]
        shares = [whole.evaluate(loss, x, y, own(whole, agent), everything) for agent in agents]
        return jnp.stack(shares), pooled

    with jax.enable_x64(True):
        shares, pooled = measured(x, y)
    by_hand = [loss_by_hand(x, y, shard) for shard in data]
    np.testing.assert_allclose(shares, by_hand, rtol=1e-12)
    # The mean of means: an agent counts once, however many records it has.
    np.testing.assert_allclose(pooled, [np.mean(by_hand)] * 2, rtol=1e-12)


def test_the_gradient_of_a_ragged_shard_is_its_own() -> None:
    """Rows that only pad the longest shard must not leak into a derivative."""
    data = shards([2, 7])
    records = Records(data, None)
    x = np.array([0.7])
    with jax.enable_x64(True):
        gradient = jax.grad(
            lambda y: records.evaluate(loss, x, y, own(records, 0), jnp.zeros((), jnp.int32))
        )(jnp.array([0.3, -1.1]))
        expected = jax.grad(lambda y: loss(x, y, data[0]))(jnp.array([0.3, -1.1]))
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


def test_what_a_draw_uses() -> None:
    data = shards([3, 90])
    assert Records(data, 5).samples_per_draw().tolist() == [5, 5]
    assert Records(data, None).samples_per_draw().tolist() == [3, 90]


@pytest.mark.parametrize("agent", [0, 1, 2])
@pytest.mark.parametrize("size", [1, 6, None])
def test_the_records_of_a_batch_one_by_one(agent: int, size: int | None) -> None:
    data = shards([3, 1, 9])
    records, at = Records(data, size), (np.array([0.7]), np.array([0.3, -0.4]))
    with jax.enable_x64(True):
        place = own(records, agent)
        handle = jnp.asarray(drawn(records, 5, agent, 0, "xi"))
        numbers, singles = (np.asarray(part) for part in records.singles(place, handle))
        whole = float(records.evaluate(loss, *at, place, handle))
        each = [float(records.evaluate(loss, *at, place, jnp.asarray(one))) for one in singles]
    assert np.mean(each) == pytest.approx(whole, rel=1e-12)
    if size is None:  # always the same batch, so it counts as one record
        assert (records.records, numbers.tolist()) == (1, [0])
        return
    assert records.records == 9
    rows = [{name: a[[i]] for name, a in data[agent].items()} for i in numbers]
    by_hand = [loss_by_hand(*at, row) for row in rows]
    np.testing.assert_allclose(each, by_hand, rtol=1e-12)


# --- simulators --------------------------------------------------------------------------------


def simulator(**options: Any) -> Simulator:
    """Agent k draws 2 samples at a time from a normal distribution around k."""

    def draw(key: jax.Array, mean: jax.Array) -> jax.Array:
        return mean + jax.random.normal(key, (2,), mean.dtype)

    def expected(x: Any, y: Any, mean: jax.Array) -> jax.Array:
        return x[0] * (y[0] * mean + mean**2 + 1)

    means = [np.asarray(float(k)) for k in range(3)]
    return Simulator(means, draw, expected, samples=2, **options)


def moment(x: Any, y: Any, batch: Any) -> Any:
    return x[0] * jnp.mean(y[0] * batch + batch**2)


X, Y = np.array([0.5]), np.array([2.0])


def key_of(seed: int, agent: int, step: int, slot: str) -> jax.Array:
    return keys.of_slot(keys.of_agent(np.uint32(seed), agent), step, slot)


def test_a_simulator_draws_anew_from_every_key() -> None:
    source = simulator()
    values = []
    with jax.enable_x64(True):
        for seed, agent, step, slot in [
            (0, 1, 0, "xi"),
            (1, 1, 0, "xi"),
            (0, 1, 1, "xi"),
            (0, 1, 0, "zeta"),
        ]:
            place = own(source, agent)
            handle = source.draw(key_of(seed, agent, step, slot), place)
            once, again = (float(source.evaluate(moment, X, Y, place, handle)) for _ in range(2))
            assert once == again
            values.append(once)
        several = source.draw(key_of(0, 1, 0, "xi"), own(source, 1), 4)
        values += [float(source.evaluate(moment, X, Y, own(source, 1), h)) for h in several]
    assert len(set(values)) == 8


def test_a_simulator_is_unbiased() -> None:
    """The mean of 4000 draws is within 3.3 standard errors of `expected`: 99.9 %."""
    source = simulator()
    expected = source.expected
    assert expected is not None
    with jax.enable_x64(True):
        for agent in range(3):
            place = own(source, agent)
            handles = source.draw(key_of(3, agent, 0, "xi"), place, 4000)
            each = jax.vmap(lambda h, p=place: source.evaluate(moment, X, Y, p, h))(handles)
            error = np.mean(each) - expected(X, Y, place.arrays)
            assert abs(error) < 3.3 * np.std(each) / 4000**0.5


def test_a_simulator_without_noise_takes_the_expectation() -> None:
    source = simulator(noiseless=True)
    with jax.enable_x64(True):
        found = []
        for seed in (0, 1):
            handle = source.draw(key_of(seed, 2, 0, "xi"), own(source, 2))
            found.append(float(source.evaluate(moment, X, Y, own(source, 2), handle)))
        assert found == [0.5 * (2 * 2 + 4 + 1)] * 2
        by_hand = np.mean([0.5 * (2 * k + k**2 + 1) for k in range(3)])
        assert source.pooled(moment, X, Y, source.place()) == pytest.approx(by_hand, rel=1e-14)
    assert source.samples_per_draw().tolist() == [2, 2, 2]


def test_a_simulator_has_no_records_to_number() -> None:
    source = simulator()
    assert source.records == 0
    with pytest.raises(hb.ProblemError, match="simulator: a simulator's samples have no numbers"):
        source.singles(own(source, 0), key_of(0, 0, 0, "xi"))


def test_a_simulator_that_does_not_know_its_mean() -> None:
    source = Simulator([np.zeros(1)] * 2, lambda key, p: p)
    with pytest.raises(hb.ProblemError, match=r"hb.Simulator\(\.\.\., expected=\.\.\.\)"):
        source.pooled(moment, X, Y, source.place())
