"""Members in processes of their own, over real TLS on loopback, and all that they tell.

Every wait has a limit, and all processes end with the test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import hobnob as hb
from hobnob.problems.quadratic import Quadratic

ROOT = Path(__file__).parents[2]
LIMIT = 90.0  # seconds that anything may take on a busy machine
# The suggested steps for the condition of the tests' quadratic, whose solution they reach to 1e-9
# in 1,500 steps on a ring of five.
SETTINGS = {"alpha": 0.1, "beta": 0.15, "gamma": 0.15, "theta": 0.5}


def problem(agents: int) -> Any:
    return hb.problems.get("quadratic")(agents=agents, condition=4.0)


def solution_of(agents: int, present: list[int]) -> np.ndarray:
    """The optimum of some of the agents alone."""
    whole: Any = problem(agents)

    def shards(source: Any) -> list[dict[str, np.ndarray]]:
        starts = [(int(source.starts[k]), int(source.lengths[k])) for k in present]
        return [
            {name: np.asarray(array[a : a + n]) for name, array in source.arrays.items()}
            for a, n in starts
        ]

    return Quadratic(shards(whole.outer_data), shards(whole.inner_data)).solution


class Process:
    """A process that tells events, one line of JSON each."""

    def __init__(self, module: str, settings: dict[str, Any]):
        self.name = settings.get("name", module)
        self.began = time.time()
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.peers.{module}", json.dumps(settings)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.told: list[list[Any]] = []
        self.errors: list[str] = []
        self._news = threading.Condition()
        self._threads = [
            threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:  # half of a line, when it was killed
                continue
            with self._news:
                self.told.append(event)
                self._news.notify_all()

    def _read_errors(self) -> None:
        assert self._process.stderr
        self.errors.extend(self._process.stderr)

    # --- what it told --------------------------------------------------------------------------

    def until(self, true: Callable[[], Any], what: str, limit: float = LIMIT) -> Any:
        """Wait until something is true of what was told, and return it."""
        end = time.monotonic() + limit
        with self._news:
            while not (found := true()) and time.monotonic() < end and self.code is None:
                self._news.wait(0.1)
        found = found or true()
        assert found, f"{self.name}, not within {limit:g} s: {what}.\n{self.summary()}"
        return found

    def summary(self) -> str:
        lines = [f"{event[1] - self.began:.1f} {event}" for event in self.told[-5:]]
        return "\n".join([*self.logged, *lines, *self.errors[-8:], f"ended: {self.code}"])

    def last(self, what: str) -> list[Any] | None:
        return next((event for event in reversed(self.told) if event[0] == what), None)

    @property
    def logged(self) -> list[str]:
        lines = [event[2] for event in list(self.told) if event[0] == "log"]
        return lines + [line for line in self.errors if "turned a connection away" in line]

    @property
    def step(self) -> int:
        event = self.last("at")
        return event[2] if event else -1

    @property
    def up(self) -> set[str]:
        event = self.last("at")
        return set(event[3]) if event else set()

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def reaches(self, step: int, limit: float = LIMIT) -> None:
        self.until(lambda: self.step >= step, f"step {step}", limit)

    def goes_on(self, steps: int = 20, limit: float = LIMIT) -> None:
        self.reaches(self.step + steps, limit)

    def company(self) -> dict[str, Any]:
        asked = time.time()
        self.do("company")

        def answered() -> Any:
            event = self.last("company")
            return event is not None and event[1] >= asked and event

        return self.until(answered, "the company")[2]

    def refused(self, name: str) -> dict[str, int]:
        return self.company()["neighbours"][name]["refused"]

    # --- what is done to it --------------------------------------------------------------------

    def do(self, *words: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> float:
        """Returns when it was sent."""
        os.kill(self.pid, number)
        return time.time()

    def end(self, limit: float = LIMIT) -> dict[str, Any]:
        """Wait for the result."""
        event = self.until(lambda: self.last("end") or self.code not in (None, 0), "the end", limit)
        event = self.last("end")
        assert event is not None, self.summary()
        return event[2]

    def kill(self) -> None:
        if self.code is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait(LIMIT)
        for thread in self._threads:
            thread.join(LIMIT)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream
            with suppress(BrokenPipeError):
                stream.close()


class Town:
    """The members of one federation, each by its latest process."""

    def __init__(self, folder: Path, names: list[str], **settings: Any):
        self.folder, self.names = folder, names
        self.settings = {"folder": str(folder), "settings": SETTINGS, "steps": 10**9, **settings}
        self.members: dict[str, Process] = {}
        self.all: list[Process] = []

    def start(self, name: str, module: str = "member_run", **more: Any) -> Process:
        member = Process(module, {**self.settings, "name": name, **more})
        self.members[name] = member
        self.all.append(member)
        return member

    def start_all(self, **more: Any) -> None:
        for name in self.names:
            self.start(name, **more)

    def __getitem__(self, name: str) -> Process:
        return self.members[name]

    def stop_together(self, asks: str, limit: float = LIMIT) -> dict[str, dict[str, Any]]:
        self[asks].do("stop")
        return {name: self[name].end(limit) for name in self.names}

    def close(self) -> None:
        for process in self.all:
            process.kill()


def error_of(ended: dict[str, Any], solution: np.ndarray) -> float:
    return float(np.abs(np.array(ended["x"]) - solution).max())
