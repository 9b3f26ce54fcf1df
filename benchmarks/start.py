"""Start-up times, each measured in a new process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.table import Row

ROOT = Path(__file__).parent.parent


def help_seconds() -> float:
    clock = time.perf_counter()
    command = Path(sys.executable).with_name("hobnob")
    subprocess.run([command, "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - clock


def started(algorithm: str) -> dict[str, float]:
    """For the first solve of a process: the loop's compilation, and the wait beyond compilation."""
    worker = [sys.executable, "-m", "benchmarks.start", algorithm]
    done = subprocess.run(worker, check=True, stdout=subprocess.PIPE, cwd=ROOT)
    return json.loads(done.stdout)


def worker(algorithm: str) -> None:
    import jax

    import hobnob as hb
    from benchmarks.dsbo import DSBO, problem_of
    from benchmarks.matrix_free import DSOBA

    compiling: list[tuple[float, float]] = []

    def note(event: str, duration: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):  # tracing and lowering too
            compiling.append((time.perf_counter() - duration, time.perf_counter()))

    problem, network = problem_of(5), hb.ring(5)
    jax.monitoring.register_event_duration_secs_listener(note)  # type: ignore[arg-type]
    ends: list[float] = []

    def look(run: Any, state: Any) -> None:
        ends.append(time.perf_counter())

    chosen = {"DSBO": DSBO, "D-SOBA": DSOBA}[algorithm]
    clock = time.perf_counter()
    result = hb.solve(
        problem, network, chosen, steps=1, metrics=None, callback=look, progress=False
    )
    # Compilations may be nested: count overlapping time once.
    covered, until = 0.0, clock
    for begin, end in sorted(compiling):
        covered += max(0.0, min(end, ends[-1]) - max(begin, until))
        until = max(until, end)
    found = {"compile": result.compile_seconds, "beyond": ends[-1] - clock - covered}
    print(json.dumps(found))


def rows(quick: bool) -> Iterator[Row]:
    seconds: dict[str, Any] = {"at_most": True, "ratio": False, "unit": " s"}
    turns = range(1 if quick else 5)
    yield Row("hobnob --help", "the clock", min(help_seconds() for _ in turns), 0.3, **seconds)
    for algorithm, goal in (("DSBO", 2.0), ("D-SOBA", 1.0)):
        seen = [started(algorithm) for _ in turns]
        yield Row(f"{algorithm}, K=5: to the end of step 1, beyond compilation",
                  "the clock", min(s["beyond"] for s in seen), 0.2, **seconds)  # fmt: skip
        yield Row(f"{algorithm}, K=5: compilation", "the clock",
                  min(s["compile"] for s in seen), goal, **seconds)  # fmt: skip


if __name__ == "__main__":
    worker(sys.argv[1])
