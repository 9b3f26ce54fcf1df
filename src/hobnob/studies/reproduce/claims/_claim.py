"""Claim: a statement of the paper, the cells that measure it, and a judgement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from hobnob.report.page import Tabs
from hobnob.report.picture import Picture
from hobnob.studies.cell import Cell, Found
from hobnob.studies.statistics import Interval
from hobnob.studies.study import Options

Region = tuple[float, float]

HOLDS, FAILS, OPEN = "holds here", "does not hold here", "not decided here"


def below(most: float) -> Region:
    return -inf, most


def above(least: float) -> Region:
    return least, inf


@dataclass(frozen=True)
class Criterion:
    """One part of a claim: that a measured number lies in a region.

    It holds if the whole confidence interval lies in the region, and does not hold if none of it
    does. Otherwise more runs are needed to decide.
    """

    says: str
    measured: Interval | float
    region: Region

    @property
    def interval(self) -> Interval:
        if isinstance(self.measured, Interval):
            return self.measured
        return Interval(self.measured, self.measured, self.measured)

    @property
    def verdict(self) -> str:
        low, high = self.region
        _, lowest, highest = self.interval
        if low <= lowest and highest <= high:
            return HOLDS
        return FAILS if highest < low or high < lowest else OPEN

    @property
    def holds(self) -> bool:
        return self.verdict == HOLDS


@dataclass(frozen=True)
class Finding:
    """The results of all criteria. `words` is a summary with the numbers."""

    criteria: Sequence[Criterion]
    words: str
    pictures: Sequence[Picture | Tabs] = ()
    rows: Sequence[Mapping[str, object]] = ()

    @property
    def verdict(self) -> str:
        """It holds if all criteria hold, and does not if one does not."""
        verdicts = {criterion.verdict for criterion in self.criteria}
        return FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS


class Claim(ABC):
    """Base of the paper's claims. A subclass in a file of this folder is registered."""

    number: ClassVar[int]
    title: ClassVar[str]
    says: ClassVar[str]  # what the paper states, in a sentence

    @abstractmethod
    def setting(self, options: Options) -> str:
        """What is run, in enough detail to repeat it."""

    @abstractmethod
    def plan(self, options: Options) -> list[Cell]:
        """The cells; their names begin with the claim's number."""

    @abstractmethod
    def judge(self, options: Options, found: Mapping[str, Found]) -> Finding:
        """The finding. Confidence intervals are at 95 %."""
