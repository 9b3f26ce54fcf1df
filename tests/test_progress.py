"""The progress bar: shown on a terminal or on request, silent otherwise."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hobnob.run.progress import ProgressBar

pytestmark = pytest.mark.slow

DEADLINE = 240.0

CHILD = """
import sys
import jax.numpy as jnp, numpy as np
import hobnob as hb

shown = {"None": None, "True": True, "False": False}[sys.argv[1]]
data = [np.arange(2.0) + k for k in range(2)]

def loss(x, y, batch):
    return jnp.mean((y[0] - batch) ** 2) + (x[0] - y[0]) ** 2

problem = hb.Problem(loss, loss, np.zeros(1), np.zeros(1), data, data, None)
dsbo = hb.DSBO(alpha=.01, beta=.1, gamma=.1, terms=1, smoothness=5., strong_convexity=1.)
hb.solve(problem, hb.path(2), dsbo, steps=1234, metrics=["outer_loss"], progress=shown,
         record_every=1234, callback=lambda run, state: print("a row"))
print("done")
"""


def on_a_terminal(tmp_path: Path, shown: str) -> tuple[str, str]:
    """Standard output and terminal text of a child whose standard error is a terminal."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    ours, theirs = pty.openpty()
    output = tmp_path / "output"
    with output.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, str(script), shown],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"},
        )
    os.close(theirs)
    got, deadline = bytearray(), time.monotonic() + DEADLINE
    try:
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    more = os.read(ours, 65536)
                except OSError:  # Linux raises it when the other end is closed
                    break
                if not more:
                    break
                got += more
        code = process.wait(timeout=DEADLINE)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert code == 0, got.decode(errors="replace")
    return output.read_text(), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", got.decode())


@pytest.mark.parametrize("shown", ["True", "None"])
def test_a_terminal_gets_a_bar(tmp_path, shown):
    output, terminal = on_a_terminal(tmp_path, shown)
    last = re.split(r"[\r\n]+", terminal.strip())[-1]
    assert last.startswith("solving")
    assert "1234/1234" in last
    assert re.search(r"[\d,]+ steps/s", last)
    assert re.search(r"outer loss 0\.\d+", last)
    # What the callback prints is data and must go to standard output.
    assert output == "a row\na row\ndone\n"


def test_a_terminal_gets_nothing_where_that_is_asked_for(tmp_path):
    assert on_a_terminal(tmp_path, "False") == ("a row\na row\ndone\n", "")


def test_a_pipe_gets_a_bar_only_by_request(capfd):
    for shown, expected in ((None, ""), (False, ""), (True, "250/500")):
        bar = ProgressBar(shown)
        bar.start(0, 500)
        bar.chunk(250, 12_345.6, {})
        bar.end()
        captured = capfd.readouterr()
        assert captured.out == ""
        assert expected in captured.err
        assert bool(captured.err) == bool(expected)
    bar = ProgressBar(True)
    bar.start(100, 500)
    bar.chunk(500, 0.5, {})
    bar.end()
    captured = capfd.readouterr().err
    assert "500/500" in captured
    assert "0.5 steps/s" in captured
