"""Links that fail: how often, over which steps, what W becomes, and what is counted.

Probabilities are tested with fixed seeds, so a test passes always or never. The limits say how
rarely a correct implementation would fail with a random seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import hobnob as hb
from hobnob.core.links import Failure, Links
from hobnob.ground import keys
from hobnob.run.run import Run
from hobnob.runtimes.simulate.mixing import mixing_tables
from tests.reference.world import logistic_problem
from tests.simulated import simulated

pytestmark = pytest.mark.slow

LOOPS = 3  # rounds inside a loop, at most
ROUNDS = LOOPS + 2  # in a step: one before the loop, those in it, one after it
PATHS = [(1,), *((2, i) for i in range(LOOPS)), (3,)]


class State(NamedTuple):
    x: jax.Array
    y: jax.Array
    heard: jax.Array  # [rounds, agents]: the agent's row of W in each round of the last step


@dataclass(frozen=True, kw_only=True)
class Listen(hb.Algorithm):
    """Agents that send their unit vectors in every round, so that they receive their row of W."""

    exact: ClassVar[bool] = False
    times: Any = (LOOPS,)  # in a tuple, or it would count as a schedule

    def init(self, agent: hb.Agent) -> State:
        own = -agent.inner_gradient(agent.x0, agent.y0, agent.draw_inner("own"))
        return State(own, agent.y0, agent.zeros(ROUNDS, agent.dim_x))

    def step(self, agent: hb.Agent, state: State) -> State:
        def again(agent: hb.Agent, i: Any, heard: jax.Array) -> jax.Array:
            return heard.at[i].set(agent.mix(state.x))

        before = agent.mix(state.x)
        heard = agent.repeat(self.times[0], again, agent.zeros(LOOPS, agent.dim_x))
        after = agent.mix(state.x)
        return state._replace(heard=jnp.concatenate([before[None], heard, after[None]]))


LISTEN = Listen()


def units(size: int, dtype: Any = np.float64) -> hb.Problem:
    """Agent k holds the unit vector e_k."""

    def loss(x: Any, y: Any, batch: Any) -> Any:
        return jnp.sum((x - y) ** 2) / 2 - jnp.mean(batch @ y)

    data = list(np.eye(size)[:, None, :])
    return hb.Problem(loss, loss, np.zeros(size, dtype), np.zeros(size, dtype), data, data, None)


class Heard(NamedTuple):
    """W of every round of every step, [steps, rounds, (seeds,) agents, agents], and the run."""

    W: np.ndarray
    run: Run

    def costs(self, step: int | None = None) -> dict[str, np.ndarray]:
        with self.run.problem.precision():
            return self.run.costs.until(len(self.W) if step is None else step)


@cache
def heard(
    network: hb.Network,
    *failures: Failure,
    steps: int = 4,
    seed: int | tuple[int, ...] = 0,
    dtype: Any = np.float64,
    algorithm: hb.Algorithm = LISTEN,
) -> Heard:
    given = units(network.size, dtype)
    with given.precision():
        links = Links(failures, network, steps)
        run = simulated(given, network, algorithm, seed, links)
        state, found = run.initial_state(), []
        for step in range(steps):
            state = run.advance(state, step, step + 1).state
            found.append(np.moveaxis(np.asarray(state.heard), -2, 0))
        return Heard(np.stack(found), run)


def weights(network: hb.Network, gone: Any) -> np.ndarray:
    """W with the weights of these links moved to the diagonal, in plain loops."""
    W = network.matrix.copy()
    for i, j in gone:
        W[i, i] += W[i, j]
        W[j, j] += W[j, i]
        W[i, j] = W[j, i] = 0
    return W


def crossings(W: np.ndarray) -> np.ndarray:
    """The number of others that received each agent's message, from W: [..., agents]."""
    return ((W != 0) & ~np.eye(W.shape[-1], dtype=bool)).sum(axis=-1)


PROBLEM = logistic_problem([4] * 6)


def dsbo() -> hb.DSBO:
    return hb.DSBO(alpha=0.05, beta=0.2, gamma=0.2, terms=3, smoothness=3.0, strong_convexity=0.5)


