"""Case: a problem of the study, its network, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import hobnob as hb

THREE_SEEDS = (11, 12, 13)


@dataclass(frozen=True)
class Case:
    """A problem, its network, and how it is judged.

    Args:
        name: for the table and for `--only`.
        kind: "convex", "noisy" or "non-convex"; the package's docstring has the rules.
        make: builds the problem.
        network: who talks to whom.
        known: whether the default's rules were made while looking at it.
        unit: the size of a typical entry of x, which scales the grid of `Adaptive`.
        noisy: whether runs of different seeds differ.
        file: data that the problem needs and the repository does not have.
        quick: whether it is part of `--quick`.
    """

    name: str
    kind: str
    make: Callable[[], hb.Problem]
    network: hb.Network
    known: bool = False
    unit: float = 1.0
    noisy: bool = True
    file: Path | None = None
    quick: bool = False

    @property
    def seeds(self) -> tuple[int, ...]:
        return THREE_SEEDS if self.noisy else THREE_SEEDS[:1]
