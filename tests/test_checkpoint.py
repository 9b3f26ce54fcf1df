"""Checkpoint files: complete or refused, and resumed only by the run that wrote them."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import hobnob as hb
from hobnob.run.checkpoint import FILE, Checkpoint, load, save

repeatable = settings(derandomize=True, deadline=None, max_examples=60)
HEADER_LINES = 2


def same_bits(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    def bits(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        return {name: (v.dtype.str, v.shape, v.tobytes()) for name, v in arrays.items()}

    return bits(a) == bits(b)


EXAMPLE = Checkpoint(
    step=40,
    seconds=0.1 + 0.2,
    identity={"seed": "3", "network": "0" * 64},
    state={"x": np.array([[1.5, np.nan], [-0.0, np.inf]]), "u": np.zeros((2, 0), np.float32)},
    history={"step": np.arange(3), "objective": np.array([3.0, 2.0, 1.0])},
)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a valid file."""
    folder = tmp_path_factory.mktemp("example")
    save(folder, EXAMPLE)
    return (folder / FILE).read_bytes()


def read(content: bytes) -> Checkpoint:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_bytes(content)
        return load(Path(folder))


def sealed(archive: bytes, form: bytes = b"hobnob checkpoint 1") -> bytes:
    """A file with the right checksum, whatever its content."""
    return b"\n".join((form, sha256(archive).hexdigest().encode(), archive))


def archived(arrays: dict[str, Any], **options: Any) -> bytes:
    archive = io.BytesIO()
    np.savez(archive, **options, **arrays)
    return archive.getvalue()


def contents(content: bytes) -> dict[str, np.ndarray]:
    archive = content.split(b"\n", HEADER_LINES)[HEADER_LINES]
    with np.load(io.BytesIO(archive), allow_pickle=False) as arrays:
        return dict(arrays)