# --- chance ------------------------------------------------------------------------------------

P, STEPS, TURNS = 0.3, 150, 150
NETWORK, COMPLETE = hb.ring(6), hb.complete(5)
RING = hb.ring(10)


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    """Which links of a ring are down: [steps, iterations of a loop, links]."""
    links = Links(hb.Drop(P), RING, STEPS)
    key = keys.of_links(11)
    of_turns = jax.vmap(
        lambda step, i: links.down(keys.of_round(key, step, (1, i)), step), (None, 0)
    )
    return np.asarray(
        jax.jit(jax.vmap(of_turns, (0, None)))(jnp.arange(STEPS), jnp.arange(TURNS)), float
    )


def test_every_link_is_down_with_its_probability(draws: np.ndarray) -> None:
    """4.5 standard errors for each of 10 links: one seed in 15,000 would miss it."""
    error = np.sqrt(P * (1 - P) / (STEPS * TURNS))
    assert draws.shape[-1] == 10
    assert np.abs(draws.mean(axis=(0, 1)) - P).max() < 4.5 * error
    # The same in every step and iteration: 5 standard errors for each of 300 means.
    for axis in (0, 1):
        means = draws.mean(axis=(axis, 2))
        assert np.abs(means - P).max() < 5 * np.sqrt(P * (1 - P) / (STEPS * 10))
        assert np.ptp(means) > 0


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def test_links_and_rounds_fail_independently(draws: np.ndarray) -> None:
    """5 standard errors for each of 57 correlations: one seed in 30,000 would miss it."""
    limit = 5 / np.sqrt(STEPS * (TURNS - 1))
    pairs = [(draws[..., i], draws[..., j]) for i in range(10) for j in range(i)]
    assert len(pairs) == 45
    later_step = [(draws[:-lag], draws[lag:]) for lag in (1, 2, 7)]
    later_turn = [(draws[:, :-lag], draws[:, lag:]) for lag in (1, 2, 7)]
    both = [(draws[1:, 1:], draws[:-1, :-1]), (draws[1:, :-1], draws[:-1, 1:])]
    transposed = [(draws, draws.transpose(1, 0, 2))]  # step 3 of iteration 5, iteration 3 of step 5
    for a, b in pairs + later_step + later_turn + both:
        assert abs(correlation(a, b)) < limit
    off = ~np.eye(STEPS, dtype=bool)
    for a, b in transposed:
        assert abs(correlation(a[off], b[off])) < limit


def test_two_drops_fail_apart() -> None:
    """With both, a link is up with probability (1 - p)(1 - q); 4.5 standard errors."""
    links = Links([hb.Drop(0.5), hb.Drop(0.5)], RING, 1)
    down = jax.jit(jax.vmap(lambda i: links.down(keys.of_round(keys.of_links(0), 0, (i,)), 0)))
    found = np.asarray(down(jnp.arange(3000)), float)
    assert abs(found.mean() - 0.75) < 4.5 * np.sqrt(0.75 * 0.25 / found.size)


def test_a_probability_of_zero_drops_nothing() -> None:
    W = heard(NETWORK, hb.Drop(0)).W
    np.testing.assert_allclose(W, np.broadcast_to(NETWORK.matrix, W.shape), atol=1e-15)


# --- what W becomes ----------------------------------------------------------------------------

FORMS = {
    "table": hb.ring(9),
    "padded table": hb.star(7),
    "dense": hb.complete(30),
    "hubs": hb.star(600),
    "edges": hb.Network(nx.barabasi_albert_graph(600, 2, seed=0)),
    "nothing of their own": hb.Network((np.ones((4, 4)) - np.eye(4)) / 3),
}


