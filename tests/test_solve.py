"""solve: the contents of a result, the ends of a run, and what must not change its bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import hobnob as hb
from hobnob.run import loop

AGENTS = 3


class Held(NamedTuple):
    x: jax.Array
    y: jax.Array


@dataclass(frozen=True, kw_only=True)
class Walk(hb.Algorithm):
    """One noisy gradient per step, which compiles quickly: the tests are of solve itself."""

    exact: ClassVar[bool] = False

    def init(self, agent: hb.Agent) -> Held:
        return Held(agent.x0, agent.y0)

    def step(self, agent: hb.Agent, state: Held) -> Held:
        slope = agent.inner_gradient(state.x, state.y, agent.draw_inner("xi"))
        W = agent.mix(state)
        return Held(agent.project(W.x + 0.02 * jnp.sum(slope)), W.y - 0.1 * slope)


DSBO = hb.DSBO(alpha=0.02, beta=0.2, gamma=0.1, terms=1, smoothness=5.0, strong_convexity=1.0)


def shards(seed: int, lengths: tuple[int, ...], dtype: Any = np.float64) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, 2)).astype(dtype) for n in lengths]


def outer(x: Any, y: Any, batch: Any) -> Any:
    return jnp.mean((y - batch) ** 2) + (x @ x) / 10 - x[0]


def inner(x: Any, y: Any, batch: Any) -> Any:
    return jnp.mean((y - batch) ** 2) + (y - x) @ (y - x) / 2


def make_problem(
    batch_size: int | None = None,
    dtype: Any = np.float64,
    lengths: tuple[int, ...] = (4, 2, 5),
    **options: Any,
) -> hb.Problem:
    data = shards(1, lengths, dtype), shards(2, lengths, dtype)
    x0, y0 = np.zeros(2, dtype), np.zeros(2, dtype)
    return hb.Problem(outer, inner, x0, y0, *data, batch_size, **options)


NOISELESS = make_problem(lengths=(2, 2, 2))  # compiles fastest
NOISY = make_problem(batch_size=2)
QUIET: dict[str, Any] = {"metrics": ["consensus"], "progress": False}


def run(
    problem: hb.Problem = NOISELESS, network: Any = None, algorithm: Any = None, **options: Any
) -> hb.Result:
    network = hb.ring(problem.size) if network is None else network
    options = {"steps": 20, "record_every": 6, **QUIET, **options}
    return hb.solve(problem, network, algorithm or Walk(), **options)


def same_bits(a: hb.Result, b: hb.Result) -> bool:
    columns = a.history.keys() - {"seconds"}
    assert columns == b.history.keys() - {"seconds"}
    arrays = [(a.history[name], b.history[name]) for name in columns]
    arrays += zip(jax.tree.leaves(a.agents), jax.tree.leaves(b.agents), strict=True)
    return all(u.dtype == v.dtype and u.tobytes() == v.tobytes() for u, v in arrays)


@pytest.fixture(scope="module")
def noisy() -> hb.Result:
    return run(NOISY, seed=1)


@pytest.fixture(scope="module")
def noiseless() -> hb.Result:
    return run()


# The contents of a result


def test_the_network_mean_and_every_agents_own(noisy):
    assert noisy.x.shape == noisy.y.shape == (2,)
    assert noisy.agents["x"].shape == noisy.agents["y"].shape == (AGENTS, 2)
    for name, mean in (("x", noisy.x), ("y", noisy.y)):
        np.testing.assert_array_equal(mean, noisy.agents[name].mean(axis=0))
        assert np.ptp(noisy.agents[name], axis=0).min() > 0
    assert (noisy.status, noisy.success, noisy.steps) == ("finished", True, 20)
    assert noisy.message == "All 20 steps are done."
    assert noisy.compile_seconds > 0
    assert noisy.network.size == AGENTS
    assert noisy.settings["seed"] == 1
    assert noisy.settings["algorithm"] == "Walk"
    assert noisy.settings["record_every"] == 6


def test_the_last_row_measures_the_result():
    result = run(algorithm=DSBO, metrics=["objective", "gradient_norm"])
    exact = hb.exact(NOISELESS, result.x)
    assert result.history["objective"][-1] == pytest.approx(exact.value, rel=1e-9)
    norm = np.linalg.norm(exact.gradient)
    assert result.history["gradient_norm"][-1] == pytest.approx(norm, rel=1e-9)
    assert f"objective {exact.value:.4g}" in str(result)
    assert result.settings["algorithm"] == "DSBO"
    assert result.settings["alpha"] == "0.02"


def test_rows_at_the_start_on_the_grid_and_at_the_end(noisy):
    assert noisy.history["step"].tolist() == [0, 6, 12, 18, 20]
    assert {len(column) for column in noisy.history.values()} == {5}
    assert (np.diff(noisy.history["seconds"]) > 0).all()
    assert noisy.history["seconds"][0] == 0


@pytest.mark.parametrize(
    ("steps", "every", "expected"),
    [(12, 6, [0, 6, 12]), (5, 6, [0, 5]), (1, 1, [0, 1]), (3, None, [0, 1, 2, 3])],
)
def test_the_grid_of_other_lengths(steps, every, expected):
    result = run(steps=steps, record_every=every)
    assert result.history["step"].tolist() == expected


def test_costs_are_linear_and_end_at_the_ledger():
    network = nx.path_graph(AGENTS)  # the ends have one neighbour, the middle two
    result = run(make_problem(), network, DSBO)  # whole shards, which differ in length
    sizes = np.array([4, 2, 5])
    numbers = 2 + 2 + 2 + 2 + 2 * 2 + 1 * 2 * 2  # x, y, s, h, u, v
    per_step = {
        "samples": sizes * (1 + 1 + DSBO.terms),
        "gradients": np.full(AGENTS, 2),
        "products": np.zeros(AGENTS),
        "matrices": np.full(AGENTS, 1 + DSBO.terms),
        "rounds": np.ones(AGENTS),
        "messages": np.array([1, 2, 1]),
        "bytes": np.array([1, 2, 1]) * numbers * 8,
    }
    assert result.ledger.keys() == per_step.keys()
    for name, cost in per_step.items():
        np.testing.assert_array_equal(result.ledger[name], cost * 20, err_msg=name)
        expected = cost.mean() * result.history["step"]
        np.testing.assert_allclose(result.history[name], expected, rtol=1e-14, err_msg=name)
    assert sum(result.traffic.parts.values()) == 20 * numbers * 8 * 4 / 3  # links per agent


def test_pytrees_come_back_as_they_went_in():
    def tree_outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((y[0] - batch["b"]) ** 2) + jnp.sum(y[1] ** 2) + jnp.sum(x["m"] * x["m"])

    def tree_inner(x: Any, y: Any, batch: Any) -> Any:
        fit = jnp.mean((y[0] - batch["b"]) ** 2) + jnp.sum((y[1] - x["s"]) ** 2)
        return fit + jnp.sum(x["m"]) * y[0]

    data = [{"b": shard[:, 0]} for shard in shards(3, (2, 2, 2))]
    x0 = {"m": np.ones((2, 3)), "s": np.zeros(())}
    y0 = (np.zeros(()), np.ones((1, 2)))
    problem = hb.Problem(tree_outer, tree_inner, x0, y0, data, data, batch_size=None)
    for seed, lead in ((0, ()), ([0, 1], (2,))):
        result = run(problem, seed=seed, steps=3)
        shapes = jax.tree.map(np.shape, (result.x, result.y))
        assert shapes == ({"m": (*lead, 2, 3), "s": lead}, (lead, (*lead, 1, 2)))
        own = jax.tree.map(np.shape, result.agents)
        assert own["x"] == {"m": (*lead, AGENTS, 2, 3), "s": (*lead, AGENTS)}
        assert own["y"] == ((*lead, AGENTS), (*lead, AGENTS, 1, 2))
        means = jax.tree.map(lambda leaf, lead=lead: leaf.mean(len(lead)), result.agents)
        jax.tree.map(np.testing.assert_allclose, means, {"x": result.x, "y": result.y})
        assert np.abs(result.x["m"] - 1).min() > 0


# Seeds


def test_each_of_several_seeds_is_its_own_run(noisy):
    both = run(NOISY, seed=[4, 1])
    assert both.x.shape == (2, 2)
    assert both.agents["x"].shape == (2, AGENTS, 2)
    assert {column.shape for column in both.history.values()} == {(2, 5)}
    alone = {4: run(NOISY, seed=4, metrics=None), 1: noisy}
    for place, seed in enumerate((4, 1)):
        for name in ("x", "y"):
            np.testing.assert_allclose(
                both.agents[name][place], alone[seed].agents[name], rtol=1e-12, atol=1e-12
            )
    for name in noisy.history.keys() - {"seconds"}:
        np.testing.assert_allclose(
            both.history[name][1], noisy.history[name], rtol=1e-10, atol=1e-12, err_msg=name
        )
    frame = both.to_pandas()
    assert list(frame.columns) == ["seed", *both.history]
    assert frame["seed"].tolist() == [4] * 5 + [1] * 5
    assert frame["step"].tolist() == [0, 6, 12, 18, 20] * 2
    assert frame[frame.seed == 1]["consensus_x"].tolist() == both.history["consensus_x"][1].tolist()


def test_the_same_seed_gives_the_same_bits_and_another_does_not(noisy):
    assert same_bits(noisy, run(NOISY, seed=1))
    assert not np.array_equal(noisy.x, run(NOISY, seed=2).x)


def test_one_seed_becomes_a_frame(noisy):
    frame = noisy.to_pandas()
    assert list(frame.columns) == list(noisy.history)
    assert frame["bytes"].tolist() == noisy.history["bytes"].tolist()


@pytest.mark.parametrize("seed", [[], -1, 2**32, 1.0, True, [0, "1"]])
def test_seeds_that_are_none(seed):
    with pytest.raises(hb.SettingError, match="seed"):
        run(seed=seed)


# Chunks


def test_chunks_change_no_bit(noisy, monkeypatch):
    often = run(NOISY, seed=1, record_every=1)
    assert often.agents["x"].tobytes() == noisy.agents["x"].tobytes()
    rows = noisy.history["step"]
    for name in ("consensus_x", "consensus_y"):
        assert often.history[name][rows].tobytes() == noisy.history[name].tobytes()
    monkeypatch.setattr(loop, "CHUNK_SECONDS", 0.0)  # one step at a time
    assert same_bits(noisy, run(NOISY, seed=1))


@pytest.mark.parametrize("seed", [0, [0, 1]], ids=["one seed", "two seeds"])
def test_a_run_compiles_once(seed):
    compiled = []
    run(
        NOISY,
        seed=seed,
        record_every=5,
        callback=lambda run, _: compiled.append(run.compilations()),
    )
    assert compiled == [1] * 5


# The ends of a run


def test_tolerance_stops_at_the_first_row_below_it():
    options = {"algorithm": DSBO, "metrics": ["gradient_norm"], "record_every": 50, "steps": 200}
    norms = run(**options).history["gradient_norm"]
    tolerance = float(norms[3])
    assert (np.diff(norms[:5]) < 0).all()
    stopped = run(**options, tolerance=tolerance)
    assert (stopped.status, stopped.success, stopped.steps) == ("converged", True, 150)
    assert stopped.message == f"Converged at step 150: |grad F| is at most {tolerance}."
    np.testing.assert_array_equal(stopped.history["gradient_norm"], norms[:4])
    assert stopped.ledger["rounds"].tolist() == [150] * AGENTS


def test_a_tolerance_that_is_not_reached_is_no_success():
    missed = run(metrics=["gradient_norm"], tolerance=1e-9)
    assert (missed.status, missed.success, missed.steps) == ("not converged", False, 20)
    assert "|grad F| is above 1e-09 after 20 steps" in missed.message


def test_a_run_that_starts_at_the_solution_stops_there():
    solution = hb.optimum(NOISELESS).x
    data = shards(1, (2, 2, 2)), shards(2, (2, 2, 2))
    start = hb.Problem(outer, inner, solution, np.zeros(2), *data, batch_size=None)
    result = run(start, metrics=["gradient_norm"], tolerance=1e-6)
    assert (result.status, result.steps) == ("converged", 0)
    assert result.history["step"].tolist() == [0]
    np.testing.assert_array_equal(result.x, solution)


def test_a_callback_sees_every_row_and_may_stop():
    seen = []

    def watch(run: Any, state: Any) -> bool:
        assert isinstance(run.problem, hb.Problem)
        seen.append(np.asarray(state.x))
        return len(seen) == 3

    stopped = run(callback=watch)
    assert (stopped.status, stopped.success, stopped.steps) == ("interrupted", False, 12)
    assert stopped.message.startswith("Stopped after 12 of 20 steps. There is no checkpoint")
    assert stopped.history["step"].tolist() == [0, 6, 12]
    np.testing.assert_array_equal(seen[0], 0)
    np.testing.assert_array_equal(seen[-1], stopped.agents["x"])


def test_a_callback_that_returns_nothing_changes_nothing(noiseless):
    assert same_bits(noiseless, run(callback=lambda run, state: None))


WILD = hb.DSBO(alpha=0.02, beta=0.2, gamma=1.0, terms=1, smoothness=5.0, strong_convexity=1.0)


def steep() -> hb.Problem:
    data = shards(1, (2, 2, 2)), shards(2, (2, 2, 2))
    return hb.Problem(
        outer,
        lambda x, y, batch: 50 * inner(x, y, batch),
        np.zeros(2),
        np.zeros(2),
        *data,
        batch_size=None,
    )


def test_divergence_names_step_agent_and_variable(tmp_path):
    with pytest.raises(hb.DivergenceError, match=r"gamma = 1 is above 2/L_g = 0\.02") as caught:
        hb.solve(
            steep(),
            hb.ring(AGENTS),
            WILD,
            steps=2000,
            record_every=50,
            checkpoint=tmp_path,
            checkpoint_every=50,
            **QUIET,
        )
    error = caught.value
    assert error.variable in DSBO_VARIABLES
    assert 0 <= error.agent < AGENTS
    assert 50 < error.step < 2000
    assert error.history["step"][-1] == (error.step - 1) // 50 * 50
    assert f"diverged at step {error.step}: agent {error.agent}, variable" in str(error)
    assert f"The checkpoint of step {(error.step - 1) // 50 * 50} in {tmp_path}" in str(error)


DSBO_VARIABLES = ("x", "y", "s", "h", "u", "v")


@pytest.fixture
def every_state_large(monkeypatch):
    monkeypatch.setattr("hobnob.run.turns._LARGE_STATE", 0)


def test_a_large_state_is_written_over_and_gives_the_same_bits(every_state_large, tmp_path):
    kept = []

    def keep(view):
        kept.append(view.x)
        return float(view.x.sum())

    options = {"steps": 20, "record_every": 5, "metrics": ["consensus", keep]}
    over = run(**options, checkpoint=tmp_path, checkpoint_every=5)
    seen = [x.copy() for x in kept[-5:]]
    # A callback may keep the state it is given, so states are not overwritten then.
    beside = run(**options, callback=lambda run, state: None)
    assert same_bits(over, beside)
    for early, late in zip(seen, kept[:5], strict=True):
        np.testing.assert_array_equal(early, late)  # what a metric kept has not changed
    assert len({x.tobytes() for x in seen}) == 5
    longer = run(**{**options, "steps": 30}, checkpoint=tmp_path, resume=True)
    assert same_bits(longer, run(**{**options, "steps": 30}))


def test_a_large_state_that_diverges_is_explained_from_its_end(every_state_large):
    errors = []
    for callback in (None, lambda run, state: None):  # with a callback, states are kept
        with pytest.raises(hb.DivergenceError, match=r"gamma = 1 is above 2/L_g") as caught:
            hb.solve(steep(), hb.ring(AGENTS), WILD, steps=2000, callback=callback, **QUIET)
        errors.append(caught.value)
    over, replayed = errors
    assert 0 <= over.step - replayed.step <= 1
    assert over.variable in DSBO_VARIABLES
    assert over.history["step"].tolist() == replayed.history["step"].tolist()


# Networks


def test_a_graph_a_matrix_and_a_network_are_the_same(noiseless):
    network = hb.ring(AGENTS)
    for given in (network, nx.cycle_graph(AGENTS), network.matrix, network.matrix.tolist()):
        assert same_bits(noiseless, run(network=given))
    assert not same_bits(noiseless, run(network=nx.path_graph(AGENTS)))


@pytest.mark.parametrize("network", [nx.empty_graph(1), [[1.0]]], ids=["graph", "matrix"])
def test_one_agent_alone(network):
    problem = make_problem(lengths=(3,))
    result = run(problem, network, DSBO, metrics=["consensus", "gradient_norm"], steps=400)
    assert result.agents["x"].shape == (1, 2)
    np.testing.assert_array_equal(result.agents["x"][0], result.x)
    assert not result.history["consensus_x"].any()
    assert not result.ledger["bytes"].any()
    assert result.history["gradient_norm"][-1] < 0.2 * result.history["gradient_norm"][0]


def test_sizes_must_agree():
    with pytest.raises(hb.ProblemError, match="3 agents and the network has 4: too few"):
        run(network=hb.ring(4))


@pytest.mark.parametrize("name", ["steps", "record_every"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_counts_must_be_counts(name, value):
    with pytest.raises(hb.SettingError, match=f"{name} = {value} must be a whole number"):
        run(**{name: value})


# Bounds


def test_every_agent_stays_within_the_bounds_at_every_row():
    lower, upper = np.array([-0.05, -np.inf]), 0.1
    seen: list[np.ndarray] = []
    bounded = make_problem(lengths=(2, 2, 2), x_bounds=(lower, upper))
    result = run(
        bounded,
        algorithm=DSBO,
        steps=60,
        record_every=1,
        callback=lambda run, state: seen.append(np.asarray(state.x)),
    )
    x = np.array(seen)
    assert x.shape == (61, AGENTS, 2)
    assert (x >= lower).all()
    assert (x <= upper).all()
    assert (result.agents["x"][:, 0] == upper).all()  # it pushes against the bound
    assert (
        run(algorithm=DSBO, steps=60).agents["x"][:, 0] > upper
    ).all()  # and would go further without it


# Precision


def test_float32_stays_float32():
    result = run(make_problem(2, np.float32), metrics=["consensus", "outer_loss", "inner_loss"])
    leaves = [result.x, result.y, *result.agents.values()]
    assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}
    measured = {"consensus_x", "outer_loss", "inner_loss"}
    assert {result.history[name].dtype for name in measured} == {np.dtype(np.float32)}
    assert result.ledger["bytes"][0] == 20 * 2 * 4 * 4


def test_float64_runs_in_float64_without_the_flag(noisy):
    assert not jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    assert {leaf.dtype for leaf in noisy.agents.values()} == {np.dtype(np.float64)}
    assert noisy.history["consensus_x"].dtype == np.float64
    coarse = run(make_problem(2, np.float32), seed=1)
    difference = np.abs(coarse.agents["x"] - noisy.agents["x"]).max()
    assert 0 < difference < 1e-4  # the same samples, in another precision


CLEAN = """
import json
import jax, numpy as np, jax.numpy as jnp
import hobnob as hb
flag = jax.config.jax_enable_x64
data = [np.arange(2.0) + k for k in range(2)]
loss = lambda x, y, batch: jnp.mean((y[0] - batch) ** 2) + (x[0] - y[0]) ** 2
problem = hb.Problem(loss, loss, np.zeros(1), np.zeros(1), data, data, None)
dsbo = hb.DSBO(alpha=.01, beta=.1, gamma=.1, terms=1, smoothness=5., strong_convexity=1.)
r = hb.solve(problem, hb.path(2), dsbo, steps=3, metrics=["outer_loss"])
print(json.dumps({
    "before": flag, "after": jax.config.jax_enable_x64, "ours": str(r.agents["x"].dtype),
    "metric": str(r.history["outer_loss"].dtype), "theirs": str(jnp.ones(1).dtype),
}))
"""


def test_a_clean_process_keeps_its_flags():
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JAX")}
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", CLEAN],
        env=clean,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stderr == ""  # off a terminal, no bar and no warning
    assert json.loads(child.stdout) == {
        "before": False,
        "after": False,
        "ours": "float64",
        "metric": "float64",
        "theirs": "float32",
    }


def test_a_callback_knows_the_row_that_was_recorded():
    seen = []
    hb.solve(
        hb.problems.get("quadratic")(agents=3),
        hb.ring(3),
        hb.DSBO(alpha=0.01, beta=0.1, gamma=0.05, terms=3, smoothness=20.0, strong_convexity=1.0),
        steps=10,
        record_every=4,
        callback=lambda run, state: seen.append((int(run.latest["step"]), run.latest["objective"])),
    )
    assert [step for step, _ in seen] == [0, 4, 8, 10]
    assert len({float(value) for _, value in seen}) == 4


def test_a_stopped_run_records_where_it_stopped():
    result = hb.solve(
        hb.problems.get("quadratic")(agents=3),
        hb.ring(3),
        hb.DSBO(alpha=0.01, beta=0.1, gamma=0.05, terms=3, smoothness=20.0, strong_convexity=1.0),
        steps=100,
        record_every=7,
        callback=lambda run, state: run.latest["step"] >= 21,
    )
    assert result.status == "interrupted"
    assert result.history["step"].tolist() == [0, 7, 14, 21]
    assert result.steps == 21
