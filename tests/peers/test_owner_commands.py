"""What an owner types: keys, federations, joining, rehearsing, and mistakes on the way."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hobnob.cli import federation_file
from hobnob.cli import main as cli
from hobnob.runtimes.peers.certificates import Identity
from hobnob.runtimes.peers.federation import Federation
from tests import browser
from tests.peers import five_owners
from tests.peers.federations import free_ports
from tests.peers.five_owners import NAMES

HOBNOB = Path(sys.executable).with_name("hobnob")


class Typed:
    """The command line in this process and in a folder: (out, err) of words with an exit code."""

    def __init__(
        self, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        self.folder, self._capfd = folder, capfd
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "80")

    def __call__(self, line: str, check: int = 0) -> tuple[str, str]:
        self._capfd.readouterr()
        code = cli.main(line.split())
        out, err = self._capfd.readouterr()
        assert code == check, (code, out, err)
        return out, err


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("five")
    five_owners.settle(folder)
    return folder


@pytest.fixture
def typed(
    settled: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Typed:
    folder = Path(shutil.copytree(settled, tmp_path / "own"))
    return Typed(folder, capfd, monkeypatch)


JOIN = "join federation.toml --name ana --keys keys-ana --data ana.csv --out runs/ana --quiet"


# --- keys and files ----------------------------------------------------------------------------


def test_a_key_and_a_certificate(typed: Typed) -> None:
    out, _ = typed("owner new fay --endpoint 192.0.2.7:7447 --out keys --days 30")
    key = typed.folder / "keys" / "fay.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert "fingerprint  " in out
    shown, _ = typed("owner show keys/fay.crt")
    assert shown in out
    assert "192.0.2.7:7447" in shown
    assert (
        "keys/fay.crt exists and is kept"
        in typed("owner new fay --endpoint 192.0.2.7:7447 --out keys", check=2)[1]
    )


def test_an_authority(typed: Typed) -> None:
    typed("owner authority ward --out ca")
    assert "it is an authority's" in typed("owner show ca/ward.crt")[0]
    signed = "--authority ca/ward.crt --authority-key ca/ward.key"
    words = ""
    for i, name in enumerate(NAMES):
        typed(f"owner new {name} --endpoint 127.0.0.1:{7440 + i} --out signed {signed}")
        words += f" --member signed/{name}.crt"
    new = f"federation new my.toml{words} --data ana.csv --out signed.toml --authority ca/ward.crt"
    typed(new)
    assert Federation.read("signed.toml").authority == Path("ca/ward.crt").read_text()
    other = new.replace("signed/eva.crt", "keys-eva/eva.crt").replace("signed.toml", "b.toml")
    assert "keys-eva/eva.crt was not issued by the authority" in typed(other, check=2)[1]
    assert (
        "give both"
        in typed("owner new x --endpoint 127.0.0.1:7 --authority ca/ward.crt", check=2)[1]
    )


def test_a_federation_is_made_and_checked(typed: Typed) -> None:
    words = " ".join(f"--member keys-{name}/{name}.crt" for name in NAMES)
    out, _ = typed(f"federation new my.toml {words} --data ana.csv --out another.toml")
    assert "copy of mine.py" in out
    made = Federation.read("another.toml")
    assert made.id == Federation.read("federation.toml").id
    out, _ = typed("federation check another.toml --data ben.csv")
    assert max(map(len, out.splitlines())) <= 80
    for member in made.members:
        assert member.endpoint in out
    digits = re.sub(r"\s", "", out)
    for row in made.settings["member"]:
        assert row["fingerprint"] in digits
    for words in (
        "rho = 0.291",
        "from ben, eva",  # of two neighbours the later dials the earlier
        "EdgeSPARKLE",
        "144 B",
        "88 for each frame",
        "two numbers about how curved",
        "not a privacy technology",
        "docs/explanation/what-is-sent.md",
        "Your data and your copy of the problem fit",
    ):
        assert words in " ".join(out.split()), words


def test_checking_runs_no_code(typed: Typed) -> None:
    (typed.folder / "mine.py").write_text("raise SystemExit('this must not run')")
    typed("federation check federation.toml")


@pytest.mark.slow
def test_a_ready_problem_needs_no_files(typed: Typed) -> None:
    text = (typed.folder / "my.toml").read_text()
    text = text.replace('name = "mine.py:problem"', 'name = "quadratic"\ndim_x = 3')
    (typed.folder / "quadratic.toml").write_text(text)
    words = " ".join(f"--member keys-{name}/{name}.crt" for name in NAMES)
    typed(f"federation new quadratic.toml {words} --out q.toml")
    out, _ = typed("rehearse q.toml --out runs/q --quiet")
    assert "EdgeSPARKLE on quadratic" in out
    assert "reads no files" in typed("rehearse q.toml --data ana.csv --out b", check=2)[1]


@pytest.mark.slow
def test_a_rehearsal(typed: Typed) -> None:
    every = " ".join(f"{name}.csv" for name in NAMES)
    out, _ = typed(f"rehearse federation.toml --data {every} --out runs/all --quiet")
    assert "validation loss at the best centralised point" in out
    names = {path.name for path in (typed.folder / "runs/all").iterdir()}
    assert names >= {"federation.toml", "history.csv", "final.npz", "result.json", "report.html"}
    assert typed("show runs/all")[0] == out
    assert (
        "already holds a run"
        in typed(f"rehearse federation.toml --data {every} --out runs/all", check=2)[1]
    )
    few = typed("rehearse federation.toml --data ana.csv ben.csv --out b", check=2)[1]
    assert "5 agents here and 2 data files" in few


# --- a problem of one's own, without owners ----------------------------------------------------


@pytest.mark.slow
def test_an_own_problem_runs_alone_too(typed: Typed) -> None:
    text = (typed.folder / "my.toml").read_text()
    files = ", ".join(f'"{name}.csv"' for name in NAMES)
    text = text.replace('problem"\n', f'problem"\ndata = [{files}]\n', 1)
    (typed.folder / "alone.toml").write_text(text)
    (typed.folder / "below").mkdir()
    os.chdir(typed.folder / "below")
    out, _ = typed("run ../alone.toml --out runs/alone --quiet --set steps=20")
    assert "on readmission" in out
    assert "best centralised point" in out
    typed("resume runs/alone --quiet --set steps=30")


# --- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (JOIN.replace("--name ana", "--name zoe"), "'zoe' is no member of this federation"),
        (JOIN.replace("federation.toml", "no.toml"), "no.toml cannot be read"),
        (JOIN.replace("federation.toml", "my.toml"), "hobnob federation new"),
        (JOIN.replace("keys-ana", "keys-ben"), "There is no keys-ben/ana.crt"),
        (JOIN.replace("keys-ana", "nowhere"), "hobnob owner new ana"),
        (JOIN.replace("ana.csv", "no.csv"), "There is no data file no.csv"),
        (JOIN.replace("--data ana.csv", ""), "give --data one file for each agent"),
        (JOIN.replace("--data ana.csv", "--data ana.csv ben.csv"), "1 agents here and 2 data"),
        ("federation check my.toml", "hobnob federation new"),
        ("owner show my.toml", "not a certificate"),
        ("owner show no.crt", "cannot be read"),
        ("owner new a/b --endpoint 127.0.0.1:7", "cannot be a member's name"),
        ("owner new fay --endpoint here", "is not an endpoint"),
        ("federation new my.toml --member keys-ana/ana.crt --data ana.csv", "two members"),
        (
            "federation new my.toml --member keys-ana/ana.crt --member keys-ana/ana.crt "
            "--data ana.csv --out b.toml",
            "Two members are called 'ana'",
        ),
        (
            "federation new my.toml --member keys-ana/ana.crt --member keys-ben/ben.crt "
            "--agents zoe=2 --data ana.csv",
            "no --member is called 'zoe'",
        ),
        (
            "federation new my.toml --member keys-ana/ana.crt --member keys-ben/ben.crt "
            "--member keys-cai/cai.crt --out b.toml",
            "mine.py:problem reads a file for each agent: give --data FILE",
        ),
        ("federation new my.toml --member my.toml --member keys-ben/ben.crt", "my.toml: This is"),
        ("resume keys-ana", "holds no run"),
    ],
)
def test_mistakes(typed: Typed, line: str, message: str) -> None:
    _, err = typed(line, check=2)
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (typed.folder / "b.toml").exists()


def test_a_key_of_another_member(typed: Typed) -> None:
    for ending in ("key", "crt"):
        shutil.copy(f"keys-ben/ben.{ending}", f"keys-ana/ana.{ending}")
    assert "is a certificate of ben, not of ana" in typed(JOIN, check=2)[1]


def test_a_key_that_was_made_anew(typed: Typed) -> None:
    shutil.rmtree("keys-ana")
    Identity.create("ana", "127.0.0.1:7447", Path("keys-ana"))
    assert "is not the one in the federation file" in typed(JOIN, check=2)[1]


def test_a_key_that_others_can_read(typed: Typed) -> None:
    os.chmod("keys-ana/ana.key", 0o644)
    assert "chmod 600" in typed(JOIN, check=2)[1]


def test_an_expired_certificate(typed: Typed) -> None:
    shutil.rmtree("keys-ana")
    Identity.create("ana", "127.0.0.1:7447", Path("keys-ana"), days=1e-4)  # 8.6 seconds
    time.sleep(9)
    words = " ".join(f"--member keys-{name}/{name}.crt" for name in NAMES)
    new = f"federation new my.toml {words} --data ana.csv --out b.toml"
    assert "keys-ana/ana.crt expired on" in typed(new, check=2)[1]
    assert "expired on" in typed(JOIN, check=2)[1]


def test_data_with_other_columns(typed: Typed) -> None:
    text = Path("ana.csv").read_text()
    Path("ana.csv").write_text(text.replace("glucose", "sugar", 1))
    _, err = typed(JOIN, check=2)
    assert "ana.csv has no column 'glucose'" in err
    assert "This one has: age, bmi, pressure, sugar" in err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("y**2 / 2", "y**2 / 3", "has other losses, bounds or another start here"),
        ("    return hb.Problem(", "    hb.Problem(", "must return a hb.Problem, not a NoneType"),
        ("d = len(MEASUREMENTS)", "d = len(NOTHING)", "NameError: name 'NOTHING' is not defined"),
        ("import numpy as np", "import nampy as np", "No module named 'nampy'"),
        ("def fit(", "def fit((", "mine.py, line "),
        ("def problem(", "def a_problem(", "has no function 'problem'"),
        ('table["readmitted"] > 0', 'table["died"] > 0', "KeyError: 'died'"),
    ],
)
def test_a_copy_of_the_problem_that_is_wrong(
    typed: Typed, old: str, new: str, message: str
) -> None:
    text = Path("mine.py").read_text()
    assert old in text
    Path("mine.py").write_text(text.replace(old, new, 1))
    _, err = typed(JOIN, check=2)
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_no_copy_of_the_problem(typed: Typed) -> None:
    os.remove("mine.py")
    _, err = typed(JOIN, check=2)
    assert "There is no mine.py in" in err
    assert "put a copy there, and read it first" in err


def test_a_folder_of_another_run(typed: Typed) -> None:
    Path("runs/ana").mkdir(parents=True)
    text = Path("federation.toml").read_text()
    Path("runs/ana/federation.toml").write_text(text.replace("steps = 40", "steps = 41"))
    assert "holds a run of another federation" in typed(JOIN, check=2)[1]
    Path("runs/ana/federation.toml").write_text(text)
    Path("runs/ana/command.txt").write_text(JOIN.replace("ana", "ben"))
    assert "holds the run of ben, not of ana" in typed(JOIN, check=2)[1]
    assert "not finished. Go on with: join" in typed("show runs/ana")[0]
    assert "is a run across owners" in typed("resume runs/ana", check=2)[1]


# --- real processes ----------------------------------------------------------------------------


def joined(
    folder: Path, name: str, data: list[str], *more: str, file: str = "federation.toml"
) -> subprocess.Popen[str]:
    words = [HOBNOB, "join", file, "--name", name, "--keys", f"keys-{name}"]
    return subprocess.Popen(
        [*words, "--data", *data, "--out", f"runs/{name}", *more],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )


def ended(
    processes: dict[str, subprocess.Popen[str]], check: int = 0
) -> dict[str, tuple[str, str]]:
    said = {}
    try:
        for name, process in processes.items():
            said[name] = process.communicate(timeout=300)
            assert process.returncode == check, (name, *said[name])
    finally:
        for process in processes.values():
            process.kill()
    return said


@pytest.mark.slow
def test_five_owners(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a process of its own; ana has two agents. The answer is that of the rehearsal."""
    federation = five_owners.settle(tmp_path, steps=200, agents={"ana": 2})
    shutil.copy(tmp_path / "cai.csv", tmp_path / "more.csv")
    files = {name: [f"{name}.csv"] for name in NAMES} | {"ana": ["ana.csv", "more.csv"]}
    said = ended({name: joined(tmp_path, name, files[name]) for name in NAMES})
    typed = Typed(tmp_path, capfd, monkeypatch)
    every = " ".join(file for name in NAMES for file in files[name])
    typed(f"rehearse federation.toml --data {every} --out runs/all --quiet")
    with np.load(tmp_path / "runs/all/final.npz") as whole:
        for number, name in enumerate(NAMES):
            with np.load(tmp_path / f"runs/{name}/final.npz") as own:
                for variable in ("agents['x']", "agents['y']"):
                    mine = whole[variable][federation.parts[number]]
                    np.testing.assert_allclose(own[variable], mine, rtol=0, atol=1e-10)
    folder = tmp_path / "runs/ana"
    assert typed("show runs/ana")[0] == said["ana"][0]
    assert f"ana joins federation {federation.id.hex()[:12]}" in said["ana"][1]
    assert "All 200 steps are done." in (folder / "log.txt").read_text()
    assert (folder / "federation.toml").read_bytes() == Path("federation.toml").read_bytes()
    assert json.loads((folder / "result.json").read_text())["status"] == "finished"
    with (folder / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(0, 201, 10))
    assert float(rows[-1]["own_outer_loss"]) < float(rows[0]["own_outer_loss"])
    # Joining again finds that all is done, and waits for nobody.
    assert (
        "All 200 steps are done"
        in typed("join federation.toml --name ana --keys keys-ana --data ana.csv more.csv")[0]
    )
    page = (folder / "report.html").read_text()
    assert str(tmp_path) not in page
    for member in federation.members:
        assert member.endpoint not in page
    for secret in ("127.0.0.1", "PRIVATE", "BEGIN CERTIFICATE"):
        assert secret not in page
    browser.require()
    dom, console = browser.run(folder / "report.html", "--dump-dom")
    assert console == []
    for words in ("ana in readmission", "ben and eva", "Who was away when", "Nobody was away"):
        assert words in dom
    for width in (400, 1280):
        assert browser.extent(folder / "report.html", width)[0] <= width