def with_facts(content: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    arrays = contents(content)
    facts = json.loads(arrays["facts.json"].tobytes())
    change(facts)
    arrays["facts.json"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    return sealed(archived(arrays))


# Files


def any_bits(kind: str) -> st.SearchStrategy[np.ndarray]:
    """Arrays of any bit pattern: NaN with payloads, -0.0, infinities; also empty arrays."""
    raw = {"<f4": np.uint32, "<f8": np.uint64, "<i8": np.int64}[kind]
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    return hnp.arrays(raw, shapes).map(lambda a: a.view(kind))


named_arrays = st.dictionaries(
    st.text("abcxyz_0/ é", min_size=1, max_size=6),
    st.sampled_from(["<f4", "<f8", "<i8"]).flatmap(any_bits),
    max_size=4,
)


@given(named_arrays, named_arrays, st.integers(0, 2**53), st.floats(0, 1e9))
@repeatable
def test_every_bit_comes_back(state, history, step, seconds):
    checkpoint = Checkpoint(step, seconds, {"seed": "[0, 1]", "é": "ü"}, state, history)
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "made" / "on the way", checkpoint)
        found = load(Path(folder) / "made" / "on the way")
    assert found[:3] == checkpoint[:3]
    assert same_bits(found.state, state)
    assert same_bits(found.history, history)


def test_special_numbers_come_back(tmp_path):
    payload = np.array([0x7FF8DEADBEEF0001, 0xFFF0000000000001], np.uint64).view(np.float64)
    arrays = {"nan": payload, "zero": np.array([-0.0, 0.0]), "none": np.zeros((0, 3), np.int64)}
    save(tmp_path, EXAMPLE._replace(state=arrays, history={}))
    assert same_bits(load(tmp_path).state, arrays)


def test_the_example_is_good(example):
    assert same_bits(read(example).state, EXAMPLE.state)
    assert read(with_facts(example, lambda facts: None)).seconds == EXAMPLE.seconds


def test_a_flip_of_any_byte_is_refused(example):
    for place in range(len(example)):
        changed = bytearray(example)
        changed[place] ^= 1
        with pytest.raises(hb.CheckpointError):
            read(bytes(changed))


@given(data=st.data())
@repeatable
def test_any_other_byte_anywhere_is_refused(example, data):
    changed = bytearray(example)
    changed[data.draw(st.integers(0, len(example) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(hb.CheckpointError):
        read(bytes(changed))


def test_any_truncation_is_refused(example):
    for length in range(len(example)):
        with pytest.raises(hb.CheckpointError):
            read(example[:length])


@given(st.binary(min_size=1, max_size=40))
@repeatable
def test_anything_appended_is_refused(example, more):
    with pytest.raises(hb.CheckpointError, match="torn or was changed"):
        read(example + more)


@given(st.binary(max_size=200))
@repeatable
def test_what_is_no_checkpoint_is_refused(content):
    with pytest.raises(hb.CheckpointError, match="is not a hobnob checkpoint"):
        read(b"\x89" + content)


@given(st.binary(max_size=200))
@repeatable
def test_foreign_content_with_a_right_checksum_is_refused(content):
    with pytest.raises(hb.CheckpointError, match="does not hold what a checkpoint holds"):
        read(sealed(content))


@pytest.mark.parametrize("missing", ["step", "seconds", "identity", "versions"])
def test_missing_facts_are_refused(example, missing):
    with pytest.raises(hb.CheckpointError, match=f"does not hold.*{missing}"):
        read(with_facts(example, lambda facts: facts.pop(missing)))


def test_another_format_is_refused_by_its_name(example):
    archive = example.split(b"\n", HEADER_LINES)[HEADER_LINES]
    with pytest.raises(
        hb.CheckpointError, match=r"format 'hobnob checkpoint 2', .* 'hobnob checkpoint 1'"
    ):
        read(sealed(archive, b"hobnob checkpoint 2"))


@pytest.mark.parametrize("name", ["hobnob", "jax", "jaxlib"])
def test_another_version_is_refused_by_its_number(example, name):
    with pytest.raises(hb.CheckpointError) as caught:
        read(with_facts(example, lambda facts: facts["versions"].update({name: "0.0.7"})))
    assert f"was written by {name} 0.0.7; this is {name} " in str(caught.value)


class Bomb:
    """Unpickling this object leaves a trace."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


def test_pickles_are_never_read(example, tmp_path):
    trace = tmp_path / "went off"
    bomb = np.array([Bomb(trace)], dtype=object)
    arrays = {**contents(example), "state/x": bomb}
    for content in (archived(arrays, allow_pickle=True), pickle.dumps(Bomb(trace))):
        with pytest.raises(hb.CheckpointError, match="does not hold what a checkpoint holds"):
            read(sealed(content))
    assert not trace.exists()
    pickle.loads(pickle.dumps(Bomb(trace)))
    assert trace.exists()  # unpickling would have run it


def test_pickles_are_never_written(example, tmp_path):
    archive = io.BytesIO(example.split(b"\n", HEADER_LINES)[HEADER_LINES])
    with zipfile.ZipFile(archive) as entries:
        for name in entries.namelist():
            np.load(io.BytesIO(entries.read(name)), allow_pickle=False)
    objects = {"x": np.array([{}], dtype=object)}
    with pytest.raises(ValueError, match="allow_pickle"):
        save(tmp_path, EXAMPLE._replace(state=objects))
    assert not any(tmp_path.iterdir())


# A full disk

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from hobnob.ground.errors import CheckpointError
from hobnob.run.checkpoint import Checkpoint, save

folder = Path(sys.argv[1])
save(folder, Checkpoint(1, 0.0, {}, {"x": np.arange(10.0)}, {}))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    save(folder, Checkpoint(2, 0.0, {}, {"x": np.arange(100_000.0)}, {}))
except CheckpointError as error:
    print(error)
"""


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path):
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert child.stdout.startswith(
        f"The checkpoint of step 2 could not be written to {tmp_path}: File too large."
    )
    assert [file.name for file in tmp_path.iterdir()] == [FILE]
    found = load(tmp_path)
    assert found.step == 1
    assert same_bits(found.state, {"x": np.arange(10.0)})


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(hb.CheckpointError, match=r"could not be written to .*taken"):
        save(tmp_path / "taken", EXAMPLE)


# Runs

AGENTS = 3


def make_problem(tilt: float = 0.0, data: float = 0.0, start: float = 0.0) -> hb.Problem:
    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((y - batch) ** 2) + (x @ x) / 10 + tilt * x[0]

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((y - batch) ** 2) + (y - x) @ (y - x) / 2

    outer_data = [np.full((2, 2), float(k)) for k in range(AGENTS)]
    inner_data = [shard + 1 + data for shard in outer_data]
    x0, y0 = np.full(2, start), np.zeros(2)
    return hb.Problem(outer, inner, x0, y0, outer_data, inner_data, batch_size=None)


PROBLEM, NETWORK = make_problem(), hb.ring(AGENTS)
SETTINGS = {"beta": 0.1, "gamma": 0.1, "terms": 1, "smoothness": 5.0, "strong_convexity": 1.0}
DSBO = hb.DSBO(alpha=0.01, **SETTINGS)
USUAL: dict[str, Any] = {"steps": 20, "record_every": 6, "metrics": ["consensus"], "seed": 5}


def run(folder: Path | None, problem: Any = PROBLEM, **changes: Any) -> hb.Result:
    options = {"network": NETWORK, "algorithm": DSBO, **USUAL, **changes}
    return hb.solve(problem, checkpoint=folder, progress=False, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, hb.Result]:
    folder = tmp_path_factory.mktemp("finished")
    return folder, run(folder)


@pytest.fixture
def folder(finished: tuple[Path, hb.Result], tmp_path: Path) -> Path:
    """A copy of the folder of a finished run of 20 steps."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def differences(error: pytest.ExceptionInfo[hb.CheckpointError], folder: Path) -> str:
    before, after = (
        f"The checkpoint in {folder} (step 20) belongs to another run: ",
        ". Resume with what it was started with, or start anew in another folder.",
    )
    message = str(error.value)
    assert message.startswith(before)
    assert message.endswith(after)
    return message[len(before) : -len(after)]


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "loss": ({"problem": make_problem(tilt=0.5)}, "not the same outer loss"),
    "data": ({"problem": make_problem(data=0.5)}, "not the same inner data"),
    "start": ({"problem": make_problem(start=0.5)}, "not the same starting point"),
    "network": ({"network": hb.Network(NETWORK.graph, "lazy")}, "not the same network"),
    "seed": ({"seed": 6}, "seed was 5, is 6"),
    "seeds": ({"seed": [5, 6]}, "seed was 5, is [5, 6]"),
    "rhythm": ({"record_every": 5}, "record_every was 6, is 5"),
    "metrics": ({"metrics": None}, "metrics was consensus, is "),
    "settings": (
        {"algorithm": hb.DSBO(alpha=0.02, **SETTINGS)},
        "hyper-parameter alpha was 0.01, is 0.02",
    ),
    "several": (
        {"algorithm": hb.DSBO(alpha=0.02, **{**SETTINGS, "gamma": 0.2}), "seed": 1},
        "hyper-parameter alpha was 0.01, is 0.02; hyper-parameter gamma was 0.1, is 0.2; "
        "seed was 5, is 1",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_run_is_refused_by_what_differs(folder, other):
    changes, expected = OTHERS[other]
    content = (folder / FILE).read_bytes()
    with pytest.raises(hb.CheckpointError) as caught:
        run(folder, resume=True, **{"steps": 30, **changes})
    assert differences(caught, folder) == expected
    assert (folder / FILE).read_bytes() == content


def test_a_schedule_is_known_by_its_values(folder):
    same = hb.DSBO(alpha=lambda step: 0.01, **SETTINGS)
    with pytest.raises(hb.CheckpointError) as caught:
        run(folder, resume=True, algorithm=same)
    assert "hyper-parameter alpha" in differences(caught, folder)


def test_a_schedule_that_differs_in_one_later_step_is_refused(tmp_path):
    def schedule(at: int) -> hb.DSBO:
        return hb.DSBO(alpha=lambda step: jnp.where(step == at, 0.02, 0.01), **SETTINGS)

    run(tmp_path, algorithm=schedule(33), steps=40, callback=lambda r, s: r.latest["step"] >= 20)
    with pytest.raises(hb.CheckpointError, match="hyper-parameter alpha"):
        run(tmp_path, resume=True, algorithm=schedule(34), steps=40)
    longer = run(tmp_path, resume=True, algorithm=schedule(33), steps=60)
    assert longer.steps == 60


@pytest.mark.parametrize("other", sorted(OTHERS.keys() - {"settings", "several"}))
def test_retune_accepts_nothing_but_other_settings(folder, other):
    changes, expected = OTHERS[other]
    tuned = hb.DSBO(alpha=0.02, **SETTINGS)
    with pytest.raises(hb.CheckpointError) as caught:
        run(folder, resume="retune", algorithm=tuned, **changes)
    assert differences(caught, folder) == expected


def test_retune_goes_on_from_where_it_was(folder, finished):
    tuned = hb.DSBO(alpha=0.02, **{**SETTINGS, "gamma": 0.2})
    result = run(folder, resume="retune", algorithm=tuned, steps=24)
    assert result.history["step"].tolist() == [0, 6, 12, 18, 24]
    before = {name: values[:4] for name, values in finished[1].history.items()}
    assert same_bits({name: values[:4] for name, values in result.history.items()}, before)
    assert load(folder).identity["hyper-parameter alpha"] == "0.02"
    straight = run(None, steps=24)
    assert not np.array_equal(result.x, straight.x)
    np.testing.assert_allclose(result.x, straight.x, atol=0.1)


def test_a_typing_error_in_resume_is_refused(folder):
    with pytest.raises(hb.SettingError, match="resume = 'returne' must be"):
        run(folder, resume="returne")


def test_resume_needs_a_folder():
    with pytest.raises(hb.SettingError, match="resume needs checkpoint=DIR"):
        run(None, resume=True)


def test_a_new_run_keeps_the_old_checkpoint_aside(folder):
    old = (folder / FILE).read_bytes()
    run(folder, seed=6, steps=7)
    assert sorted(file.name for file in folder.iterdir()) == [FILE, "checkpoint.previous"]
    assert (folder / "checkpoint.previous").read_bytes() == old
    assert load(folder).identity["seed"] == "6"


def test_resume_without_a_checkpoint_starts_at_the_start(tmp_path, finished):
    result = run(tmp_path / "new", resume=True)
    assert result.history["step"].tolist() == [0, 6, 12, 18, 20]
    np.testing.assert_array_equal(result.agents["x"], finished[1].agents["x"])
    assert load(tmp_path / "new").step == 20


def test_resume_of_a_finished_run_is_its_result(folder, finished):
    content = (folder / FILE).read_bytes()
    again, first = run(folder, resume=True), finished[1]
    assert (again.status, again.message, again.steps) == (first.status, first.message, first.steps)
    assert same_bits(again.history, first.history)
    for a, b in ((again.x, first.x), (again.y, first.y), (again.agents["y"], first.agents["y"])):
        np.testing.assert_array_equal(a, b)
    assert (folder / FILE).read_bytes() == content


def test_resume_keeps_the_rhythm_where_none_is_given(folder):
    result = run(folder, resume=True, record_every=None, steps=30)
    assert result.history["step"].tolist() == [0, 6, 12, 18, 24, 30]


def test_fewer_steps_than_done_are_refused(folder):
    with pytest.raises(hb.CheckpointError, match="at step 20, beyond the 19 steps asked for"):
        run(folder, resume=True, steps=19)


@pytest.mark.parametrize(("tolerance", "status"), [(1e9, "converged"), (1e-9, "not converged")])
def test_the_verdict_survives(tmp_path, tolerance, status):
    options = {"metrics": ["gradient_norm"], "tolerance": tolerance, "steps": 4}
    options["problem"] = make_problem(tilt=0.5)  # so that it does not start at its solution
    first = run(tmp_path, **options)
    again = run(tmp_path, resume=True, **options)
    assert (first.status, again.status) == (status, status)
    assert same_bits(first.history, again.history)
    assert again.steps == first.steps == (0 if status == "converged" else 4)


def test_a_torn_checkpoint_stops_the_run_and_stays(folder):
    torn = (folder / FILE).read_bytes()[:-9]
    (folder / FILE).write_bytes(torn)
    with pytest.raises(hb.CheckpointError, match="torn"):
        run(folder, resume=True)
    assert (folder / FILE).read_bytes() == torn


def test_a_folder_that_cannot_be_written_is_noticed_before_the_first_step(tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    seen = []
    with pytest.raises(hb.CheckpointError, match="cannot be written to"):
        hb.solve(
            hb.problems.get("quadratic")(agents=3),
            hb.ring(3),
            hb.DSBO(alpha=0.01, beta=0.1, gamma=0.05, terms=3, smoothness=20.0, strong_convexity=1),
            checkpoint=file / "folder",
            callback=lambda run, state: seen.append(1),
        )
    assert not seen
