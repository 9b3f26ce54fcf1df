"""The public names: all there, all documented, and quick to import."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import hobnob as hb

SOURCE = ast.parse(Path(hb.__file__).read_text())


@pytest.mark.parametrize("name", hb.__all__)
def test_every_name_resolves(name: str) -> None:
    value = getattr(hb, name)
    assert value is not None
    assert value.__doc__
    assert name in dir(hb)


def test_type_checkers_see_the_same_names() -> None:
    (block,) = (node for node in SOURCE.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    homes = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        homes |= {alias.asname or alias.name: node.module for alias in node.names}
    assert sorted(homes) == sorted(hb.__all__)
    # They are also what is imported at run time.
    for name, home in homes.items():
        value = getattr(hb, name)
        if isinstance(value, type(sys)):
            assert value.__name__ == f"{home}.{name}"
        else:
            assert value is getattr(sys.modules[str(home)], name)


def test_names_are_listed_once() -> None:
    assert len(hb.__all__) == len(set(hb.__all__))


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        hb.nonsense  # noqa: B018


def test_importing_is_quick() -> None:
    """A fresh process imports nothing heavy before a name is used."""
    code = (
        "import sys, json; import hobnob; dir(hobnob);"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert "hobnob" in loaded
    assert not loaded & {"jax", "numpy", "scipy", "matplotlib", "networkx", "sklearn", "rich"}


# --- what design.md promises -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "size"),
    [
        (lambda: hb.ring(8), 8),
        (lambda: hb.star(5), 5),
        (lambda: hb.path(5), 5),
        (lambda: hb.complete(5), 5),
        (lambda: hb.torus(3, 4), 12),
        (lambda: hb.exponential(8), 8),
        (lambda: hb.erdos_renyi(10, 0.5, seed=0), 10),
        (lambda: hb.Network(nx.cycle_graph(4), weights="metropolis"), 4),
        (lambda: hb.Network(np.full((3, 3), 1 / 3)), 3),
    ],
)
def test_networks(build: Any, size: int) -> None:
    network = build()
    assert network.size == size
    assert network.matrix.shape == (size, size)
    assert 0 <= network.rho < 1
    assert isinstance(network.graph, nx.Graph)
    assert network.graph.number_of_nodes() == size


AGENTS, DIM = 8, 3


@pytest.fixture(scope="module")
def problem() -> hb.Problem:
    rng = np.random.default_rng(0)

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((batch["a"] @ y["w"] + y["c"] - batch["b"]) ** 2)

    def inner(x: Any, y: Any, batch: Any) -> Any:
        ridge = jnp.sum(jnp.exp(x["logs"]) * y["w"] ** 2) + y["c"] ** 2
        return outer(x, y, batch) / 2 + ridge / 2

    def shards() -> list[Any]:
        return [
            {"a": rng.normal(size=(n, DIM)), "b": rng.normal(size=n)}
            for n in rng.integers(3, 9, AGENTS)
        ]

    x0, y0 = {"logs": np.zeros(DIM)}, {"w": np.zeros(DIM), "c": np.zeros(())}
    return hb.Problem(outer, inner, x0, y0, shards(), shards(), batch_size=1)


ALGORITHM = hb.DSBO(alpha=0.01, beta=0.1, gamma=0.1, terms=4, smoothness=5.0, strong_convexity=0.1)
COLUMNS = ["step", "samples", "bytes", "seconds", "objective", "gradient_norm", "consensus_x"]


def test_the_example_runs(problem: hb.Problem) -> None:
    result = hb.solve(problem, hb.ring(AGENTS), ALGORITHM, steps=20, seed=0, record_every=5)
    assert result.x["logs"].shape == (DIM,)
    assert result.y["w"].shape == (DIM,)
    assert result.y["c"].shape == ()
    assert sorted(result.agents) == ["x", "y"]
    assert result.agents["x"]["logs"].shape == (AGENTS, DIM)
    assert result.agents["y"]["c"].shape == (AGENTS,)
    np.testing.assert_allclose(result.x["logs"], result.agents["x"]["logs"].mean(axis=0))
    assert result.history["step"].tolist() == [0, 5, 10, 15, 20]
    for column in COLUMNS:
        assert result.history[column].shape == (5,)
        assert np.isfinite(result.history[column]).all()
    assert result.history["samples"].tolist() == [6 * step for step in (0, 5, 10, 15, 20)]
    assert result.status == "finished"
    assert result.success
    assert result.message == "All 20 steps are done."
    assert result.steps == 20
    assert list(result.to_pandas()["step"]) == [0, 5, 10, 15, 20]
    assert result.x["logs"].dtype == np.float64


def test_several_seeds_are_one_more_axis(problem: hb.Problem) -> None:
    options: dict[str, Any] = {"steps": 6, "record_every": 3, "metrics": ["consensus"]}
    network = nx.cycle_graph(AGENTS)
    several = hb.solve(problem, network, ALGORITHM, seed=[4, 5], **options)
    assert several.x["logs"].shape == (2, DIM)
    assert several.agents["y"]["w"].shape == (2, AGENTS, DIM)
    for column in ("step", "samples", "bytes", "seconds", "consensus_x"):
        assert several.history[column].shape == (2, 3)
    single = hb.solve(problem, network, ALGORITHM, seed=5, runtime=hb.Simulate(), **options)
    np.testing.assert_allclose(several.x["logs"][1], single.x["logs"], rtol=1e-12)
    assert list(several.to_pandas()["seed"]) == [4, 4, 4, 5, 5, 5]


def test_exact(problem: hb.Problem) -> None:
    value, gradient, y = hb.exact(problem, problem.x0)
    assert isinstance(value, float)
    assert gradient["logs"].shape == (DIM,)
    assert y["w"].shape == (DIM,)
    assert hb.optimum(problem).value <= value


def test_registries() -> None:
    assert "dsbo" in hb.algorithms.names()
    assert hb.algorithms.get("dsbo") is hb.DSBO
    assert {"quadratic", "hyperopt", "policy"} <= set(hb.problems.names())
    topologies = {"ring", "star", "path", "complete", "torus", "exponential", "erdos_renyi"}
    assert topologies <= set(hb.networks.names())
    assert hb.networks.get("ring") is hb.ring
    assert "consensus" in hb.metrics.names()
