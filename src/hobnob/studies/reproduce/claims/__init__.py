"""The paper's ten claims, each measured: `hobnob reproduce claims`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from hobnob.ground.errors import ConfigError
from hobnob.ground.registry import Registry
from hobnob.report.page import Section
from hobnob.studies.cell import Cell, Found
from hobnob.studies.reproduce.claims._claim import FAILS, HOLDS, OPEN, Claim
from hobnob.studies.study import Options, Report


def _is_claim(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Claim) and not inspect.isabstract(value)


_registry = Registry("claim", __name__, _is_claim)


def claims(only: tuple[int, ...] = ()) -> list[Claim]:
    """All claims, or those of the given numbers, in the paper's order."""
    every = {c.number: c for c in (_registry.get(name)() for name in _registry.names())}
    for number in only:
        if number not in every:
            raise ConfigError(f"--only {number}: the claims are numbered 1 to {max(every)}.")
    return [every[number] for number in sorted(only or every)]


def plan(options: Options) -> list[Cell]:
    cells = [cell for claim in claims(options.only) for cell in claim.plan(options)]
    return list({cell.name: cell for cell in cells}.values())  # claims may share cells


def report(options: Options, found: Mapping[str, Found]) -> Report:
    table, sections, rows, verdicts = [], [], [], []
    every = claims(options.only)
    for claim in every:
        finding = claim.judge(options, found)
        verdicts.append(finding.verdict)
        verdict = finding.verdict.capitalize() + "."
        criteria = [
            {"checked": c.says, "measured, 95 % interval": str(c.measured), "verdict": c.verdict}
            for c in finding.criteria
        ]
        sections.append(
            Section(
                f"{claim.number}. {claim.title}",
                f"The paper: {claim.says}\n\n{verdict} {finding.words}\n\n"
                f"Setting: {claim.setting(options)} Alone: hobnob reproduce claims --only "
                f"{claim.number}.",
                finding.pictures,
                criteria,
            )
        )
        table.append({"claim": f"{claim.number}. {claim.title}", "verdict": verdict})
        for criterion in finding.criteria:
            value, low, high = criterion.interval
            rows.append(
                {
                    "claim": claim.number,
                    "checked": criterion.says,
                    "measured": value,
                    "low": low,
                    "high": high,
                    "verdict": criterion.verdict,
                }
            )
        rows += [{"claim": claim.number, **row} for row in finding.rows]
    size = " This was the quick version: fewer and shorter runs." if options.quick else ""
    return Report(
        title="The paper's claims, measured",
        lead="Each claim of the paper on decentralised bilevel optimisation by gossip, with what "
        "was run, what came out, and how sure it is. Intervals are at 95 % confidence." + size,
        verdict=f"Of {len(every)} claims {verdicts.count(HOLDS)} hold here in every part, "
        f"{verdicts.count(FAILS)} do not, and {verdicts.count(OPEN)} are not decided.",
        table=table,
        sections=sections,
        rows=rows,
    )
