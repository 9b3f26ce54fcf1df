"""The page of one owner: what it computes, what it draws, and what it keeps to itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hobnob as hb
from hobnob.core.owners import Absence, Company, Neighbour
from hobnob.report.company import timeline, traffic_bars
from hobnob.report.owner_page import owner_page
from hobnob.run.owned.owner_summary import summarise_owner
from tests import browser

PROBLEM = hb.problems.get("quadratic")(agents=4)
COMPANY = Company(
    me="ana",
    neighbours=(
        Neighbour("ben", 4000, 3900, 900, {"replayed": 3, "late": 0}),
        Neighbour("a-rather-long-name-of-a-hospital", 4_000_000, 4_100_000, 80_000, {}),
        Neighbour("eva", 0, 0, 120, {}),
    ),
    absences=(
        Absence("ben", "it left", 10, 0.5, 25, 4.0),
        Absence("ben", "the connection was lost", 30, 6.0, 31, 6.25),
        Absence("eva", "no progress", 35, 7.0),
    ),
    turned_away={"no certificate": 12},
)


def seen_by_ana(**changes: Any) -> hb.Result:
    """What a run across owners returns, as far as a page looks at it."""
    dsoba = hb.DSOBA.suggest(hb.Scale(10.0, 1.0))
    ran = hb.solve(PROBLEM, hb.ring(4), dsoba, steps=40, record_every=10, metrics=None)
    rows = np.linspace(1.0, 0.2, 5)
    own = {"own_outer_loss", "own_inner_loss", "mean_outer_loss", "mean_inner_loss"}
    history = {name: ran.history[name] for name in ("step", "bytes", "seconds")}
    history |= dict.fromkeys(own, rows) | {"disagreement": rows, "spread": rows}
    history |= {"steps_made": np.arange(0, 50, 10), "neighbours": np.full(5, 2)}
    agents = {name: v[:1] for name, v in ran.agents.items()}
    made = replace(ran, history=history, agents=agents, company=COMPANY)
    return replace(made, **changes)


def test_what_it_says() -> None:
    summary = summarise_owner(PROBLEM, seen_by_ana())
    assert summary.title == "ana in quadratic"
    assert summary.lead == (
        "ana has one agent of 4, on a network with rho = 0.111. It talks to ben, "
        "a-rather-long-name-of-a-hospital and eva, and to nobody else."
    )
    assert summary.verdict == (
        "All 40 steps are done. ben was away 2 times, for 3.8 s together. eva was away once and "
        "did not come back."
    )
    assert [row["refused"] for row in summary.neighbours] == ["replayed: 3", "nothing", "nothing"]
    assert summary.turned_away == [{"why": "no certificate", "connections": 12}]
    assert [curves.name for curves in summary.curves] == [
        "outer_loss",
        "inner_loss",
        "disagreement",
    ]


def test_a_simulator_that_does_not_know_its_losses() -> None:
    history = {k: v for k, v in seen_by_ana().history.items() if not k.endswith("_loss")}
    summary = summarise_owner(PROBLEM, seen_by_ana(history=history))
    assert [curves.name for curves in summary.curves] == ["disagreement"]


def test_who_missed_steps_is_told() -> None:
    history = seen_by_ana().history | {"steps_made": np.array([0, 10, 10, 15, 25])}
    table = summarise_owner(PROBLEM, seen_by_ana(history=history)).table
    assert {"what": "steps", "value": "40, 25 made here"} in table


def test_charts_have_their_numbers() -> None:
    absences = {
        n.name: [a for a in COMPANY.absences if a.who == n.name] for n in COMPANY.neighbours
    }
    rows = timeline(absences, 0, 40).csv.splitlines()
    assert rows[0] == "who,why,step,seconds,until,until_seconds"
    assert rows[1:3] == ["ben,it left,10,0.5,25,4.0", "ben,the connection was lost,30,6.0,31,6.25"]
    traffic = {n.name: (n.sent, n.received, n.overhead) for n in COMPANY.neighbours}
    assert "ben,4000,3900,900" in traffic_bars(traffic).csv
    for picture in (timeline({}, 0, 0), timeline({"ben": []}, 5, 5), traffic_bars({})):
        assert picture.svg.startswith("<svg")


@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    summary = summarise_owner(PROBLEM, seen_by_ana())
    page = owner_page(tmp_path / "page.html", summary, {"jax": "1"}, "hobnob join <b>&amp;</b>")
    browser.require()
    dom, console = browser.run(page, "--dump-dom")
    assert console == []
    for words in (
        "ben was away 2 times",
        "Turned away",
        "no certificate",
        "replayed: 3",
        "35 to the end",
        "not a privacy technology",
        "&lt;b&gt;",
    ):
        assert words in dom, words
    for width in (400, 1280):
        assert browser.extent(page, width)[0] <= width
