"""The switch for fast/: without it, the library gives the same answers."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob import fast
from hobnob.fast import ffi
from hobnob.runtimes.apart.host_call import call_by_io, host_call

SCALE = hb.Scale(smoothness=10.0, strong_convexity=1.0)
QUADRATIC = hb.problems.get("quadratic")(agents=5, records=20, noise=0.1, batch_size=2)
POLICY = hb.problems.get("policy")(agents=4, states=12, features=3)


@pytest.mark.parametrize("closed", ["1", "yes"])
def test_the_environment_closes_the_door(monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    assert fast.enter() is not None
    monkeypatch.setenv("HOBNOB_PLAIN", closed)
    assert fast.enter() is None


@pytest.mark.parametrize("still_open", ["", "0"])
def test_nothing_and_zero_leave_it_open(monkeypatch: pytest.MonkeyPatch, still_open: str) -> None:
    monkeypatch.setenv("HOBNOB_PLAIN", still_open)
    assert fast.enter() is not None


@pytest.mark.parametrize(
    ("problem", "name"), [(QUADRATIC, "dsbo"), (QUADRATIC, "sparkle"), (POLICY, "dsbo")]
)
@pytest.mark.parametrize("seed", [0, [0, 1]], ids=["one seed", "two seeds"])
def test_the_plain_library_gives_the_same_answers(
    problem: hb.Problem, name: str, seed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer() -> hb.Result:
        algorithm = hb.algorithms.get(name).suggest(SCALE)
        return hb.solve(
            problem, hb.ring(problem.size), algorithm, steps=60, seed=seed, record_every=20
        )

    faster = answer()
    monkeypatch.setenv("HOBNOB_PLAIN", "1")
    plain = answer()
    for part in ("x", "y"):
        np.testing.assert_allclose(faster.agents[part], plain.agents[part], rtol=0, atol=1e-11)
    assert faster.history.keys() == plain.history.keys()
    for column, values in plain.history.items():
        if column != "seconds":
            np.testing.assert_allclose(faster.history[column], values, rtol=1e-8, atol=1e-11)
    assert not np.allclose(plain.x, problem.x0), "x does not move, so this compares nothing"


# --- calls from a compiled program into Python ----------------------------------------------------


class Doubling:
    """Reads a float32 vector of three and writes twice its value."""

    def __init__(self) -> None:
        self.calls = 0

    def called(self, inputs: fast.Addresses, outputs: fast.Addresses) -> None:
        self.calls += 1
        three = ctypes.c_float * 3
        source, into = three.from_address(inputs[0]), three.from_address(outputs[0])
        for i, number in enumerate(source):
            into[i] = 2 * number


@pytest.fixture
def fresh_trial() -> Iterator[None]:
    ffi.direct_call.cache_clear()
    yield
    ffi.direct_call.cache_clear()


@pytest.mark.parametrize("call", [call_by_io, ffi.DirectCall()], ids=["io_callback", "direct"])
def test_a_compiled_loop_calls_python(call: fast.HostCall) -> None:
    double, shape = Doubling(), jax.ShapeDtypeStruct((3,), jnp.float32)

    @jax.jit
    def eight_times(a: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda i, a: call(double, [shape], a)[0], a)

    assert eight_times(jnp.array([1.0, 2.0, 3.0], jnp.float32)).tolist() == [8, 16, 24]
    assert double.calls == 3


@pytest.mark.usefixtures("fresh_trial")
def test_the_direct_call_is_taken_where_jaxlib_is_as_expected() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(host_call(), ffi.DirectCall)


@pytest.mark.usefixtures("fresh_trial")
@pytest.mark.parametrize("part", ["_Frame", "_Buffers", "_Buffer"])
def test_another_layout_is_noticed_and_said_once(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A structure larger than jaxlib's imitates a jaxlib whose structures changed."""
    fields = [*getattr(ffi, part)._fields_, ("more", ffi._Word)]
    monkeypatch.setattr(ffi, part, type("Larger", (ctypes.Structure,), {"_fields_": fields}))
    with pytest.warns(UserWarning, match="can't call Python directly") as seen:
        chosen = [host_call(), host_call()]
    assert chosen == [call_by_io, call_by_io]
    assert len(seen) == 1


@pytest.mark.usefixtures("fresh_trial")
def test_a_jaxlib_that_refuses_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **options: Any) -> None:
        raise RuntimeError("another version of the interface")

    monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    with pytest.warns(UserWarning, match="RuntimeError: another version"):
        assert host_call() is call_by_io


def test_a_closed_door_means_io_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOBNOB_PLAIN", "1")
    assert host_call() is call_by_io
