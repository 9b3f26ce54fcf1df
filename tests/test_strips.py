"""A run with its long vectors in strips is the same run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import hobnob as hb
from hobnob.algorithm import Scale, choice
from hobnob.links import Drop, Links
from hobnob.runtimes import strips, turns
from hobnob.runtimes.simulate import Simulation
from hobnob.runtimes.strips import Strips, fold_for

AGENTS, LONG = 6, 28
IRREGULAR = hb.Network(nx.Graph([(0, 1), (0, 2), (0, 3), (1, 2), (3, 4), (4, 5)]))
DSOBA = hb.DSOBA(alpha=0.02, beta=0.1, gamma=0.1, theta=0.3)
# What they hold has other lengths, matrices or several vectors as one; or they have loops.
OTHERS = {"dsbo", "fedsbo", "penalty", "storm", "dbsa", "fednest", "madsbo", "madsbo_gt", "mdbo"}


@pytest.fixture(autouse=True)
def _short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strips of four numbers, for states of any size."""
    monkeypatch.setattr(turns, "_LARGE_STATE", 0)
    monkeypatch.setattr(strips, "_LONG", 0)
    monkeypatch.setattr(strips, "_STRIP", 4 * 8 * AGENTS)
    monkeypatch.setattr(strips, "_SHORTEST", 2)


def problem_of(
    dim_x: int = 3, batch_size: int | None = 2, bounds: Any = None, dtype: Any = np.float64
) -> hb.Problem:
    """Every number of y has targets of its own; x has weights for it, or one for several."""
    rng = np.random.default_rng(1)
    shares = np.eye(dim_x)[:, np.arange(LONG) % dim_x]

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((jnp.tanh(y) - batch) ** 2)

    def inner(x: Any, y: Any, batch: Any) -> Any:
        weights = jnp.exp(x) if dim_x == LONG else jnp.exp(x) @ jnp.asarray(shares, dtype)
        return jnp.mean(jnp.sum((y - batch) ** 2, axis=1)) / 2 + weights @ y**2 / 2

    shards = [rng.normal(size=(n, LONG)).astype(dtype) for n in (5, 2, 9, 3, 4, 7)]
    x0, y0 = np.zeros(dim_x, dtype), np.zeros(LONG, dtype)
    return hb.Problem(outer, inner, x0, y0, shards, shards[::-1], batch_size, x_bounds=bounds)


def ends(
    problem: hb.Problem,
    network: hb.Network,
    algorithm: hb.Algorithm,
    seed: Any = 0,
    links: Any = None,
) -> Any:
    """All variables, in strips and without."""
    found = []
    with problem.precision():
        failures = Links(links, network, 20) if links else None
        for plain in (False, True):
            run = Simulation(problem, network, algorithm.bind(network.size, 20), seed, failures)
            assert isinstance(run._kernel, Strips), "this would compare the plain path with itself"
            if plain:
                run._kernel = None
            state = run.initial_state()
            for a, b in ((0, 1), (1, 10), (10, 20)):
                state = run.advance(state, a, b).state
            found.append(jax.tree.map(np.asarray, run.whole(state)))
    return found


def assert_same(found: Any) -> None:
    in_strips, plain = found
    assert abs(plain.y).max() > 1e-3, "y does not move"
    for name, value in plain._asdict().items():
        for a, b in zip(
            jax.tree.leaves(getattr(in_strips, name)), jax.tree.leaves(value), strict=True
        ):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(
                a, b, rtol=1e-12, atol=1e-12 * max(1, abs(b).max()), err_msg=name
            )


GOSSIP = [
    name
    for name in hb.algorithms.names()
    if not (hb.algorithms.get(name).single_agent or hb.algorithms.get(name).compositional)
]


@pytest.mark.parametrize("name", sorted({*GOSSIP} - OTHERS))
def test_every_algorithm_of_vectors(name: str) -> None:
    algorithm = hb.algorithms.get(name).suggest(Scale(3.0, 0.5))
    assert_same(ends(problem_of(), IRREGULAR, algorithm))


@pytest.mark.parametrize(
    "network", [hb.ring(AGENTS), hb.star(AGENTS), hb.complete(AGENTS)], ids=str
)
def test_networks(network: hb.Network) -> None:
    assert_same(ends(problem_of(), network, DSOBA))


@pytest.mark.parametrize("batch_size", [1, None])
@pytest.mark.parametrize("dim_x", [1, LONG], ids=["short x", "x as long as y"])
def test_batches_and_long_x(batch_size: int | None, dim_x: int) -> None:
    assert_same(ends(problem_of(dim_x, batch_size, bounds=(-1.0, 1.0)), hb.ring(AGENTS), DSOBA))


@pytest.mark.parametrize("links", [None, Drop(0.4)], ids=["links", "failing links"])
def test_seeds(links: Any) -> None:
    assert_same(ends(problem_of(), hb.ring(AGENTS), DSOBA, [3, 4], links))


