"""`hobnob reproduce` from the command to the page, small."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hobnob.cli import main as cli
from hobnob.ground.errors import ConfigError
from hobnob.studies import study_folder
from hobnob.studies.reproduce import _asked, folder_name, reproduce
from hobnob.studies.reproduce import figure_2 as hyperopt
from hobnob.studies.reproduce import figure_3 as policy
from hobnob.studies.study import Options

pytestmark = pytest.mark.slow

pandas = pytest.importorskip("pandas")


def test_policy_ends_in_a_page_pictures_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    command = ["reproduce", "policy", "--sims", "2", "--steps", "60", "--quiet"]
    assert cli.main([*command, "--out", str(folder)]) == cli.DONE
    assert str(folder / "report.html") in capsys.readouterr().out.replace("\n", "")
    page = (folder / "report.html").read_text()
    assert "hobnob reproduce policy --sims 2 --steps 60" in page
    for name in ("figure-3a", "figure-3b", "figure-3c-1.0e-06", "figure-3c-8.0e-07"):
        assert (folder / "pictures" / f"{name}.png").stat().st_size > 1000
        ElementTree.parse(folder / "pictures" / f"{name}.svg")
    table = pandas.read_csv(folder / "results.csv")
    assert set(table["agents"]) == {5, 10, 20}
    assert set(table["method"]) == {"DSBO", "DSGD"}
    ends = table[(table.method == "DSBO") & (table.step == 60)]
    assert len(ends) == 6
    assert (ends["squared_error"] < 0.01).all()
    # Two batches of a hundred transitions a step and agent, and one record of f, which is known.
    assert (ends["total_samples"] == ends["agents"] * 60 * 201).all()

    before = (folder / "results.csv").stat().st_mtime_ns
    assert cli.main([*command, "--out", str(folder)]) == cli.DONE, "again only draws"
    assert (folder / "results.csv").stat().st_mtime_ns > before
    assert cli.main(["reproduce", "policy", "--sims", "3", "--out", str(folder)]) == cli.BAD_INPUT
    assert "was begun with sims = 2, and now it is 3" in capsys.readouterr().err


def test_dbsa_and_dsgd_run_for_as_many_samples_as_dsbo() -> None:
    def steps_of(study: Any, method: str) -> int:
        options = [cell.options for cell in study.plan(Options())]
        five = [o["steps"] for o in options if (o["method"], o["agents"]) == (method, 5)]
        return max(five)

    b = hyperopt.TERMS
    dbsa, dsgd = steps_of(hyperopt, "DBSA"), steps_of(policy, "DSGD")
    for_dbsa = dbsa * (dbsa + 1) / 2 + dbsa * (b + 2)
    for_dsgd = dsgd * (dsgd + 1) / 2 + dsgd
    assert for_dbsa == pytest.approx(steps_of(hyperopt, "DSBO") * (b + 2), rel=0.02)
    assert for_dsgd == pytest.approx(steps_of(policy, "DSBO") * 2, rel=0.02)


def test_hyperopt_measures_the_curves_of_the_figure(tmp_path: Path) -> None:
    options = Options(sims=1, steps=2_000, quick=True)
    cells = [cell for cell in hyperopt.plan(options) if cell.options["deal"] == "even"]
    assert [(c.options["method"], c.options["agents"]) for c in cells] == [
        ("DSBO", 5),
        ("DSBO", 10),
        ("DBSA", 5),
    ]
    rng = np.random.default_rng(0)
    rows = np.linspace(0, 1, 5)
    found = {
        cell.name: {
            "step": np.round(rows * cell.options["steps"]),
            "samples": np.round(rows * 1000),
            **{name: 0.5 - 0.1 * rows + 0.01 * rng.normal(size=5) for name in hyperopt.MEASURES},
            "best": np.array(0.3),
        }
        for cell in hyperopt.plan(options)
    }
    report = hyperopt.report(options, found)
    ends = {row["run"]: str(row["end"]) for row in report.table if "evenly" in str(row["data"])}
    measured = found["dsbo-K10-T2000-even-0"]["objective"][-1]
    assert ends["DSBO, K = 10"].startswith(f"{measured:.3g}")
    pictures = report.pictures()
    assert len({picture.name for picture in pictures}) == len(pictures) == 10


def test_wrong_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--sims 0 must be at least 1"):
        reproduce("policy", Options(sims=0), tmp_path / "a")
    with pytest.raises(ConfigError, match=r"--data nowhere\.txt: there is no such file"):
        reproduce("hyperopt", Options(data="nowhere.txt"), tmp_path / "a")
    with pytest.raises(ConfigError, match="--only 11: the claims are numbered 1 to"):
        reproduce("claims", Options(only=(11,)), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_folders_are_named_after_what_was_asked() -> None:
    assert folder_name("policy", Options()) == "reproduce-policy"
    asked = Options(data="../x/a b.txt", sims=3, quick=True, only=(1, 2))
    assert (
        folder_name("claims", asked) == "reproduce-claims-data-..-x-a-b.txt-sims-3-quick-only-1-2"
    )


def test_the_settings_remember_the_data_and_not_only_its_name(tmp_path: Path) -> None:
    def begin() -> None:
        study_folder.claim(tmp_path / "out", _asked("hyperopt", Options(data=str(data))))

    data = tmp_path / "d.libsvm"
    data.write_text("1 1:0.5\n")
    begin()
    kept = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert kept["study"] == "hyperopt"
    assert len(kept["data"]) == 64
    data.write_text("1 1:0.6\n")
    with pytest.raises(ConfigError, match="was begun with data"):
        begin()