@pytest.mark.parametrize("form", FORMS)
def test_w_stays_symmetric_and_doubly_stochastic(form: str) -> None:
    network = FORMS[form]
    names = mixing_tables(network.sparse, np.float32)
    expected = form if form in ("dense", "hubs", "edges") else "table"
    assert expected in names
    W = heard(network, hb.Drop(0.4), hb.Silent(2, 1, 2), steps=2, seed=3).W
    assert W.shape == (2, ROUNDS, network.size, network.size)
    np.testing.assert_array_equal(W, W.swapaxes(-1, -2))
    np.testing.assert_allclose(W.sum(axis=-1), 1, rtol=0, atol=1e-13)
    np.testing.assert_allclose(W.sum(axis=-2), 1, rtol=0, atol=1e-13)
    assert W.min() >= 0
    assert 0 < crossings(W).sum() < ROUNDS * 2 * network.degrees.sum(), "all fail, or none does"
    # Remaining entries are unchanged; the rest is on the diagonal.
    others = ~np.eye(network.size, dtype=bool)
    before = np.broadcast_to(network.matrix, W.shape)
    alive = (W != 0) & others
    np.testing.assert_array_equal(W[alive], before[alive])


@pytest.mark.parametrize("form", FORMS)
def test_a_run_loses_the_links_that_its_keys_say(form: str) -> None:
    network = FORMS[form]
    failures = hb.Drop(0.4), hb.Silent(2, 1, 2)
    W = heard(network, *failures, steps=2, seed=3).W
    links = Links(failures, network, 2)
    assert {tuple(edge) for edge in links.ends.tolist()} == set(network.graph.edges)
    for step in range(2):
        for number, path in enumerate(PATHS):
            down = np.asarray(links.down(keys.of_round(keys.of_links(3), step, path), step))
            expected = weights(network, links.ends[down])
            np.testing.assert_allclose(W[step, number], expected, rtol=0, atol=1e-14)


def test_mixing_under_a_vmap_of_the_algorithm_is_one_round() -> None:
    class Rows(Listen):
        def step(self, agent: hb.Agent, state: State) -> State:
            stack = jnp.stack([state.x] * ROUNDS)
            return state._replace(heard=jax.vmap(agent.mix)(stack))

    W = heard(hb.complete(6), hb.Drop(0.5), steps=3, seed=(1, 2), algorithm=Rows()).W
    assert W.shape == (3, ROUNDS, 2, 6, 6)
    np.testing.assert_array_equal(W, np.broadcast_to(W[:, :1], W.shape))
    np.testing.assert_allclose(W.sum(axis=-1), 1, atol=1e-14)
    assert (crossings(W) < 5).any()


# --- spans -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "gone", "span"),
    [
        (hb.Cut(1, 2, 3, 6), [(1, 2)], range(3, 6)),
        (hb.Cut(2, 1, 3, 6), [(1, 2)], range(3, 6)),
        (hb.Cut(5, 0, 4), [(0, 5)], range(4, 8)),
        (hb.Cut(0, 1, stop=2), [(0, 1)], range(2)),
        (hb.Cut(*np.array([0, 1, 7])), [(0, 1)], range(7, 8)),
        (hb.Silent(4, 2, 5), [(3, 4), (4, 5)], range(2, 5)),
        (hb.Silent(0, stop=7), [(0, 1), (0, 5)], range(7)),
    ],
    ids=str,
)
def test_spans_are_exact(failure: Failure, gone: list[Any], span: range) -> None:
    links = Links(failure, NETWORK, 8)
    for step in range(8):
        down = np.asarray(links.down(keys.of_links(0), step))
        assert links.ends[down].tolist() == ([list(pair) for pair in gone] if step in span else [])


def test_failures_of_a_run_add_up_step_by_step() -> None:
    W = heard(COMPLETE, hb.Cut(0, 1, 0, 2), hb.Silent(3, 1, 3), hb.Cut(3, 4, 2)).W
    of_three = [(0, 3), (1, 3), (2, 3), (3, 4)]
    for step, gone in enumerate([[(0, 1)], [(0, 1), *of_three], of_three, [(3, 4)]]):
        for found in W[step]:
            np.testing.assert_allclose(found, weights(COMPLETE, gone), rtol=0, atol=1e-15)
    np.testing.assert_allclose(W[1, 0, 3], np.eye(5)[3], atol=1e-15)  # it receives only itself


