"""Bad input through the public names: each message names the place, the number and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb

AGENTS = 3


def outer(x: Any, y: Any, batch: Any) -> Any:
    return jnp.mean((batch["a"] @ y - batch["t"]) ** 2) / 2


def inner(x: Any, y: Any, batch: Any) -> Any:
    return outer(x, y, batch) + jnp.sum(jnp.exp(x) * y**2) / 2


def shards(*lengths: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {"a": rng.normal(size=(n, 2)), "t": rng.normal(size=n)} for n in lengths or [4] * AGENTS
    ]


def problem(**changes: Any) -> hb.Problem:
    given: dict[str, Any] = {
        "outer": outer,
        "inner": inner,
        "x0": np.zeros(2),
        "y0": np.zeros(2),
        "outer_data": shards(),
        "inner_data": shards(),
        "batch_size": 2,
    }
    return hb.Problem(**given | changes)


def dsbo(**changes: Any) -> hb.DSBO:
    given: dict[str, Any] = {
        "alpha": 0.01,
        "beta": 0.1,
        "gamma": 0.1,
        "terms": 2,
        "smoothness": 5.0,
        "strong_convexity": 0.5,
    }
    return hb.DSBO(**given | changes)


def solve(algorithm: Any = None, agents: int = AGENTS, **options: Any) -> hb.Result:
    options = {"steps": 2, "metrics": None} | options
    return hb.solve(
        options.pop("problem", None) or problem(), hb.ring(agents), algorithm or dsbo(), **options
    )


@contextmanager
def refused(kind: type[hb.HobnobError], *words: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect a HobnobError, which is a ValueError, with all of these words in its message."""
    with pytest.raises(hb.HobnobError) as caught:
        yield caught
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, kind)
    for word in words:
        assert word in str(caught.value)


# --- the data ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("agents", "words"), [(5, "too few shards"), (2, "too many shards")])
def test_as_many_shards_as_agents(agents: int, words: str) -> None:
    with refused(
        hb.ProblemError, "data of 3 agents", f"network has {agents}", words, "exactly one"
    ):
        hb.solve(problem(), hb.complete(agents), dsbo(), steps=2)


def test_as_many_outer_as_inner_shards() -> None:
    with refused(hb.ProblemError, "outer_data has 3 shards", "inner_data has 2", "one of each"):
        problem(inner_data=shards(4, 4))


def test_no_shards_at_all() -> None:
    with refused(hb.ProblemError, "inner_data is empty", "one shard per agent"):
        problem(inner_data=[])


def test_an_empty_shard() -> None:
    with refused(hb.ProblemError, "outer_data, agent 1", "empty", "leave the agent out"):
        problem(outer_data=shards(4, 0, 4))


def test_a_shard_without_arrays() -> None:
    with refused(hb.ProblemError, "agent 0", "no arrays"):
        problem(outer_data=[{}, {}, {}])


def test_shards_of_different_structure() -> None:
    data = shards()
    data[2] = {"a": data[2]["a"]}
    with refused(hb.ProblemError, "inner_data", "agent 2", "same structure", "'t'"):
        problem(inner_data=data)


def test_shards_of_different_dtype() -> None:
    data = shards()
    data[1]["t"] = data[1]["t"].astype(np.float32)
    with refused(hb.ProblemError, "['t'] of agent 1", "float32", "float64", "one dtype"):
        problem(outer_data=data)


def test_shards_of_different_width() -> None:
    data = shards()
    data[2]["a"] = np.ones((4, 3))
    with refused(hb.ProblemError, "['a'] of agent 2", "(4, 3)", "(4, 2)", "Only the first axis"):
        problem(inner_data=data)


def test_records_that_disagree_within_a_shard() -> None:
    data = shards()
    data[1]["t"] = np.ones(3)
    with refused(hb.ProblemError, "inner_data, agent 1", "[3, 4] records", "equally many"):
        problem(inner_data=data)


def test_a_leaf_without_records() -> None:
    with refused(hb.ProblemError, "outer_data, agent 0, ['t']", "leading axis must be the records"):
        problem(outer_data=[{"a": np.ones((4, 2)), "t": 1.0}] * AGENTS)


