"""A killed, interrupted or extended run ends with the bits of an uninterrupted one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb
from hobnob.run.checkpoint import FILE, Checkpoint, load

pytestmark = pytest.mark.slow

DEADLINE = 240.0  # seconds that a child may take; two are normal

# The same text makes the problem here and in the children. Its loss has a custom derivative rule
# (softplus), which the fingerprint must recognise in another process.
PROBLEM = """
import jax
import jax.numpy as jnp
import numpy as np
import hobnob as hb

def fit(y, batch):
    return jnp.mean(jax.nn.softplus(-batch["label"] * (batch["row"] @ y)))

def outer(x, y, batch):
    return fit(y, batch)

def inner(x, y, batch):
    return fit(y, batch) + jnp.exp(x[0]) * (y @ y) / 2

def shard(rng, count):
    label = np.where(rng.random(count) < 0.5, -1.0, 1.0)
    return {"row": rng.normal(size=(count, 3)) + label[:, None], "label": label}

rng = np.random.default_rng(11)
outer_data, inner_data = ([shard(rng, n) for n in (5, 3, 8)] for _ in range(2))
problem = hb.Problem(outer, inner, np.zeros(1), np.zeros(3), outer_data, inner_data, batch_size=2)
network = hb.path(3)
dsbo = hb.DSBO(alpha=0.05, beta=0.2, gamma=0.2, terms=2, smoothness=4.0, strong_convexity=0.5)
options = dict(seed=9, record_every=7, metrics=["consensus", "outer_loss"], progress=False)
"""

CHILD = (
    PROBLEM
    + """
import json, pathlib, sys, time

folder, steps, pace, stuck = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
rows = 0

def dawdle(run, state):
    global rows
    rows += 1
    time.sleep(pace)
    while rows == stuck and not pathlib.Path(folder, "go").exists():
        pathlib.Path(folder, "stuck").touch()
        time.sleep(0.01)

result = hb.solve(problem, network, dsbo, steps=steps, callback=dawdle, checkpoint=folder,
                  checkpoint_every=20, resume=True, **options)
