"""The examples run as scripts, and show what they claim to show."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"
ALL = sorted(path.name for path in EXAMPLES.glob("[!_]*.py"))


def printed(name: str, folder: Path, *arguments: str, leaves: tuple[str, ...] = ()) -> str:
    """The output of a fresh process in its own folder, with warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", EXAMPLES / name, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    left = tuple(sorted(path.name for path in folder.iterdir()))
    assert left == leaves, "an example leaves other files behind than it says"
    return done.stdout


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, f"{pattern!r} is not in:\n{text}"
    return float(found[1])


@pytest.mark.parametrize("name", ALL)
def test_import_does_nothing(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)  # as for a script, so that `_compare` can be imported
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


def test_shared_weights_help_hospitals_that_differ(tmp_path: Path) -> None:
    text = printed("own_models.py", tmp_path)
    pattern = r"^(.+?) +shared weights ([\d.]+), one model ([\d.]+), alone ([\d.]+)$"
    rows = {name: map(float, losses) for name, *losses in re.findall(pattern, text, re.MULTILINE)}
    assert list(rows) == ["alike", "partly alike", "different"]
    for name, losses in rows.items():
        shared, common, alone = losses
        assert shared < alone - 0.02, name
        # One model for all has the most records, and wins where they tell of one truth.
        assert (common < shared - 0.02) if name == "alike" else (common > shared + 0.02), name


def test_policy_evaluation_falls_like_one_over_t(tmp_path: Path) -> None:
    text = printed("policy_evaluation.py", tmp_path)
    # 1/t, within the uncertainty of eight seeds and one decade of steps.
    assert -1.7 < number(r"slope from step 400 on: (-[\d.]+)", text) < -0.7
    assert number(r"step +4000: \|x - x\*\|\^2 = ([\d.e-]+)", text) < 1e-5


def is_a_picture(path: Path) -> bool:
    """A figure with panels side by side, not a blank one."""
    pixels = matplotlib.image.imread(path)[..., :3]
    shades = pixels.std(axis=(0, 1))
    return pixels.shape[1] > 2 * pixels.shape[0] > 600 and bool((shades > 0.05).all())


def test_wrong_labels_lose_their_weight(tmp_path: Path) -> None:
    picture = "hyper-cleaning.png"
    text = printed(
        "hyper_cleaning.py",
        tmp_path,
        *("--small", "--steps", "400", "--methods", "D-SOBA", "--alpha", "200", "--seeds", "1"),
        leaves=(picture,),
    )
    rows = re.findall(r"(\d+)% wrong: ([\d.]+) for good, ([\d.]+|nan) for wrong", text)
    assert [int(share) for share, _, _ in rows] == [0, 10, 20, 30, 40, 50, 60, 70]
    for _, good, wrong in rows[1:]:
        assert float(good) > 0.6 > 0.4 > float(wrong)
    same = number(r"all examples weigh the same: ([\d.]+)%", text)
    found = number(r"the weights that D-SOBA found: ([\d.]+)%", text)
    told = number(r"wrong examples left out: ([\d.]+)%", text)
    assert found > same + 1
    assert told > same + 1, "knowing which labels are wrong would have to help"
    assert is_a_picture(tmp_path / picture)


def test_features_learnt_together_help_new_tasks(tmp_path: Path) -> None:
    picture = "hyper-representation.png"
    text = printed(
        "hyper_representation.py",
        tmp_path,
        *("--small", "--steps", "600", "--methods", "SPARKLE", "--alpha", "1", "--seeds", "2"),
        leaves=(picture,),
    )
    learnt, start = (
        number(rf"new tasks, right by examples of a class, features {which}: 1: ([\d.]+)%", text)
        for which in ("learnt by SPARKLE", "of the start")
    )
    assert learnt > start + 10
    assert number(r"SPARKLE +([\d.]+) ", text) < 20, "errors of the tasks; guessing has 67 %"
    assert is_a_picture(tmp_path / picture)


def test_one_weight_per_feature_and_class(tmp_path: Path) -> None:
    picture = "many-weights.png"
    text = printed(
        "many_weights.py",
        tmp_path,
        *("--small", "--steps", "400", "--methods", "D-SOBA", "penalty"),
        *("--alpha", "20", "--seeds", "1"),
        leaves=(picture,),
    )
    assert "d_x = 650, d_y = 650" in text
    start = number(r"the start, 0.01 for all: test loss ([\d.]+)", text)
    tuned = number(r"weights, trained in one place: test loss ([\d.]+)", text)
    assert tuned < start
    rows = re.findall(r"^(D-SOBA|penalty) +([\d.]+) +([\d.]+) +[\d,]+ +[\d,]+ MB$", text, re.M)
    assert len(rows) == 2
    losses = {name: (float(by_samples), float(by_bytes)) for name, by_samples, by_bytes in rows}
    # The penalty method sends twice as much per step, so equal bytes are half its steps.
    assert losses["D-SOBA"][0] == losses["D-SOBA"][1]
    assert losses["penalty"][0] < losses["penalty"][1]
    assert is_a_picture(tmp_path / picture)
