"""Cells are measured by processes, can be stopped and gone on with, and fail with a message."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hobnob as hb
from hobnob.studies.cell import Bench, Cell, Found
from hobnob.studies.pool import CellError, measure_all, read_all

pytestmark = pytest.mark.slow


def run(bench: Bench, steps: int, log: str, seed: int = 0) -> Found:
    with Path(log).open("a") as file:
        file.write(f"{os.getpid()} {sorted(os.sched_getaffinity(0))}\n")
    problem = hb.problems.get("quadratic")(agents=3, noise=0.1, batch_size=1)
    dsoba = hb.DSOBA(alpha=0.001, beta=0.01, gamma=0.01, theta=0.1)
    result = bench.solve(problem, hb.ring(3), dsoba, steps=steps, seed=seed, metrics=["objective"])
    return {"x": np.asarray(result.x), "objective": result.history["objective"]}


def bad_input(bench: Bench) -> Found:
    raise hb.SettingError("gamma is too large.")


def broken(bench: Bench) -> Found:
    raise ZeroDivisionError("a mistake in the code")


def dies(bench: Bench) -> Found:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def quiet(cell: Cell, part: float) -> None:
    pass


def cells(log: Path, steps: int = 50, count: int = 3) -> list[Cell]:
    options = [{"steps": steps, "log": str(log), "seed": i} for i in range(count)]
    return [Cell(f"run-{i}", run, o, work=i + 1) for i, o in enumerate(options)]


def test_every_cell_is_measured_once_by_processes_on_cores_of_their_own(tmp_path: Path) -> None:
    log, seen = tmp_path / "log", []
    every = cells(log)
    assert measure_all(every, tmp_path, 2, lambda cell, part: seen.append((cell.name, part)))
    lines = log.read_text().splitlines()
    assert len(lines) == 3
    workers = {line.split(maxsplit=1)[0] for line in lines}
    assert len(workers) == 2
    assert str(os.getpid()) not in workers
    if len(os.sched_getaffinity(0)) >= 2:
        assert len({line.split(maxsplit=1)[1] for line in lines}) == 2
    assert {name for name, part in seen if part == 1} == {"run-0", "run-1", "run-2"}

    found = read_all(every, tmp_path)
    alone = run(Bench(tmp_path / "alone", lambda part: None), 50, str(log), seed=1)
    np.testing.assert_array_equal(found["run-1"]["x"], alone["x"])
    assert not np.array_equal(found["run-0"]["x"], found["run-1"]["x"])

    assert measure_all(every, tmp_path, 2, quiet)
    assert len(log.read_text().splitlines()) == 4, "what is there must not be measured again"


def test_ctrl_c_keeps_what_is_under_way_and_the_next_call_goes_on(tmp_path: Path) -> None:
    log, steps = tmp_path / "log", 300_000
    cell = cells(log, steps, count=1)
    started = threading.Event()

    def tell(cell: Cell, part: float) -> None:
        if part > 0:
            started.set()

    def press() -> None:
        started.wait(120)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    assert not measure_all(cell, tmp_path, 1, tell)
    assert not (tmp_path / "cells").exists()
    assert list((tmp_path / "under-way").rglob("checkpoint*")), "the run must have been saved"

    parts: list[float] = []
    assert measure_all(cell, tmp_path, 1, lambda cell, part: parts.append(part))
    assert parts[0] > 0.01, "it must go on where it was, not begin again"
    assert not (tmp_path / "under-way" / "run-0").exists()
    alone = run(Bench(tmp_path / "alone", lambda part: None), steps, str(log))
    np.testing.assert_array_equal(read_all(cell, tmp_path)["run-0"]["x"], alone["x"])


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (bad_input, "Measuring bad failed. gamma is too large."),
        (broken, "ZeroDivisionError: a mistake in the code"),
        (dies, "ended without a message while measuring bad"),
    ],
)
def test_a_cell_that_fails_names_itself(measure: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(CellError, match=message):
        measure_all([Cell("bad", measure)], tmp_path, 2, quiet)
    assert not (tmp_path / "cells").exists()


def test_a_run_that_diverges_is_a_finding(tmp_path: Path) -> None:
    problem = hb.problems.get("quadratic")(agents=3)
    wild = hb.DSBO(alpha=0.01, beta=0.5, gamma=1.0, terms=5, smoothness=20.0, strong_convexity=1.0)
    options: dict[str, Any] = {"steps": 400, "record_every": 5, "metrics": ["objective"]}
    history = Bench(tmp_path, lambda part: None).history(problem, hb.ring(3), wild, **options)
    assert history["step"].tolist() == list(range(0, 401, 5))
    assert np.isfinite(history["objective"][0])
    assert history["objective"][-1] == np.inf