print(json.dumps([result.status, result.message, result.steps]))
"""
)

made: dict[str, Any] = {}
exec(PROBLEM, made)
STEPS = 400


def run(folder: Path | None = None, steps: int = STEPS, **changes: Any) -> hb.Result:
    options = {**made["options"], "checkpoint": folder, "steps": steps, **changes}
    return hb.solve(made["problem"], made["network"], made["dsbo"], **options)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[hb.Result, Checkpoint]:
    """An uninterrupted run of 400 steps in this process, and its last checkpoint."""
    folder = tmp_path_factory.mktemp("straight")
    return run(folder), load(folder)


def bits(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {n: (v.dtype.str, v.shape, v.tobytes()) for n, v in arrays.items() if n != "seconds"}


def assert_same(found: Checkpoint, expected: Checkpoint) -> None:
    assert (found.step, found.identity) == (expected.step, expected.identity)
    assert bits(found.state) == bits(expected.state)
    assert bits(found.history) == bits(expected.history)


class Children:
    """Real processes, which all end with the test."""

    def __init__(self, folder: Path, cache: Path):
        self.folder, self.script = folder, folder / "child.py"
        self.script.write_text(CHILD)
        self.processes: list[subprocess.Popen[str]] = []
        # The first child and this process compile; later children find compiled programs.
        self.environment = {
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }

    def start(self, pace: float = 0.0, stuck: int = 0) -> subprocess.Popen[str]:
        arguments = [str(self.folder), str(STEPS), str(pace), str(stuck)]
        process = subprocess.Popen(
            [sys.executable, str(self.script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        self.processes.append(process)
        return process

    def wait(self, process: subprocess.Popen[str], until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not until():
            if process.poll() is not None:
                pytest.fail(f"The child ended too early:\n{process.communicate()[1]}")
            assert time.monotonic() < deadline, "the child takes too long"
            time.sleep(0.03)

    def step(self) -> int:
        """The step of the checkpoint, which must be complete at any moment."""
        return load(self.folder).step if (self.folder / FILE).exists() else 0

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        output, errors = process.communicate(timeout=DEADLINE)
        return process.returncode, output, errors


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def children(tmp_path: Path, cache: Path) -> Iterator[Children]:
    group = Children(tmp_path, cache)
    yield group
    for process in group.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_killed_again_and_again(children, straight):
    """Each child is killed between two rows: it is stuck at a later row until then."""
    for wanted, stuck in ((20, 10), (60, 20)):
        before = children.step()
        process = children.start(pace=0.02, stuck=stuck)
        children.wait(process, lambda goal=before + wanted: children.step() >= goal)
        process.kill()
        code, output, _ = children.end(process)
        assert (code, output) == (-signal.SIGKILL, "")
        assert before + wanted <= children.step() < STEPS
    code, output, errors = children.end(children.start())
    assert code == 0, errors
    assert json.loads(output) == ["finished", "All 400 steps are done.", STEPS]
    assert_same(load(children.folder), straight[1])
    assert [file.name for file in children.folder.glob(".*.part")] == []


def test_interrupted_it_saves_and_says_how_to_go_on(children, straight):
    process = children.start(pace=0.02, stuck=5)
    children.wait(process, (children.folder / "stuck").exists)
    saved = children.step()
    process.send_signal(signal.SIGINT)
    (children.folder / "go").touch()
    code, output, errors = children.end(process)
    assert code == 0, errors
    status, message, steps = json.loads(output)
    assert status == "interrupted"
    assert saved < steps < STEPS  # it saved once more, out of turn
    assert message == (
        f"Stopped after {steps} of {STEPS} steps. "
        f"Go on with checkpoint={str(children.folder)!r} and resume=True."
    )
    assert children.step() == steps
    # This process compiled everything itself.
    result = run(children.folder, resume=True)
    assert_same(load(children.folder), straight[1])
    assert bits(result.history) == bits(straight[0].history)


def test_a_second_interrupt_ends_at_once(children):
    process = children.start(stuck=5)
    children.wait(process, (children.folder / "stuck").exists)
    saved = children.step()
    assert saved == 20  # row 5 is step 28
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert process.poll() is None  # the first waits for the callback, which never ends
    process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:  # on a very slow machine both arrive as one
        process.send_signal(signal.SIGINT)
    code, output, errors = children.end(process)
    assert (code, output) == (-signal.SIGINT, "")
    assert "KeyboardInterrupt" in errors
    assert children.step() == saved
    assert [file.name for file in children.folder.glob(".*.part")] == []


# In one process, with a step that compiles quickly


class Held(NamedTuple):
    x: jax.Array
    y: jax.Array


@dataclass(frozen=True, kw_only=True)
class Walk(hb.Algorithm):
    """One noisy gradient per step."""

    exact: ClassVar[bool] = False

    def init(self, agent: hb.Agent) -> Held:
        return Held(agent.x0, agent.y0)

    def step(self, agent: hb.Agent, state: Held) -> Held:
        slope = agent.inner_gradient(state.x, state.y, agent.draw_inner("xi"))
        W = agent.mix(state)
        return Held(W.x + 0.01 * jnp.sum(slope), W.y - 0.1 * slope)


def quick(folder: Path, steps: int, **changes: Any) -> hb.Result:
    options = {**made["options"], "record_every": 30, "metrics": ["consensus"], **changes}
    return hb.solve(
        made["problem"], made["network"], Walk(), steps=steps, checkpoint=folder, **options
    )


@pytest.mark.parametrize("seed", [9, [9, 2]], ids=["one seed", "two seeds"])
def test_a_run_can_be_extended(tmp_path, seed):
    short = quick(tmp_path / "two", 100, seed=seed)
    assert short.history["step"].reshape(-1, 5)[0].tolist() == [0, 30, 60, 90, 100]
    long = quick(tmp_path / "two", 200, seed=seed, resume=True)
    whole = quick(tmp_path / "one", 200, seed=seed)
    assert long.history["step"].reshape(-1, 8)[0].tolist() == [0, 30, 60, 90, 120, 150, 180, 200]
    assert_same(load(tmp_path / "two"), load(tmp_path / "one"))
    assert bits(long.history) == bits(whole.history)
    assert bits(long.agents) == bits(whole.agents)
    assert long.ledger["rounds"].tolist() == whole.ledger["rounds"].tolist()
    assert (np.diff(long.history["seconds"]) > 0).all()
    assert not np.array_equal(long.agents["x"], short.agents["x"])


def test_saved_by_the_clock(tmp_path):
    """With 0 seconds, there is a checkpoint after every chunk."""
    saved: list[int] = []

    def watch(run: Any, state: Any) -> None:
        saved.append(load(tmp_path).step if (tmp_path / FILE).exists() else 0)

    quick(tmp_path, 100, checkpoint_seconds=0.0, callback=watch)
    # A row is recorded before its own step is saved, and after the previous chunk is.
    rows = [0, 30, 60, 90, 100]
    assert len(saved) == len(rows)
    for row, previous, step in zip(rows[1:], rows, saved[1:], strict=False):
        assert previous <= step < row
    assert load(tmp_path).step == 100


def test_saved_by_neither_is_saved_at_the_end(tmp_path):
    def watch(run: Any, state: Any) -> None:
        assert not (tmp_path / FILE).exists()

    quick(tmp_path, 100, checkpoint_seconds=None, callback=watch)
    assert load(tmp_path).step == 100


def test_stopped_by_a_callback_and_gone_on(tmp_path):
    """A real Ctrl-C signal, sent from inside; then resumed by the same call."""
    whole = quick(tmp_path / "one", 100)
    rows = []

    def interrupt(run: Any, state: Any) -> None:
        rows.append(state)
        if len(rows) == 3:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    stopped = quick(tmp_path / "two", 100, callback=interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert (stopped.status, stopped.success, stopped.steps) == ("interrupted", False, 60)
    result = quick(tmp_path / "two", 100, resume=True)
    assert result.status == "finished"
    assert_same(load(tmp_path / "two"), load(tmp_path / "one"))
    assert bits(result.history) == bits(whole.history)
