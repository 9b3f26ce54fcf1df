"""The examples run as their readers run them, and show what they say they show."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
ALL = sorted(path.name for path in EXAMPLES.glob("*.py"))


def printed(name: str, folder: Path) -> str:
    """What a fresh process prints, in a folder of its own, with warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", EXAMPLES / name],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir()), "an example leaves files behind"
    return done.stdout


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, f"{pattern!r} is not in:\n{text}"
    return float(found[1])


@pytest.mark.parametrize("name", ALL)
def test_import_does_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(runpy.run_path(str(EXAMPLES / name), run_name="imported")["main"])
    assert not capsys.readouterr().out


def test_own_problem_comes_close_to_the_centralised_optimum(tmp_path: Path) -> None:
    text = printed("own_problem.py", tmp_path)
    best = number(r"one place: ([\d.]+)", text)
    assert best - 1e-4 <= number(r"objective ([\d.]+)", text) <= 1.03 * best


def test_the_smallest_hospital_gains_most(tmp_path: Path) -> None:
    text = printed("five_hospitals.py", tmp_path)
    rows = re.findall(r"(\d+) records, held-out loss: alone ([\d.]+), together ([\d.]+)", text)
    assert [int(size) for size, _, _ in rows] == [90, 300, 900, 3000, 9000]
    gains = [float(alone) - float(together) for _, alone, together in rows]
    assert gains[0] == max(gains)
    assert gains[0] > 0.05
    assert min(gains) > -0.02, "the largest pays a little, not much"


def test_policy_evaluation_falls_like_one_over_t(tmp_path: Path) -> None:
    text = printed("policy_evaluation.py", tmp_path)
    # One over t, give or take what eight seeds and one decade of steps leave uncertain.
    assert -1.7 < number(r"slope from step 400 on: (-[\d.]+)", text) < -0.7
    assert number(r"step +4000: \|x - x\*\|\^2 = ([\d.e-]+)", text) < 1e-5