def test_a_cut_for_the_whole_run_is_the_network_without_that_link() -> None:
    def agents(network: hb.Network, **more: Any) -> np.ndarray:
        return hb.solve(PROBLEM, network, dsbo(), steps=40, metrics=None, **more).agents["x"]

    without = hb.Network(weights(NETWORK, [(2, 3)]))
    assert 3 not in without.neighbours(2)
    cut = agents(NETWORK, links=hb.Cut(2, 3))
    np.testing.assert_allclose(cut, agents(without), rtol=0, atol=1e-13)
    later = agents(NETWORK, links=hb.Cut(2, 3, 10))
    assert np.abs(later - cut).max() > 1e-6, "the link plays no role, so this shows nothing"


# --- seeds and precision -----------------------------------------------------------------------


def test_the_same_seed_gives_the_same_failures_and_others_do_not() -> None:
    """Ten links: two rounds agree by chance with 2^-10, two of 20 with 2 in 10,000."""
    W = heard(COMPLETE, hb.Drop(0.5)).W
    again = heard.__wrapped__(COMPLETE, hb.Drop(0.5)).W
    other = heard(COMPLETE, hb.Drop(0.5), seed=(1,)).W[:, :, 0]
    np.testing.assert_array_equal(W, again)
    assert (other == W).all(axis=(-1, -2)).sum() <= 1
    for step in range(1, 4):
        assert (W[step] == W[0]).all(axis=(-1, -2)).sum() <= 1


@pytest.mark.parametrize("form", ["table", "dense", "hubs", "edges"])
def test_several_seeds_at_once_are_each_alone(form: str) -> None:
    network, failures = FORMS[form], (hb.Drop(0.4), hb.Silent(2, 1, 2))
    alone = heard(network, *failures, steps=2, seed=3)
    both = heard(network, *failures, steps=2, seed=(7, 3))
    np.testing.assert_allclose(both.W[:, :, 1], alone.W, rtol=0, atol=1e-15)
    assert (both.W[:, :, 0] != both.W[:, :, 1]).any()
    for column in ("messages", "bytes"):
        np.testing.assert_array_equal(both.costs()[column][1], alone.costs()[column])


def test_both_precisions_lose_the_same_links() -> None:
    wide = heard(COMPLETE, hb.Drop(0.5)).W
    narrow = heard(COMPLETE, hb.Drop(0.5), dtype=np.float32).W
    assert narrow.dtype == np.float32
    np.testing.assert_array_equal(wide != 0, narrow != 0)
    assert (wide == 0).any()


# --- what is counted ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "times", [LOOPS, lambda step: step % (LOOPS + 1)], ids=["fixed", "by the step"]
)
@pytest.mark.parametrize("seed", [4, (4, 9, 1)], ids=["one seed", "three seeds"])
def test_costs_are_what_crossed_the_links(times: Any, seed: Any) -> None:
    """Counted from the rows of W that agents received; zeros after the end of a loop."""
    network, steps = hb.star(6), 9
    failures = hb.Drop(0.3), hb.Cut(0, 2, 2, 5), hb.Silent(3, 4, 6)
    found = heard(network, *failures, steps=steps, seed=seed, algorithm=Listen(times=(times,)))
    crossed, costs = crossings(found.W).sum(axis=(0, 1)), found.costs()
    np.testing.assert_array_equal(costs["messages"], crossed)
    np.testing.assert_array_equal(costs["bytes"], 8 * 6 * crossed)
    turns: Any = times if callable(times) else lambda step: times
    rounds = sum(2 + turns(t) for t in range(steps))
    assert (costs["rounds"] == rounds).all()  # a round counts even if no message arrives
    assert (crossed < rounds * network.degrees).all()


def test_costs_by_hand_from_the_keys() -> None:
    links, sent = Links(hb.Drop(0.5), COMPLETE, 4), np.zeros(5, int)
    for step in range(4):
        for path in PATHS:
            down = np.asarray(links.down(keys.of_round(keys.of_links(0), step, path), step))
            for i, j in links.ends[~down]:
                sent[i] += 1
                sent[j] += 1
    np.testing.assert_array_equal(heard(COMPLETE, hb.Drop(0.5)).costs()["messages"], sent)