@pytest.mark.slow
def test_an_owner_leaves_and_comes_back(tmp_path: Path) -> None:
    """Ctrl-C of one: it leaves with 130, the others go on, and the same command brings it back."""
    five_owners.settle(tmp_path, steps=200_000)
    processes = {name: joined(tmp_path, name, [f"{name}.csv"]) for name in NAMES}
    try:
        _wait_for(tmp_path / "runs/ben/checkpoint.hobnob", processes["ben"])
        processes["ben"].send_signal(signal.SIGINT)
        out, _ = processes["ben"].communicate(timeout=60)
        assert processes["ben"].returncode == 130
        assert "Go on with: hobnob join federation.toml --name ben" in out
        _wait_for_line(tmp_path / "runs/ana/log.txt", "ben is away")
        processes["ben"] = joined(tmp_path, "ben", ["ben.csv"])
        _wait_for_line(tmp_path / "runs/ana/log.txt", "ben is back")
        processes["ana"].send_signal(signal.SIGINT)
        assert processes["ana"].wait(60) == 130
        page = (tmp_path / "runs/ana/report.html").read_text()
        assert "ben was away once" in page
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_a_key_is_rotated(tmp_path: Path) -> None:
    """One asks all to stop; with a new file and old checkpoints they go on where they were."""
    five_owners.settle(tmp_path, steps=200_000)

    def run(file: str) -> dict[str, int]:
        """Until the first checkpoint of ana, which then asks all to stop. The last steps."""
        stop = ("--ctrl-c", "stop", "--quiet")
        processes = {n: joined(tmp_path, n, [f"{n}.csv"], *stop, file=file) for n in NAMES}
        newest = tmp_path / "runs/ana/checkpoint.hobnob"
        _wait_for(newest, processes["ana"], after=newest.stat().st_mtime if newest.exists() else 0)
        processes["ana"].send_signal(signal.SIGINT)
        ended(processes, check=130)
        results = {n: json.loads((tmp_path / f"runs/{n}/result.json").read_text()) for n in NAMES}
        return {name: result["steps"] for name, result in results.items()}

    first = run("federation.toml")
    assert len(set(first.values())) == 1
    shutil.rmtree(tmp_path / "keys-ana")
    Identity.create("ana", f"127.0.0.1:{free_ports(1)[0]}", tmp_path / "keys-ana")
    files = five_owners.certificates(tmp_path)
    settings = federation_file.make(tmp_path / "my.toml", files, {}, [tmp_path / "ana.csv"])
    federation_file.write(tmp_path / "new.toml", settings)
    for name in NAMES:
        before = (tmp_path / f"runs/{name}").rename(tmp_path / f"runs/{name}-before")
        (tmp_path / f"runs/{name}").mkdir()
        shutil.copy(before / "checkpoint.hobnob", tmp_path / f"runs/{name}")
    second = run("new.toml")
    assert len(set(second.values())) == 1
    assert second["ana"] > first["ana"]


def _wait_for(path: Path, process: subprocess.Popen[str], after: float = 0) -> None:
    deadline = time.monotonic() + 200
    while not path.exists() or path.stat().st_mtime <= after:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.1)


def _wait_for_line(path: Path, words: str) -> None:
    deadline = time.monotonic() + 100
    while words not in path.read_text():
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.1)