@pytest.mark.parametrize(("value", "text"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_data_that_is_not_finite(value: float, text: str) -> None:
    data = shards()
    data[2]["a"][3, 1] = data[2]["a"][3, 0] = value
    with refused(
        hb.ProblemError,
        "inner_data, agent 2, ['a']: 2 of 8 values are not finite",
        f"({text}) at [3, 0]",
        "Remove or fill them",
    ):
        problem(inner_data=data)


def test_data_that_is_not_numeric() -> None:
    data: list[Any] = [{"a": np.full((2, 2), "red"), "t": np.ones(2)} for _ in range(AGENTS)]
    with refused(hb.ProblemError, "outer_data, agent 0, ['a']", "<U3 is not numeric"):
        problem(outer_data=data)


@pytest.mark.parametrize(
    ("data", "kind"), [(shards()[0], "dict"), (None, "NoneType"), ("x", "str")]
)
def test_data_that_is_not_a_list_of_shards(data: Any, kind: str) -> None:
    with refused(hb.ProblemError, "outer_data", "one entry per agent", f"not a {kind}"):
        problem(outer_data=data)


def test_data_too_large_for_the_precision() -> None:
    data = shards()
    data[0]["t"][0] = 1e300
    small = np.zeros(2, np.float32)
    with refused(hb.ProblemError, "inner_data", "1e+300", "float32", "x0 and y0 as float64"):
        problem(inner_data=data, x0=small, y0=small)


@pytest.mark.parametrize(
    ("size", "words"), [(0, "batch_size = 0 draws nothing"), (1.5, "not 1.5"), (True, "not True")]
)
def test_batch_size(size: Any, words: str) -> None:
    with refused(hb.ProblemError, words, "None"):
        problem(batch_size=size)


def test_a_simulator_without_noise_needs_its_mean() -> None:
    with refused(hb.ProblemError, "noiseless", "`expected`"):
        hb.Simulator([np.ones(2)], lambda key, p: p, noiseless=True)


# --- the start ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x0", "y0"])
def test_a_start_that_is_not_finite(name: str) -> None:
    with refused(hb.ProblemError, f"{name}, the array: nan at [1]", "must be finite"):
        problem(**{name: np.array([0.0, np.nan])})
    with refused(hb.ProblemError, f"{name}, ['b']: inf.", "must be finite"):
        problem(**{name: {"a": np.zeros(2), "b": np.inf}})


@pytest.mark.parametrize(("start", "words"), [("here", "<U4"), (np.array([1j, 0]), "complex")])
def test_a_start_that_is_not_real(start: Any, words: str) -> None:
    with refused(hb.ProblemError, "x0", words, "real numbers"):
        problem(x0=start)


@pytest.mark.parametrize("start", [None, {}, np.zeros(0)])
def test_a_start_without_numbers(start: Any) -> None:
    with refused(hb.ProblemError, "y0 holds no numbers", "nothing to optimise"):
        problem(y0=start)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((0.5, None), ("entry 0 is 0.0", "[0.5, inf]", "Start inside")),
        ((np.array([-1.0, 0.25]), None), ("entry 1 is 0.0", "[0.25, inf]", "Start inside")),
        ((None, [1.0, -0.5]), ("entry 1 is 0.0", "[-inf, -0.5]", "Start inside")),
        ((2.0, 1.0), ("lower bound of entry 0 is 2.0", "1.0", "(lower, upper)")),
        ((np.zeros(3), None), ("shaped like x0, which has 2", "0., 0., 0.")),
        ((float("nan"), None), ("None, a number", "nan")),
        (("low", None), ("None, a number", "'low'")),
        (({"w": 0.0}, None), ("shaped like x0", "'w'")),
        (5, ("pair (lower, upper)", "not 5")),
        ((1, 2, 3), ("pair (lower, upper)", "(1, 2, 3)")),
    ],
)
def test_bounds(bounds: Any, words: tuple[str, ...]) -> None:
    with refused(hb.ProblemError, *words):
        problem(x_bounds=bounds)


# --- the losses --------------------------------------------------------------------------------


@pytest.mark.parametrize("title", ["outer", "inner"])
@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda x, y, b: (b["a"] @ y - b["t"]) ** 2, "float64[2]"),
        (lambda x, y, b: (y @ y, x @ x), "float64[]"),
        (lambda x, y, b: jnp.sum(y > 0), "int64[]"),
        (lambda x, y, b: None, "None"),
    ],
)
def test_a_loss_that_is_no_scalar(title: str, loss: Any, words: str) -> None:
    with refused(hb.ProblemError, f"{title}(x, y, batch) must return one real number", words):
        problem(**{title: loss})


@pytest.mark.parametrize("title", ["outer", "inner"])
def test_a_loss_that_fails(title: str) -> None:
    with refused(hb.ProblemError, f"{title}(x, y, batch) failed", "KeyError", "labels") as caught:
        problem(**{title: lambda x, y, b: jnp.mean(b["labels"])})
    assert isinstance(caught.value.__cause__, KeyError)  # so that the user sees the traceback