def test_costs_do_not_depend_on_when_they_are_asked_for() -> None:
    found = heard(COMPLETE, hb.Drop(0.5))
    straight = found.costs(4)["messages"].copy()
    for step in (2, 3, 1, 4):
        last = found.costs(step)["messages"].copy()
        assert (last == straight).all() == (step == 4)
        expected = crossings(found.W)[:step].sum(axis=(0, 1))
        np.testing.assert_array_equal(last, expected)


@pytest.mark.parametrize("seed", [0, (1,), (0, 5)], ids=["one seed", "a list of one", "two seeds"])
def test_costs_in_a_result(seed: Any) -> None:
    result = hb.solve(
        units(5),
        COMPLETE,
        Listen(),
        steps=4,
        record_every=2,
        metrics=None,
        seed=seed,
        links=hb.Drop(0.5),
    )
    assert result.settings["links"] == "Drop(probability=0.5)"
    crossed = crossings(heard(COMPLETE, hb.Drop(0.5), seed=seed).W).sum(axis=1).cumsum(axis=0)
    np.testing.assert_array_equal(result.ledger["messages"], crossed[-1])
    assert result.ledger["messages"].shape == (*np.shape(seed), 5)
    history = result.history
    assert history["messages"].shape == (*np.shape(seed), 3)
    assert (history["messages"][..., 0] == 0).all()
    for step, row in ((2, 1), (4, 2)):
        mean = crossed[step - 1].mean(axis=-1)
        np.testing.assert_allclose(history["messages"][..., row], mean)
        np.testing.assert_allclose(history["bytes"][..., row], 8 * 5 * mean)
    if len(np.shape(seed)) and len(seed) > 1:
        assert (result.ledger["messages"][0] != result.ledger["messages"][1]).any()


# --- resuming ----------------------------------------------------------------------------------


def test_resuming_is_bitwise_and_wants_the_same_links(tmp_path: Path) -> None:
    def run(steps: int, links: Any, **more: Any) -> hb.Result:
        return hb.solve(PROBLEM, NETWORK, dsbo(), steps=steps, record_every=2, links=links, **more)

    more: dict[str, Any] = {"metrics": ["consensus"]}
    links = [hb.Drop(0.3), hb.Cut(0, 1, 2, 5)]
    straight = run(8, links, **more)
    run(4, links, checkpoint=tmp_path, **more)
    for others in (None, hb.Drop(0.3), [hb.Drop(0.2), links[1]]):
        with pytest.raises(hb.CheckpointError, match="links"):
            run(8, others, checkpoint=tmp_path, resume=True, **more)
    resumed = run(8, links, checkpoint=tmp_path, resume=True, **more)
    np.testing.assert_array_equal(resumed.agents["x"], straight.agents["x"])
    for column in ("messages", "bytes", "consensus_x"):
        np.testing.assert_array_equal(resumed.history[column], straight.history[column])
    np.testing.assert_array_equal(resumed.ledger["messages"], straight.ledger["messages"])


# --- networks that fall apart ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "failures", "parts"),
    [
        (hb.path(4), [hb.Cut(1, 2)], "2 parts, {0, 1} and {2, 3}."),
        (hb.path(4), [hb.Cut(2, 1, 9)], "2 parts, {0, 1} and {2, 3}."),
        (hb.path(4), [hb.Cut(1, 2, 3, 10)], "2 parts, {0, 1} and {2, 3}."),
        (hb.ring(6), [hb.Cut(0, 5, 2), hb.Cut(2, 3, 4)], "2 parts, {0, 1, 2} and {3, 4, 5}."),
        (hb.ring(5), [hb.Silent(3, 4)], "2 parts, {0, 1, 2, 4} and {3}."),
        (hb.star(4), [hb.Silent(0)], "4 parts, {0} and {1} and {2} and {3}."),
        (hb.path(3), [hb.Drop(0.1), hb.Cut(0, 1)], "2 parts, {0} and {1, 2}."),
    ],
    ids=str,
)
def test_a_network_that_stays_apart_is_named(
    network: hb.Network, failures: list[Failure], parts: str
) -> None:
    words = Links(failures, network, 10).warning
    assert words.startswith("The live graph never reconnects")
    assert parts in words