def test_float32() -> None:
    in_strips, plain = ends(problem_of(dtype=np.float32), hb.ring(AGENTS), DSOBA)
    assert in_strips.y.dtype == plain.y.dtype == np.float32
    np.testing.assert_allclose(in_strips.y, plain.y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", [3, [3, 4]], ids=["one", "two"])
def test_a_state_passes_both_doors_as_it_is(seed: Any) -> None:
    problem = problem_of()
    with problem.precision():
        run = Simulation(problem, hb.ring(AGENTS), DSOBA.bind(AGENTS, 9), seed)
        state = run.advance(run.initial_state(), 0, 9).state
        assert state.y.shape[-3:] == (7, AGENTS, 4)
        whole = run.whole(state)
        assert jax.tree.map(np.shape, whole) == jax.tree.map(np.shape, run.shapes)
        for a, b in zip(run.held(whole), state, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_whole_run_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows, its answers, its checkpoints, and what callbacks and metrics of the user's see."""
    problem, seen = problem_of(), []

    def run(**options: Any) -> hb.Result:
        return hb.solve(problem, hb.ring(AGENTS), DSOBA, record_every=5, progress=False, **options)

    def note(run: Any, state: Any) -> None:
        seen.append(np.asarray(state.y))

    metrics = {"first": lambda view: view.variables["y"][0, 0]}
    whole = run(steps=20, metrics=metrics, callback=note)
    stopped = run(steps=10, metrics=metrics, checkpoint=tmp_path)
    resumed = run(steps=20, metrics=metrics, checkpoint=tmp_path, resume=True)
    monkeypatch.setattr(strips, "_LONG", 2**62)
    plain = run(steps=20, metrics=metrics)
    assert stopped.steps == 10
    np.testing.assert_array_equal(seen[-1], whole.agents["y"])
    np.testing.assert_array_equal(resumed.agents["y"], whole.agents["y"])
    np.testing.assert_allclose(whole.agents["y"], plain.agents["y"], rtol=1e-12, atol=1e-12)
    assert whole.history.keys() == plain.history.keys()
    for name in whole.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(resumed.history[name], whole.history[name], err_msg=name)
        np.testing.assert_allclose(whole.history[name], plain.history[name], rtol=1e-10, atol=1e-14)


def test_a_step_that_diverges_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wild = hb.DSOBA(alpha=0.02, beta=0.1, gamma=500.0, theta=0.3)
    named = []
    for long in (0, 2**62):
        monkeypatch.setattr(strips, "_LONG", long)
        with pytest.raises(hb.DivergenceError) as found:
            hb.solve(problem_of(), hb.ring(AGENTS), wild, steps=1000, progress=False)
        named.append((found.value.step, found.value.variable))
    assert named[0] == named[1]


def kernel_of(problem: hb.Problem, network: hb.Network, algorithm: hb.Algorithm = DSOBA) -> Any:
    with problem.precision():
        return Simulation(problem, network, algorithm.bind(network.size, 20), 0)._kernel


def test_a_model_is_left_as_it_is() -> None:
    """Its matrices are taken out of y, which strips would scatter."""
    shards = [np.ones((4, 6))] * AGENTS

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(jnp.tanh(batch @ y["first"]) @ y["second"])

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return outer(x, y, batch) + sum(jnp.sum(leaf**2) for leaf in y.values()) * jnp.exp(x[0])

    y0 = {"first": np.ones((6, 4)), "second": np.ones(4)}
    problem = hb.Problem(outer, inner, np.zeros(1), y0, shards, shards)
    assert problem.dim_y == LONG
    assert kernel_of(problem, hb.ring(AGENTS)) is None


def test_others_and_single_agents_are_left_as_they_are() -> None:
    problem = problem_of()
    for name in sorted(OTHERS):
        algorithm = hb.algorithms.get(name).suggest(Scale(3.0, 0.5))
        assert not isinstance(kernel_of(problem, hb.ring(AGENTS), algorithm), Strips), name
    alone = hb.problems.get("quadratic")(agents=1, dim_y=LONG)
    assert kernel_of(alone, hb.complete(1)) is None


@dataclass(frozen=True, kw_only=True)
class Talkative(hb.DSOBA):
    """D-SOBA whose agents say more, of which nothing comes."""

    how: str = choice("in a call", "in a choice", "in a loop", "in an axis")

    def step(self, agent: Any, state: Any) -> Any:
        x, odd = state.x, jnp.asarray(agent.step) % 2 == 1
        heard = {
            "in a call": lambda: jax.jit(agent.mix)(x),
            "in a choice": lambda: jax.lax.cond(odd, lambda: agent.mix(x), lambda: x),
            "in a loop": lambda: agent.repeat(2, lambda agent, i, x: agent.mix(x), x),
            "in an axis": lambda: jax.vmap(agent.mix)(jnp.stack([x, x]))[0],
        }[self.how]()
        return super().step(agent, state._replace(x=x + 0 * heard))


@pytest.mark.parametrize("how", ["in a call", "in a choice", "in a loop", "in an axis"])
def test_what_is_said_in_odd_places(how: str) -> None:
    algorithm = Talkative(**{**vars(DSOBA), "how": how})
    result = hb.solve(problem_of(), hb.ring(AGENTS), algorithm, steps=5, progress=False)
    assert result.status == "finished"
    in_strips = isinstance(kernel_of(problem_of(), hb.ring(AGENTS), algorithm), Strips)
    assert in_strips == (how == "in a call")


def test_short_vectors_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips, "_LONG", 2**18)
    assert kernel_of(problem_of(), hb.ring(AGENTS)) is None


def test_how_long_strips_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = fold_for(10**6, 8, 8)
    assert found is not None
    assert (found.length, found.strip) == (10**6, 2000)
    assert fold_for(1_000_003, 8, 8) is None, "a prime"
    assert fold_for(10**6, 10**4, 8) is None, "strips of all agents would not fit into a cache"
