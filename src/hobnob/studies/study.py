"""The options of a study, and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hobnob.report.page import Section, Tabs
from hobnob.report.picture import Picture
from hobnob.studies.cell import Cell, Found


@dataclass(frozen=True)
class Options:
    """The command line's options. None: the study decides."""

    data: str | None = None
    sims: int | None = None
    steps: int | None = None
    quick: bool = False
    only: tuple[int, ...] = ()


@dataclass(frozen=True)
class Report:
    """What a study's page shows. `rows` is a long table of all numbers."""

    title: str
    lead: str
    verdict: str
    table: Sequence[Mapping[str, object]]
    sections: Sequence[Section]
    rows: Sequence[Mapping[str, object]]
    settings: Mapping[str, object] = field(default_factory=dict)
    tone: Literal["good", "bad", "plain"] = "plain"

    def pictures(self) -> list[Picture]:
        """All pictures, also those in tabs."""
        return [
            picture
            for section in self.sections
            for item in section.pictures
            for picture in (item.pictures.values() if isinstance(item, Tabs) else [item])
        ]


class Study(Protocol):
    """A module with these two functions."""

    def plan(self, options: Options) -> list[Cell]: ...

    def report(self, options: Options, found: Mapping[str, Found]) -> Report: ...
