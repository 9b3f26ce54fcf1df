"""What a claim is: a statement of the paper, cells that measure it, and a judgement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hobnob.experiments.cell import Cell, Found
from hobnob.experiments.statistics import Interval
from hobnob.experiments.study import Options
from hobnob.report.page import Choice
from hobnob.report.picture import Picture


@dataclass(frozen=True)
class Check:
    """One thing that the claim says, what was measured, and whether it agrees."""

    says: str
    measured: Interval | float
    holds: bool

    @property
    def verdict(self) -> str:
        return "holds here" if self.holds else "does not hold here"


@dataclass(frozen=True)
class Finding:
    """What came out: the claim holds here where all checks do. `words` say it with the numbers."""

    checks: Sequence[Check]
    words: str
    pictures: Sequence[Picture | Choice] = ()
    rows: Sequence[Mapping[str, object]] = ()

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


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
        """Confidence intervals are at 95 %; a check is decided by the interval, not the number."""