WRAPPED: list[Callable[[Any], Any]] = [lambda f: f, jax.jit, lambda f: jax.jit(jax.jit(f))]


@pytest.mark.parametrize("wrap", WRAPPED, ids=["plain", "jitted", "nested jit"])
@pytest.mark.parametrize(
    ("title", "words"), [("outer", "would matter"), ("inner", "y*(x) is not defined")]
)
def test_a_loss_that_does_not_depend_on_y(
    title: str, words: str, wrap: Callable[[Any], Any]
) -> None:
    free = wrap(lambda x, y, b: jnp.sum(x**2) * jnp.mean(b["t"]))

    def loss(x: Any, y: Any, b: Any) -> Any:
        return free(x, y, b)

    with refused(hb.ProblemError, f"{title}(x, y, batch) does not depend on y", words):
        problem(**{title: loss})


@pytest.mark.parametrize("wrap", WRAPPED, ids=["plain", "jitted", "nested jit"])
def test_a_jitted_loss_that_depends_on_y_is_fine(wrap: Callable[[Any], Any]) -> None:
    assert problem(inner=wrap(inner), outer=wrap(outer)).size == AGENTS


def test_a_summed_loss_over_ragged_shards() -> None:
    def summed(x: Any, y: Any, b: Any) -> Any:
        return jnp.sum((b["a"] @ y - b["t"]) ** 2)

    ragged = shards(2, 5, 3)
    with refused(hb.ProblemError, "outer(x, y, batch) is not a mean", "two records", "jnp.mean"):
        problem(outer=summed, outer_data=ragged)
    assert problem(outer_data=ragged).size == AGENTS


def test_an_inner_problem_that_x0_makes_flat() -> None:
    def regularised(x: Any, y: Any, b: Any) -> Any:
        return jnp.sum(x * y**2) / 2 - jnp.mean(b["t"]) * y[0]

    flat = problem(inner=regularised)
    with refused(
        hb.ProblemError,
        "not strongly convex at x0",
        "smallest curvature of the mean is 0,",
        "exp(x)",
        "x0 > 0",
    ):
        solve(problem=flat)
    assert solve(problem=problem(inner=regularised, x0=np.ones(2))).status == "finished"


# --- the algorithm's settings ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["beta", "gamma"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "= 0 must be above 0"),
        (-0.25, "= -0.25 must be above 0"),
        (1.5, "= 1.5 must be at most 1"),
        (np.nan, "= nan must be a finite number"),
        (np.inf, "= inf must be a finite number"),
        ("0.1", "= '0.1' must be a number or a callable"),
        (None, "= None must be a number or a callable"),
        (True, "= True must be a number or a callable"),
        (np.array([0.1, 0.2]), "must be a number or a callable"),
    ],
)
def test_weights_outside_of_zero_to_one(name: str, value: Any, words: str) -> None:
    with refused(hb.SettingError, name, words):
        dsbo(**{name: value})


@pytest.mark.parametrize("name", ["alpha", "smoothness", "strong_convexity"])
@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "= 0 must be above 0"), (-1, "= -1 must be above 0"), (np.inf, "must be a finite number")],
)
def test_settings_that_must_be_positive(name: str, value: Any, words: str) -> None:
    with refused(hb.SettingError, name, words):
        dsbo(**{name: value})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2.5, "= 2.5 must be a whole number"),
        (-1, "= -1 must be at least 0"),
        (np.nan, "= nan must be a finite number"),
        (np.inf, "= inf must be a finite number"),
        ("3", "= '3' must be a whole number"),
        (None, "= None must be a whole number"),
        (True, "= True must be a whole number"),
        (np.array([1, 2]), "must be a whole number"),
        (lambda step: 3, "must be a whole number"),
    ],
)
def test_terms(value: Any, words: str) -> None:
    with refused(hb.SettingError, "terms", words):
        dsbo(terms=value)


def test_whole_terms_of_any_type_are_fine() -> None:
    assert [type(dsbo(terms=n).terms) for n in (3, 3.0, np.float64(3), np.int32(3))] == [int] * 4


def test_a_rule_that_needs_a_longer_run() -> None:
    with refused(
        hb.SettingError,
        "beta = 1.58 at K = 5, T = 200 must be at most 1.",
        "The rule 10 sqrt(K/T) needs T >= 500.",
    ):
        hb.solve(
            problem(outer_data=shards(*[4] * 5), inner_data=shards(*[4] * 5)),
            hb.ring(5),
            dsbo(beta=hb.schedules.nonconvex(10)),
            steps=200,
        )


