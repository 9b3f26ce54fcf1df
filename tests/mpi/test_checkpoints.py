"""What one layout saved, another goes on with: other numbers of ranks, and the simulation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hobnob as hb
from hobnob.cli import main as cli
from tests.mpi import ranks
from tests.mpi.stages import HALF, KINDS, WHOLE, solved

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_goes_on_anywhere(tmp_path: Path, kind: str) -> None:
    """Bit for bit on the same layout; to 1e-10 on another."""
    end = ranks.run(2, "stages", tmp_path, "first", kind)
    assert end.code == 0, end.err
    straight = np.load(tmp_path / "straight.npy")
    again = ranks.run(4, "stages", tmp_path, "second", kind)
    assert again.code == 0, again.err
    resumed = np.load(tmp_path / "same layout.npy")
    np.testing.assert_array_equal(resumed, straight)
    # Its output is captured, and that of ranks goes to a terminal: it is the same run all the same.
    here = solved(kind, tmp_path / "for the simulation", WHOLE, None)
    on_four = np.load(tmp_path / "four ranks.npy")
    for other in (np.hstack([here.agents["x"], here.agents["y"]]), on_four):
        np.testing.assert_allclose(other, straight, rtol=0, atol=1e-10)
    # And the other way round: the simulation's, on four ranks.
    from_simulation = np.load(tmp_path / "from the simulation.npy")
    np.testing.assert_allclose(from_simulation, straight, rtol=0, atol=1e-10)
    assert here.history["step"].tolist() == [0, HALF, WHOLE]


CONFIG = """
steps = 200
record_every = 100

[problem]
name = "quadratic"
agents = 2
noise = 0.1

[network]
name = "ring"

[algorithm]
name = "dsoba"
alpha = 0.01
beta = 0.02
gamma = 0.02
theta = 0.5
"""


def test_the_command_line_starts_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in ranks.environment().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "run.toml").write_text(CONFIG)
    run = ["run", str(tmp_path / "run.toml"), "--quiet"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert cli.main([*run, "--out", str(one)]) == 0
    capfd.readouterr()
    assert cli.main([*run, "--out", str(two), "--ranks", "2"]) == 0
    said = capfd.readouterr()
    assert said.out.count("All 200 steps are done.") == 1
    assert (two / "report.html").exists()
    with np.load(one / "final.npz") as here, np.load(two / "final.npz") as there:
        np.testing.assert_allclose(there["x"], here["x"], rtol=0, atol=1e-10)
    assert cli.main(["resume", str(two), "--set", "steps=300", "--ranks", "2", "--quiet"]) == 0
    assert json.loads((two / "result.json").read_text())["steps"] == 300
    capfd.readouterr()
    # More ranks than agents: one message, and bad input.
    assert cli.main([*run, "--out", str(tmp_path / "three"), "--ranks", "3"]) == 2
    assert capfd.readouterr().err.count("There are 2 agents for 3 ranks") == 1


def test_settings_of_the_runtime() -> None:
    with pytest.raises(hb.SettingError, match="silence = 1 must be a number of seconds"):
        hb.Mpi(silence=1)
    with pytest.raises(hb.HobnobError, match="--ranks 0"):
        cli.run_on_ranks(0, Path("nowhere"), "", resume=False, progress=False)
