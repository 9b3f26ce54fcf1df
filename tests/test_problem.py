"""Problem: pytrees to flat vectors and back, precision, bounds and fingerprints."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hobnob as hb
from hobnob.ground.pytrees import VectorLayout

SHAPES = st.lists(st.lists(st.integers(1, 3), max_size=3).map(tuple), min_size=1, max_size=4)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(SHAPES, st.lists(st.integers(1, 3), max_size=2).map(tuple))
def test_pytrees_round_trip_with_leading_axes(shapes: list[Any], lead: tuple[int, ...]) -> None:
    layout = VectorLayout({"leaves": [np.zeros(shape) for shape in shapes]})
    assert layout.size == sum(int(np.prod(shape)) for shape in shapes)
    flat = np.arange(np.prod(lead, dtype=int) * layout.size, dtype=float)
    flat = flat.reshape(*lead, layout.size)
    tree = layout.unravel(flat, np)
    assert [leaf.shape for leaf in tree["leaves"]] == [lead + shape for shape in shapes]
    assert (layout.ravel(tree) == flat).all()
    # Each row alone unravels to its part of the stack.
    first = layout.unravel(flat[(0,) * len(lead)], np)
    for leaf, one in zip(tree["leaves"], first["leaves"], strict=True):
        assert (leaf[(0,) * len(lead)] == one).all()


def test_jax_unravels_like_numpy() -> None:
    layout = VectorLayout({"b": np.zeros(()), "a": np.zeros((2, 3))})
    flat = np.arange(14, dtype=np.float32).reshape(2, 7)
    by_jax, by_numpy = jax.jit(layout.unravel)(flat), layout.unravel(flat, np)
    assert isinstance(by_numpy["a"], np.ndarray)
    assert (np.asarray(by_jax["a"]) == by_numpy["a"]).all()
    assert (np.asarray(by_jax["b"]) == flat[:, 6]).all()  # dict keys are sorted: a before b


# The same text builds the problem here and in another process.
SOURCE = """
import jax, jax.numpy as jnp, numpy as np
import hobnob as hb

def build(constant=0.5, shift=(1.0, 2.0), record=0.25, x0=0.0, y0=0.0, bounds=None, batch_size=2,
          outer_factor=1.0, wrap=lambda f: f, dtype=np.float64, length=3):
    weights = np.array(shift)
    @wrap
    def inner(x, y, b):
        fit = jnp.mean((b["a"] @ y["w"] - b["t"]) ** 2) + (y["c"] - 1) ** 2
        return fit + constant * jnp.sum(jnp.exp(x["r"]) * y["w"] ** 2) + jnp.sum(weights * y["w"])
    def outer(x, y, b):
        return outer_factor * jnp.mean(jnp.abs(b["a"] @ y["w"] - b["t"])) + y["c"] ** 2
    rng = np.random.default_rng(0)
    def shard(n):
        return {"a": rng.normal(size=(n, 2)), "t": rng.normal(size=n)}
    inner_data, outer_data = [[shard(n) for n in (length, 5)] for _ in range(2)]
    inner_data[1]["t"][2] = record
    x, y = {"r": np.full(2, x0, dtype)}, {"w": np.full(2, y0, dtype), "c": np.array(1.0, dtype)}
    return hb.Problem(outer, inner, x, y, outer_data, inner_data, batch_size, x_bounds=bounds)
