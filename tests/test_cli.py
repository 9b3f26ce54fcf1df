"""The command line as a real process."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas
import pytest

from hobnob.cli import main as cli
from tests import browser

pytestmark = pytest.mark.slow

HOBNOB = Path(sys.executable).with_name("hobnob")
QUADRATIC = """
steps = 120
record_every = 40

[problem]
name = "quadratic"
agents = 4
noise = 0.1
batch_size = 1

[network]
name = "ring"

[algorithm]
name = "dsbo"
alpha = 0.05
beta = 0.2
gamma = 0.05
terms = 5
smoothness = 20.0
strong_convexity = 1.0
"""


def hobnob(*arguments: object, cwd: Path, check: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [HOBNOB, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == check, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


class Called:
    """The command line called in this process: the same words and exit codes, without the start.

    Starting Python, importing JAX and tracing anew take longer than what most commands do. Those
    tests that are about a process, its start or its end, use `hobnob` above.
    """

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
        self._capfd, self._monkeypatch = capfd, monkeypatch
        monkeypatch.setenv("COLUMNS", "100")

    def __call__(self, *arguments: object, cwd: Path, check: int = 0) -> Said:
        self._capfd.readouterr()
        self._monkeypatch.chdir(cwd)
        code = cli.main([str(word) for word in arguments])
        out, err = self._capfd.readouterr()
        assert code == check, (code, out, err)
        assert "Traceback" not in err
        return Said(out, err)


class Said(NamedTuple):
    stdout: str
    stderr: str


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Called:
    return Called(capfd, monkeypatch)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text(QUADRATIC)
    return path


def test_help_and_version_import_nothing_heavy(tmp_path: Path) -> None:
    assert "resume" in hobnob("--help", cwd=tmp_path).stdout
    assert hobnob("--version", cwd=tmp_path).stdout.startswith("hobnob 0.")
    code = (
        "import sys\nfrom hobnob.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'jax', 'numpy', 'scipy', 'matplotlib', 'networkx', 'sklearn', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_list_names_everything_that_is_registered(tmp_path: Path) -> None:
    import hobnob as hb

    text = hobnob("list", cwd=tmp_path).stdout
    for registry in (hb.algorithms, hb.problems, hb.networks, hb.metrics):
        assert registry.names()
        for name in registry.names():
            assert name in text


def test_a_run_fills_its_folder(config: Path, call: Called) -> None:
    text = hobnob("run", "my.toml", cwd=config.parent).stdout
    folder = config.parent / "runs" / "0001"
    assert str(folder / "report.html") in text.replace("\n", "")
    names = {"config.toml", "versions.json", "history.csv", "final.npz", "result.json"}
    assert names <= {path.name for path in folder.iterdir()}
    frame = pandas.read_csv(folder / "history.csv")
    assert frame["step"].tolist() == [0, 40, 80, 120]
    assert frame["objective"].iloc[-1] < frame["objective"].iloc[0]
    assert json.loads((folder / "versions.json").read_text())["jax"]
    with np.load(folder / "final.npz") as final:
        assert final["x"].shape == (5,)
        assert final["agents['x']"].shape == (4, 5)
        np.testing.assert_allclose(final["agents['x']"].mean(axis=0), final["x"])
    call("run", "my.toml", cwd=config.parent)
    assert (config.parent / "runs" / "0002").is_dir()


def test_show_repeats_the_summary(config: Path, call: Called) -> None:
    ran = call("run", "my.toml", "--out", "here", cwd=config.parent).stdout
    shown = call("show", "here", cwd=config.parent).stdout
    assert "F at the end" in shown
    assert shown == ran


def test_set_changes_a_setting_and_is_kept(config: Path, call: Called) -> None:
    arguments = ("--set", "steps=10", "--set", "gamma=0.04", "--set", "problem.agents=3")
    call("run", "my.toml", "--out", "here", *arguments, cwd=config.parent)
    text = (config.parent / "here" / "config.toml").read_text()
    assert "steps = 10\n" in text
    assert "gamma = 0.04\n" in text
    assert "agents = 3\n" in text
    page = (config.parent / "here" / "report.html").read_text()
    assert "--set steps=10 --set gamma=0.04" in page


def test_several_seeds(config: Path, call: Called) -> None:
    call("run", "my.toml", "--out", "here", "--set", "seed=[3, 9]", cwd=config.parent)
    frame = pandas.read_csv(config.parent / "here" / "history.csv")
    assert frame["seed"].tolist() == [3] * 4 + [9] * 4
    assert len(set(frame["objective"][frame["step"] == 120])) == 2


def test_not_converged_is_not_zero(config: Path, call: Called) -> None:
    arguments = ("--set", "tolerance=1e-12")
    text = call("run", "my.toml", *arguments, cwd=config.parent, check=1).stdout
    assert "Not converged" in text


def test_interrupt_then_resume_gives_the_same_bits(config: Path, call: Called) -> None:
    cwd = config.parent
    long = (
        "--set",
        "steps=400000",
        "--set",
        "record_every=100000",
        "--set",
        "checkpoint_every=500",
    )
    child = subprocess.Popen([HOBNOB, "run", "my.toml", "--out", "cut", *long], cwd=cwd)
    deadline = time.monotonic() + 120
    while not (cwd / "cut" / "checkpoint.hobnob").exists():
        assert time.monotonic() < deadline, "no checkpoint appeared"
        assert child.poll() is None, "the run ended before it could be interrupted"
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=120) == 130
    assert "hobnob resume cut" in call("show", "cut", cwd=cwd).stdout
    # The rest is too long for a test: ask for an end that is near.
    step = _checkpoint_step(cwd / "cut")
    assert 0 < step < 400000
    end = step + 50
    for folder in ("cut", "whole"):
        text = (cwd / "cut" / "config.toml").read_text()
        (cwd / folder).mkdir(exist_ok=True)
        (cwd / folder / "config.toml").write_text(text.replace("steps = 400000", f"steps = {end}"))
    (cwd / "whole" / "versions.json").write_text((cwd / "cut" / "versions.json").read_text())
    hobnob("resume", "cut", cwd=cwd)
    call("resume", "whole", cwd=cwd)  # nothing to resume from yet: it starts at 0
    assert _rows(cwd / "cut") == _rows(cwd / "whole")
    with np.load(cwd / "cut/final.npz") as cut, np.load(cwd / "whole/final.npz") as whole:
        for name in whole:
            np.testing.assert_array_equal(cut[name], whole[name])


def test_divergence_says_how_to_go_on_and_going_on_works(config: Path) -> None:
    cwd = config.parent
    fast = ("--set", "gamma=0.9", "--set", "steps=3000", "--set", "checkpoint_every=5")
    done = hobnob("run", "my.toml", "--out", "here", *fast, cwd=cwd, check=2)
    assert "diverged at step" in done.stderr
    assert "gamma = 0.9 is above 2/L_g" in done.stderr
    assert "hobnob resume here --set" in done.stderr
    assert "diverged at step" in hobnob("show", "here", cwd=cwd).stdout.replace("\n", " ")
    step = _checkpoint_step(cwd / "here")
    text = hobnob("resume", "here", "--set", "gamma=0.05", "--set", f"steps={step + 500}", cwd=cwd)
    assert "steps are done" in text.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('name = "ring"|name = "rong"', "There is no network 'rong'. There are: complete"),
        ('name = "dsbo"|name = "dsbq"', "There is no algorithm 'dsbq'. There are: adaptive"),
        ("noise = 0.1|nois = 0.1", "[problem] quadratic: there is no option 'nois'"),
        ("alpha = 0.05|", "[algorithm] dsbo needs alpha"),
        ("smoothness = 20.0|", "the curvature of the inner problem lies between"),
        ("steps = 120|stepz = 120", "'stepz' is not a setting"),
        ("beta = 0.2|beta = 1.2", "beta = 1.2 must be at most 1"),
        ('beta = 0.2|beta = { rule = "nonconvex", scale = 10 }', "needs T >= 400"),
        ('beta = 0.2|beta = { rule = "nonsense" }', "the rule 'nonsense' is not known"),
        ("[network]|[netwerk]", "'netwerk' is not a setting"),
        ("steps = 120|steps = ", "is not valid TOML"),
        ('name = "ring"|edges = [[0, 1], [2, 3]]', "The graph has two parts"),
    ],
)
def test_bad_configurations_are_explained(
    config: Path, change: str, message: str, call: Called
) -> None:
    old, _, new = change.partition("|")
    assert old in QUADRATIC
    config.write_text(QUADRATIC.replace(old, new, 1))
    assert message in call("run", "my.toml", cwd=config.parent, check=2).stderr


def test_missing_files_and_folders_are_explained(config: Path, call: Called) -> None:
    cwd = config.parent
    assert "no.toml cannot be read" in call("run", "no.toml", cwd=cwd, check=2).stderr
    for command in ("resume", "show"):
        assert "holds no run" in call(command, "nowhere", cwd=cwd, check=2).stderr
    call("run", "my.toml", "--out", "here", "--set", "steps=5", cwd=cwd)
    again = call("run", "my.toml", "--out", "here", cwd=cwd, check=2).stderr
    assert "already holds a run" in again


def test_without_an_algorithm_one_is_chosen(config: Path, call: Called) -> None:
    text = config.read_text()
    start = text.index("[algorithm]")
    rest = text[start + 1 :]
    after = rest[rest.index("\n[") :] if "\n[" in rest else ""
    config.write_text(text[:start] + after)
    said = call("run", config.name, "--out", "chosen", "--set", "steps=40", cwd=config.parent)
    assert "SPARKLE was chosen" in said.stdout
    assert "SPARKLE was chosen" in (config.parent / "chosen" / "report.html").read_text()
    assert "SPARKLE was chosen" in call("show", "chosen", cwd=config.parent).stdout


def test_data_file_is_found_beside_the_configuration(tmp_path: Path, call: Called) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"{'+1' if a[0] > 0 else '-1'} " + " ".join(f"{i + 1}:{v:.3f}" for i, v in enumerate(a))
        for a in rng.normal(size=(60, 3))
    ]
    (tmp_path / "some.libsvm").write_text("\n".join(rows) + "\n")
    text = QUADRATIC.replace('name = "quadratic"', 'name = "hyperopt"\ndata = "some.libsvm"')
    (tmp_path / "my.toml").write_text(text.replace("noise = 0.1\n", ""))
    (tmp_path / "elsewhere").mkdir()
    call("run", "../my.toml", "--out", "here", cwd=tmp_path / "elsewhere")
    assert str(tmp_path / "some.libsvm") in (tmp_path / "elsewhere/here/config.toml").read_text()


def test_a_second_algorithm_is_run_and_shown_beside_the_first(call: Called, tmp_path: Path) -> None:
    beside = "[beside]" + QUADRATIC.split("[algorithm]")[1]
    (tmp_path / "my.toml").write_text(QUADRATIC.split("[algorithm]")[0] + beside)
    call("run", "my.toml", "--out", "both", cwd=tmp_path)
    result = json.loads((tmp_path / "both/result.json").read_text())
    assert result["title"] == "SPARKLE and DSBO on quadratic"
    steps = next(row for row in result["table"] if row["what"] == "steps")
    assert steps == {"what": "steps", "SPARKLE": "120", "DSBO": "120"}
    assert "SPARKLE was chosen" in result["choice"]
    # What DSBO does alone, it does beside another.
    (tmp_path / "alone.toml").write_text(QUADRATIC)
    call("run", "alone.toml", "--out", "alone", cwd=tmp_path)
    rows = [_rows(tmp_path / name) for name in ("both/beside-history.csv", "alone/history.csv")]
    assert rows[0] == rows[1]
    again = (tmp_path / "both/report.html").read_text()
    call("resume", "both", cwd=tmp_path)
    assert _rows(tmp_path / "both/beside-history.csv") == rows[0]
    assert again.count("<svg") == (tmp_path / "both/report.html").read_text().count("<svg")


def test_a_second_algorithm_needs_its_settings(call: Called, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(QUADRATIC + '\n[beside]\nname = "dsoba"\n')
    said = call("run", "my.toml", cwd=tmp_path, check=2)
    assert "[beside] dsoba needs alpha" in said.stderr


def test_the_demo_and_its_page_in_a_browser(tmp_path: Path) -> None:
    """At a tenth of its length: the page is the same."""
    text = hobnob("demo", "--out", "demo", "--set", "steps=600", cwd=tmp_path).stdout
    for row in ("at the start", "at the end", "best centralised point", "consensus", "bytes sent"):
        assert row in text
    browser.require()
    page = tmp_path / "demo" / "report.html"
    dom, console = browser.run(page, "--dump-dom")
    assert console == []
    assert "<h1>Adaptive and DSBO on hyperopt (breast_cancer)</h1>" in dom
    assert dom.count("<svg") >= 15  # three measurements on four axes, network, weights, message
    for words in (
        "Why this method",
        "Validation loss",
        "The network",
        "What was tuned",
        "worst concavity",
        "hobnob demo",
    ):
        assert words in dom
    assert "17.99" not in dom, "the page shows a record of the data"


def _rows(path: Path) -> list[list[str]]:
    """The history of a run's folder, or of a file, without its seconds."""
    path = path if path.suffix == ".csv" else path / "history.csv"
    with path.open() as file:
        rows = list(csv.reader(file))
    seconds = rows[0].index("seconds")
    return [row[:seconds] + row[seconds + 1 :] for row in rows]


def _checkpoint_step(folder: Path) -> int:
    from hobnob.run.checkpoint import load

    return load(folder).step
