"""The tutorial of five machines is followed, in one folder and with five processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.peers.federations import free_ports
from tests.peers.five_owners import EXAMPLE, NAMES
from tests.test_docs import DOCS, blocks

PAGE = DOCS / "tutorials" / "five-machines.md"

pytestmark = pytest.mark.slow


def test_its_files_are_those_of_the_example() -> None:
    shown = {block.file: block.text for block in blocks(PAGE) if block.file}
    assert set(shown) == {"mine.py", "my.toml"}
    for name, text in shown.items():
        assert text == (EXAMPLE / name).read_text(), name


def test_its_commands_do_what_it_says(tmp_path: Path) -> None:
    for file in EXAMPLE.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    shown = (str(port) for port in range(7441, 7446))
    ports = dict(zip(shown, free_ports(5), strict=True))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "80",
    }

    def started(line: str) -> subprocess.Popen[str]:
        line = re.sub(r"127\.0\.0\.1:(\d+)", lambda found: f"127.0.0.1:{ports[found[1]]}", line)
        return subprocess.Popen(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    said, joined = "", 0
    for block in blocks(PAGE):
        if "federation-2" in block.text:  # how to rotate a key: another file is needed
            break
        if block.language == "sh":
            lines = block.text.splitlines()
            together = all(line.startswith("hobnob join") for line in lines)
            joined += len(lines) if together else 0
            said = ""
            for group in [lines] if together else [[line] for line in lines]:
                processes = [started(line) for line in group]
                try:
                    for line, process in zip(group, processes, strict=True):
                        out, err = process.communicate(timeout=300)
                        assert process.returncode == 0, (line, out, err)
                        said += out
                finally:
                    for process in processes:
                        process.kill()
        elif block.language == "text":
            for line in block.text.splitlines():
                assert line.rstrip() in said, f"{line!r} is not in:\n{said}"
    assert joined == 5
    with np.load(tmp_path / "runs/rehearsal/final.npz") as whole:
        for number, name in enumerate(NAMES):
            with np.load(tmp_path / f"runs/{name}/final.npz") as own:
                np.testing.assert_allclose(own["x"], whole["agents['x']"][number], atol=1e-10)