"""
_scope: dict[str, Any] = {}
exec(SOURCE, _scope)
build = _scope["build"]
PARTS = [
    "outer loss",
    "inner loss",
    "outer data",
    "inner data",
    "starting point",
    "bounds of x",
]


def test_fingerprints_of_equal_problems_are_equal() -> None:
    assert list(build().fingerprint) == PARTS
    assert build().fingerprint == build().fingerprint
    assert build(wrap=jax.jit).fingerprint == build(wrap=jax.jit).fingerprint


def test_fingerprints_are_the_same_in_another_process() -> None:
    code = SOURCE + (
        "import json; print(json.dumps([build().fingerprint, "
        "build(wrap=jax.jit, bounds=(None, 3.0), batch_size=None).fingerprint]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    here = [build(), build(wrap=jax.jit, bounds=(None, 3.0), batch_size=None)]
    assert json.loads(done.stdout) == [problem.fingerprint for problem in here]


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"constant": 0.5 + 1e-12}, {"inner loss"}),
        ({"shift": (1.0, 2.0 + 1e-12)}, {"inner loss"}),
        ({"outer_factor": 2.0}, {"outer loss"}),
        ({"record": 0.25 + 1e-12}, {"inner data"}),
        ({"x0": 1e-12}, {"starting point"}),
        ({"y0": 1e-12}, {"starting point"}),
        ({"bounds": (-1.0, None)}, {"bounds of x"}),
        ({"bounds": (None, 1.0)}, {"bounds of x"}),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, lambda f: jax.jit(jax.jit(f))])
def test_every_change_shows_in_its_own_part(
    change: dict[str, Any], parts: set[str], wrap: Any
) -> None:
    was, is_now = build(wrap=wrap).fingerprint, build(wrap=wrap, **change).fingerprint
    assert {part for part in PARTS if was[part] != is_now[part]} == parts


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"batch_size": 3}, {"outer data", "inner data"}),
        ({"batch_size": None}, {"outer data", "inner data"}),
        ({"length": 4}, {"outer data", "inner data"}),
        ({"dtype": np.float32}, {"outer data", "inner data", "starting point"}),
    ],
)
def test_changes_that_show_in_several_parts(change: dict[str, Any], parts: set[str]) -> None:
    was, is_now = build().fingerprint, build(**change).fingerprint
    assert parts <= {part for part in PARTS if was[part] != is_now[part]}


def test_the_bounds_of_different_sides_differ() -> None:
    sides = [(-1.0, None), (None, 1.0), (-1.0, 1.0), None]
    assert len({build(bounds=side).fingerprint["bounds of x"] for side in sides}) == 4


# --- precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x0", "y0", "dtype"),
    [
        (np.zeros(2), np.zeros(2), np.float64),
        (np.zeros(2, np.float32), np.zeros(2, np.float32), np.float32),
        (np.zeros(2, np.float32), np.zeros(2), np.float64),
        (jnp.zeros(2), jnp.zeros(2), np.float32),
        ([0, 0], [1, 1], np.float64),
    ],
)
def test_the_dtype_of_the_start_is_the_precision(x0: Any, y0: Any, dtype: Any) -> None:
    def loss(x: Any, y: Any, b: Any) -> Any:
        return jnp.mean((b - y[0] - x[0]) ** 2) + y[1] ** 2

    data = [np.ones((3, 1))] * 2
    problem = hb.Problem(loss, loss, x0, y0, data, data)
    assert problem.dtype == dtype
    assert {leaf.dtype for leaf in jax.tree.leaves((problem.x0, problem.y0))} == {np.dtype(dtype)}
    assert problem.inner_data.arrays.dtype == dtype
    with problem.precision():
        value = problem.pooled_inner(jnp.zeros(2), jnp.zeros(2), problem.place()[1])
    assert value.dtype == dtype
    assert not jax.config.read("jax_enable_x64")


def test_in_precision() -> None:
    problem = build(bounds=({"r": np.array([-1.0, -2.0])}, 3.0))
    assert problem.fingerprint  # now cached
    narrow = problem.in_precision(np.float32)
    assert "fingerprint" not in vars(narrow), "it would be the wide problem's"
    assert (problem.dtype, narrow.dtype) == (np.float64, np.float32)
    for part in (narrow.x0, narrow.y0, narrow.inner_data.arrays, narrow.outer_data.arrays):
        assert {leaf.dtype for leaf in jax.tree.leaves(part)} == {np.dtype(np.float32)}
    assert problem.inner_data.arrays["a"].dtype == np.float64  # the original stays
    assert narrow.x_bounds is not None
    np.testing.assert_array_equal(narrow.x_bounds, [[-1, -2], [3, 3]])

    wide = narrow.in_precision(np.float64)
    assert wide.dtype == np.float64
    np.testing.assert_allclose(
        wide.inner_data.arrays["a"], problem.inner_data.arrays["a"], rtol=1e-6
    )
    x = {"r": np.array([0.1, 0.2])}
    assert hb.exact(wide, x).value == pytest.approx(hb.exact(problem, x).value, rel=1e-5)


# --- bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "box"),
    [
        ((None, 3.0), [[-np.inf, -np.inf], [3, 3]]),
        ((-1, None), [[-1, -1], [np.inf, np.inf]]),
        ((np.array([-1.0, -2.0]), None), [[-1, -2], [np.inf, np.inf]]),
        ((np.array([-1.0, -2.0]), 5.0), [[-1, -2], [5, 5]]),
        (({"r": np.array([-1.0, -2.0])}, {"r": np.array([1.0, 2.0])}), [[-1, -2], [1, 2]]),
        ((None, None), [[-np.inf, -np.inf], [np.inf, np.inf]]),
    ],
)
def test_bounds_of_every_shape(bounds: Any, box: Any) -> None:
    problem = build(bounds=bounds)
    assert problem.x_bounds is not None
    np.testing.assert_array_equal(problem.x_bounds, box)
    far = np.array([-100.0, 100.0])
    np.testing.assert_array_equal(problem.project(far), [max(-100, box[0][0]), min(100, box[1][1])])


def test_without_bounds_nothing_is_projected() -> None:
    far = np.array([-100.0, 100.0])
    assert build().project(far) is far


def test_what_it_says_of_itself() -> None:
    assert repr(build()) == "Problem('problem': 2 agents, d_x = 2, d_y = 3, float64)"


def test_a_list_of_numbers_is_a_vector() -> None:
    shards = [np.ones((4, 3)), np.ones((5, 3))]

    def loss(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(jnp.sum((batch * (y - x)) ** 2, axis=1)) + jnp.sum((y - 1) ** 2)

    problem = hb.Problem(loss, loss, [0, 0, 0], [0.0, 1.0, 2.0], shards, shards)
    assert problem.x0.shape == (3,)
    assert problem.x0.dtype == np.float64
    np.testing.assert_array_equal(problem.y0, [0.0, 1.0, 2.0])
    assert hb.exact(problem, [1, 1, 1]).value == hb.exact(problem, np.ones(3)).value