@pytest.mark.parametrize("name", ["beta", "gamma"])
@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (lambda step: 0.5 + step, "= 1.5 at K = 3, T = 2 must be at most 1."),
        (lambda step: 0.5 - step, "= -0.5 at K = 3, T = 2 must be above 0."),
        (lambda step: float("nan"), "= nan at K = 3, T = 2 must be a finite number."),
        (lambda step: "fast", "= 'fast' at K = 3, T = 2 must be a number"),
        (lambda step: np.ones(2), "at K = 3, T = 2 must be a number"),
        (hb.schedules.nonconvex(float("inf")), "= inf at K = 3, T = 2 must be a finite number."),
    ],
)
def test_schedules_out_of_range(name: str, schedule: Any, words: str) -> None:
    with refused(hb.SettingError, name, words):
        solve(dsbo(**{name: schedule}))


def test_no_advice_that_would_not_help() -> None:
    with refused(hb.SettingError, "beta = -1.22 at K = 3, T = 2 must be above 0.") as caught:
        solve(dsbo(beta=hb.schedules.nonconvex(-1)))
    assert "needs T" not in str(caught.value)


# --- the options of a run ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 0}, "steps = 0 must be a whole number of at least 1"),
        ({"steps": -3}, "steps = -3 must be a whole number of at least 1"),
        ({"steps": 2.0}, "steps = 2.0 must be a whole number of at least 1"),
        ({"steps": True}, "steps = True must be a whole number of at least 1"),
        ({"record_every": 0}, "record_every = 0 must be a whole number of at least 1"),
        ({"record_every": 1.5}, "record_every = 1.5 must be a whole number of at least 1"),
        ({"seed": -1}, "seed -1 must be a whole number from 0 to 2^32 - 1"),
        ({"seed": 2**32}, "seed 4294967296 must be a whole number"),
        ({"seed": 0.5}, "seed 0.5 must be a whole number"),
        ({"seed": [0, "1"]}, "seed '1' must be a whole number"),
        ({"seed": []}, "seed is an empty list: give at least one"),
        ({"tolerance": "small", "metrics": "all"}, "tolerance = 'small' must be a number"),
        ({"tolerance": -1, "metrics": "all"}, "tolerance = -1 must be a number of at least 0"),
        ({"tolerance": 0.1}, "tolerance needs the metric gradient_norm"),
        ({"tolerance": 0.1, "metrics": ["consensus"]}, "tolerance needs the metric gradient_norm"),
        ({"metrics": ["squared_error"]}, "squared_error' cannot be computed for this problem"),
    ],
)
def test_options(options: dict[str, Any], words: str) -> None:
    with refused(hb.SettingError, words):
        solve(**options)


@pytest.mark.parametrize(
    ("kind", "ask", "known"),
    [
        ("metric", lambda: solve(metrics=["loss"]), "consensus, gradient_norm"),
        ("algorithm", lambda: hb.algorithms.get("loss"), "dsbo"),
        ("problem", lambda: hb.problems.get("loss"), "hyperopt, policy, quadratic"),
        ("network", lambda: hb.networks.get("loss"), "complete, erdos_renyi"),
    ],
)
def test_unknown_names_list_the_known_ones(kind: str, ask: Callable[[], Any], known: str) -> None:
    with refused(hb.ConfigError, f"no {kind} 'loss'", "There are: ", known):
        ask()


@pytest.mark.parametrize("algorithm", ["dsbo", hb.DSBO])
def test_an_algorithm_without_settings(algorithm: Any) -> None:
    with refused(hb.SettingError, "algorithm must be one with its settings", "hb.DSBO(alpha="):
        solve(algorithm)


def test_a_problem_that_is_none() -> None:
    with refused(hb.ProblemError, "problem must be a hb.Problem", "dict"):
        solve(problem={"outer": outer})


def test_a_network_that_is_none() -> None:
    disconnected = np.eye(AGENTS)
    with refused(hb.NetworkError, "three parts", "{0}", "{2}", "never agree"):
        hb.solve(problem(), disconnected, dsbo(), steps=2)


# --- errors during a run -----------------------------------------------------------------------


