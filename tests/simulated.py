"""A run of all agents in this process, whose internals tests can inspect."""

from __future__ import annotations

from typing import Any

import hobnob as hb
from hobnob.core.links import Links
from hobnob.core.setup import Setup
from hobnob.run.run import Run


def simulated(
    problem: hb.Problem,
    network: hb.Network,
    algorithm: hb.Algorithm,
    seeds: Any = 0,
    links: Links | None = None,
) -> Run:
    seeds = seeds if isinstance(seeds, int) else tuple(seeds)
    return Run.start(hb.Simulate(), Setup(problem, network, algorithm, seeds, links))
