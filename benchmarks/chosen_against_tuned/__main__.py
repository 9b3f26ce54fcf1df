"""Run the study; the package's docstring has the rules."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import benchmarks.chosen_against_tuned as study
import hobnob as hb
from benchmarks.chosen_against_tuned.bench import Bench, Default, as_dict
from benchmarks.chosen_against_tuned.case import Case
from benchmarks.chosen_against_tuned.problems import AUSTRALIAN, cases
from benchmarks.chosen_against_tuned.report import markdown
from benchmarks.chosen_against_tuned.tuned import (
    Tuned,
    tune_convex,
    tune_noisy,
    tune_not_convex,
)
from benchmarks.chosen_against_tuned.verdicts import (
    Arrival,
    History,
    came_near,
    gradient_fell,
    ratio,
    share_closed,
)
from hobnob.ground.files import write_whole

OUT = Path("runs/chosen_against_tuned")
SECONDS = 150.0  # for the tuned runs of a problem, and for each run of the default
FALLBACK = 20_000  # steps of SPARKLE: what tuned runs may spend if the default gives no measure


def judge(case: Case, seconds: float, small: bool, stored: dict[str, Any] | None) -> dict[str, Any]:
    """One problem: the default, the tuned methods (or those that are stored) and the verdict."""
    bench, clock = Bench(case, seconds), time.perf_counter()
    ground = bench.ground()

    def arrived(history: History) -> Arrival | None:
        if case.kind == "convex":
            return gradient_fell(history)
        if case.kind == "noisy":
            return came_near(history, ground.start, ground.optimum)
        return None

    default, history = bench.default(arrived)
    tuned = _stored_tuned(case, default, stored)
    if tuned is None:
        bench.start_clock()
        fallback = bench.samples_of(hb.SPARKLE.suggest(hb.Scale(1.0, 1.0)), FALLBACK)
        if case.kind == "non-convex":
            tuned = tune_not_convex(bench, ground, default.samples or fallback, small)
        else:
            limit = 2 * default.arrival.samples if default.arrival else fallback
            tune = tune_convex if case.kind == "convex" else tune_noisy
            tuned = tune(bench, ground, limit, small)
    outcome = {
        "name": case.name,
        "kind": case.kind,
        "known": case.known,
        "agents": case.network.size,
        "network": case.network.name,
        "dims": [bench.problem.dim_x, bench.problem.dim_y],
        "ground": as_dict(ground),
    }
    if case.kind == "non-convex":
        best = min(ground.optimum, default.lowest, default.end, tuned.lowest, tuned.end)
        if history:
            five, one = (came_near(history, ground.start, best, s, 2 * s) for s in (0.05, 0.01))
            default = replace(default, to_five=five, to_one=one)
        ours, theirs = (share_closed(side.end, ground.start, best) for side in (default, tuned))
        theirs = max(theirs, 0.0)  # x0 itself needs no tuning
        outcome |= {"best": best, "shares": [ours, theirs]}
        outcome["verdict"] = ours - theirs if np.isfinite(ours) else -100.0
        outcome["bytes_ratio"] = default.bytes / tuned.bytes if tuned.bytes else np.nan
    else:
        samples, sent = (
            [getattr(side.arrival, cost, None) for side in (default, tuned)]
            for cost in ("samples", "bytes")
        )
        outcome["verdict"] = ratio(*samples)
        outcome["bytes_ratio"] = ratio(*sent)
    seconds = time.perf_counter() - clock
    return outcome | {"default": as_dict(default), "tuned": as_dict(tuned), "seconds": seconds}


def _stored_tuned(case: Case, default: Default, stored: dict[str, Any] | None) -> Tuned | None:
    """The tuned side of an earlier study, if it answers the same question."""
    if stored is None:
        return None
    arrival = stored["tuned"]["arrival"]
    tuned = replace(Tuned(**stored["tuned"]), arrival=arrival and Arrival(**arrival))
    if case.kind == "non-convex":
        same = default.samples and abs(tuned.budget / default.samples - 1) < 0.02
        return tuned if same else None
    return tuned if tuned.arrival else None


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(
        description=study.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few problems, small grids")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these problems")
    parser.add_argument("--kind", choices=("convex", "noisy", "non-convex"), help="only this kind")
    parser.add_argument("--fresh", action="store_true", help="only fresh problems")
    parser.add_argument("--again", action="store_true", help="run what is stored again")
    parser.add_argument(
        "--default-again",
        action="store_true",
        help="run the default again, and keep the stored tuned side where it still applies",
    )
    parser.add_argument("--table", action="store_true", help="only print what is stored")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for a problem's search")
    parser.add_argument("--australian", type=Path, default=AUSTRALIAN, help="the LIBSVM file")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    out = options.out / "quick" if options.quick else options.out
    chosen = cases(options.australian)
    if unknown := set(options.only or ()) - {case.name for case in chosen}:
        names = ", ".join(case.name for case in chosen)
        parser.error(f"no problem is called {', '.join(sorted(unknown))}. There are: {names}")
    chosen = [
        case
        for case in chosen
        if (case.name in options.only if options.only else case.quick or not options.quick)
        and (options.kind in (None, case.kind))
        and not (options.fresh and case.known)
    ]
    outcomes = []
    for case in chosen:
        file = out / f"{case.name}.json"
        stored = json.loads(file.read_text()) if file.exists() else None
        if stored is None or options.again or options.default_again:
            if options.table:
                continue
            if case.file and not case.file.exists():
                print(f"{case.name} is left out: there is no {case.file}.", flush=True)
                continue
            kept = stored if options.default_again else None
            stored = judge(case, options.seconds, options.quick, kept)
            write_whole(file, json.dumps(stored, indent=1).encode() + b"\n")
            jax.clear_caches()
            unit = "points" if case.kind == "non-convex" else "times"
            print(
                f"{case.name}: {stored['verdict']:.2f} {unit}, {stored['default']['status']}, "
                f"against {stored['tuned']['label']} ({stored['seconds']:.0f} s)",
                flush=True,
            )
        outcomes.append(stored)
    report = markdown(outcomes)
    if outcomes:
        write_whole(out / "table.md", report.encode())
        write_whole(out / "all.json", json.dumps(outcomes, indent=1).encode() + b"\n")
    print(report)
    return outcomes


if __name__ == "__main__":
    main()