def test_divergence_because_gamma_is_too_large() -> None:
    steep = [{k: 10 * v for k, v in shard.items()} for shard in shards()]
    run = problem(inner_data=steep, batch_size=None)
    largest = hb.curvature(run).largest
    assert 2 / largest < 1
    with refused(
        hb.DivergenceError,
        "The run diverged at step",
        "variable y",
        f"gamma = 1 is above 2/L_g = {2 / largest:.3g} (estimated)",
    ) as caught:
        solve(dsbo(gamma=1, smoothness=largest), problem=run, steps=5000, record_every=10)
    error = caught.value
    assert f"step {error.step}: agent {error.agent}, variable {error.variable}." in str(error)
    assert error.variable == "y"
    assert error.agent in range(AGENTS)
    assert error.history["step"].tolist() == list(range(0, error.step, 10))
    # It is the first such step: a run with one step less ends well.
    fine = solve(dsbo(gamma=1, smoothness=largest), problem=run, steps=error.step - 1)
    assert fine.status == "finished"


def test_divergence_because_the_series_diverges() -> None:
    run = problem(x0=np.full(2, 3.0), batch_size=None)
    algorithm = dsbo(
        gamma=0.01, alpha=1.0, beta=1, terms=400, smoothness=0.01, strong_convexity=0.01
    )
    with refused(hb.DivergenceError, "smoothness = 0.01 is below half of the largest curvature"):
        solve(algorithm, problem=run, steps=2000)


class State(NamedTuple):
    x: jax.Array
    y: jax.Array


@dataclass(frozen=True, kw_only=True)
class Tiny(hb.Algorithm):
    """Starts like any algorithm; its step is `change`."""

    exact = False
    change: Any

    def init(self, agent: hb.Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: hb.Agent, state: State) -> State:
        return self.change[0](agent, state)  # in a tuple, or it would count as a schedule


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda agent, s: s._replace(x=s.x.astype(jnp.float32)),
            "float32[3, 2]",
        ),
        (lambda agent, s: s._replace(y=jnp.append(s.y, 0.0)), "float64[3, 3]"),
    ],
)
def test_a_step_that_changes_its_state(change: Any, words: str) -> None:
    both = ("float64[3, 2]", words)
    with refused(hb.SettingError, "Tiny.step must keep the shapes and dtypes", *both):
        solve(Tiny(change=(change,)))


def test_a_slot_that_is_drawn_twice() -> None:
    def twice(agent: hb.Agent, state: State) -> State:
        agent.draw_inner("xi")
        agent.draw_outer("xi")
        return state

    with refused(hb.SettingError, "slot 'xi' is drawn twice in one step", "a name of its own"):
        solve(Tiny(change=(twice,)))


def test_exact_of_an_x_of_another_shape() -> None:
    with refused(hb.ProblemError, "x has 3 entries", "x0 has 2"):
        hb.exact(problem(), np.zeros(3))
    with refused(hb.ProblemError, "structure of the problem's x0"):
        hb.exact(problem(), {"x": np.zeros(2)})


def test_a_schedule_is_checked_in_every_step() -> None:
    with refused(hb.SettingError, "beta = 5 at K = 3, T = 20 must be at most 1"):
        solve(dsbo(beta=lambda step: jnp.where(step == 7, 5.0, 0.1)), steps=20)


def test_a_schedule_that_asks_in_python_is_told_what_to_use() -> None:
    with refused(hb.SettingError, "alpha: ", "Use jnp.where(step < 5, 0.1, 0.01)"):
        solve(dsbo(alpha=lambda step: 0.1 if step < 5 else 0.01), steps=20)


def test_a_schedule_that_fails_is_named() -> None:
    with refused(hb.SettingError, "gamma: division by zero"):
        solve(dsbo(gamma=lambda step: 1 / 0), steps=20)


def test_constants_that_contradict_each_other() -> None:
    with refused(hb.SettingError, "strong_convexity = 20 is above smoothness = 9"):
        dsbo(strong_convexity=20.0, smoothness=9.0)


def test_no_steps_at_all() -> None:
    """Also if the algorithm and the steps are chosen."""
    for algorithm in (dsbo(), None):
        with refused(hb.SettingError, "steps = 0 must be a whole number"):
            hb.solve(problem(), hb.ring(AGENTS), algorithm, steps=0)


def test_half_precision() -> None:
    with refused(hb.ProblemError, "x0 is float16: runs are in float32 or float64"):
        problem(x0=np.zeros(2, np.float16))


def test_a_loss_that_is_not_a_number_at_the_start() -> None:
    with refused(hb.ProblemError, "The outer loss at the starting point is nan"):
        nowhere = problem(outer=lambda x, y, batch: jnp.log(-1 - jnp.sum(y**2)))
        solve(dsbo(), problem=nowhere, metrics="all")


def test_links_cannot_fail_where_a_server_speaks() -> None:
    fed = hb.FedSBO.suggest(hb.Scale(3.0, 0.5))
    with refused(hb.SettingError, "FedSBO speaks through a server"):
        solve(fed, links=hb.Drop(0.1))