@pytest.mark.parametrize(
    ("network", "failures"),
    [
        (hb.path(4), [hb.Cut(1, 2, 0, 9)]),
        (hb.path(4), [hb.Cut(1, 2, 10)]),
        (hb.path(4), [hb.Drop(0.9)]),
        (hb.ring(6), [hb.Cut(0, 5)]),
        (hb.ring(6), [hb.Cut(0, 5), hb.Cut(2, 3, 4, 9)]),
        (hb.star(4), [hb.Silent(0, 3, 8)]),
        (hb.complete(4), [hb.Cut(0, 1), hb.Cut(0, 2)]),
    ],
    ids=str,
)
def test_a_network_that_holds_or_comes_together_again_is_fine(
    network: hb.Network, failures: list[Failure]
) -> None:
    assert Links(failures, network, 10).warning == ""


def test_a_run_warns() -> None:
    def run(failure: Failure) -> None:
        hb.solve(units(4), hb.path(4), Listen(), steps=3, metrics=None, links=failure)

    with pytest.warns(UserWarning, match=r"never reconnects.*\{0, 1\} and \{2, 3\}") as caught:
        run(hb.Cut(1, 2))
    assert caught[0].filename == __file__
    run(hb.Cut(1, 2, 0, 2))  # any warning would be an error


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [-0.1, 1, 1.5, float("nan"), "0.1", None, [0.1]])
def test_drop_takes_a_probability(p: Any) -> None:
    with pytest.raises(hb.SettingError, match=r"Drop\(.*probability in \[0, 1\)"):
        hb.Drop(p)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hb.Cut("a", 1), "first must be a whole number"),  # type: ignore[arg-type]
        (lambda: hb.Cut(0, 1.5), "second must be a whole number"),  # type: ignore[arg-type]
        (lambda: hb.Silent(None), "agent must be a whole number"),  # type: ignore[arg-type]
        (lambda: hb.Silent(0, 0, float("inf")), "stop must be"),  # type: ignore[arg-type]
        (lambda: hb.Cut(0, 1, 5, 5), "start=5, stop=5.*a span goes from"),
        (lambda: hb.Cut(0, 1, 6, 5), "a span goes from"),
        (lambda: hb.Silent(0, -1), "a span goes from"),
        (lambda: hb.Silent(0, 0, 2**31), "Leave `stop` out"),
    ],
)
def test_spans_and_agents_are_whole_numbers(make: Any, words: str) -> None:
    with pytest.raises(hb.SettingError, match=words):
        make()


@pytest.mark.parametrize(
    ("links", "kind", "words"),
    [
        (hb.Cut(0, 2), hb.NetworkError, r"Cut\(0, 2\).*no such link.*neighbours \[1, 3\]"),
        (hb.Cut(1, 1), hb.NetworkError, "no such link"),
        (hb.Cut(0, 7), hb.NetworkError, "no such link"),
        (hb.Cut(7, 0), hb.NetworkError, "no agent 7"),
        (hb.Silent(4), hb.NetworkError, r"Silent\(4\): there are agents 0 to 3"),
        (hb.Silent(-1), hb.NetworkError, "agents 0 to 3"),
        (0.1, hb.SettingError, "links: 0.1 must be a Drop, a Cut or a Silent"),
        ("drop", hb.SettingError, "links: 'drop' must be a Drop"),
        ({"drop": 0.1}, hb.SettingError, "must be a Drop"),
        ([hb.Drop(0.1), 0.1], hb.SettingError, "links: 0.1 must be a Drop"),
        (hb.Drop, hb.SettingError, "must be a Drop"),
    ],
    ids=str,
)
def test_links_that_a_run_refuses(links: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        hb.solve(units(4), hb.ring(4), Listen(), steps=2, links=links)


def test_one_agent_has_no_links_to_lose() -> None:
    result = hb.solve(units(1), hb.complete(1), Listen(), steps=2, metrics=None, links=hb.Drop(0.5))
    assert result.ledger["messages"].tolist() == [0]
    assert result.ledger["rounds"].tolist() == [2 * ROUNDS]
