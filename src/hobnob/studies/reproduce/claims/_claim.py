"""What a claim is: a statement of the paper, cells that measure it, and a judgement."""

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
    """One thing that the claim says: that what is measured lies in a region.

    The interval decides, and not the number: it holds where all of the interval lies in the region,
    it does not where none of it does, and else it takes more runs to tell.
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
    """What came out, criterion by criterion. `words` say it with the numbers."""

    criteria: Sequence[Criterion]
    words: str
    pictures: Sequence[Picture | Tabs] = ()
    rows: Sequence[Mapping[str, object]] = ()

    @property
    def verdict(self) -> str:
        """It holds where all criteria do, and does not where one does not."""
        verdicts = {criterion.verdict for criterion in self.criteria}
        return FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS


class Claim(ABC):
    """A file of this folder with a subclass is a claim of the paper."""

    number: ClassVar[int]
    title: ClassVar[str]
    says: ClassVar[str]  # what the paper states, in a sentence

    @abstractmethod
    def setting(self, options: Options) -> str:
        """What is run, so that a reader could write it again."""

    @abstractmethod
    def plan(self, options: Options) -> list[Cell]:
        """The cells; their names begin with the claim's number."""

    @abstractmethod
    def judge(self, options: Options, found: Mapping[str, Found]) -> Finding:
        """Confidence intervals are at 95 %."""
