"""The fields of an algorithm: the values that a hyper-parameter may take.

class Mine(hb.Algorithm):
    alpha: hb.schedules.Schedule = hb.fields.positive()
    terms: int = hb.fields.count(1)
"""

from __future__ import annotations

from dataclasses import MISSING, field
from math import isfinite
from typing import Any, NamedTuple


class Range(NamedTuple):
    """[least, most], without `least` if `open_below`, and without `most` if `open_above`."""

    least: float = float("-inf")
    most: float = float("inf")
    open_below: bool = False
    open_above: bool = False

    def refuses(self, value: float) -> str | None:
        if not isfinite(value):
            return "must be a finite number"
        if value < self.least or (self.open_below and value == self.least):
            return f"must be {'above' if self.open_below else 'at least'} {self.least:g}"
        if value > self.most or (self.open_above and value == self.most):
            return f"must be {'below' if self.open_above else 'at most'} {self.most:g}"
        return None


def positive() -> Any:
    """A step size above 0: a number, or a schedule that may reach 0."""
    return field(metadata={"range": Range(0, open_below=True), "may_vanish": True})


def nonnegative(default: Any = MISSING) -> Any:
    """A number or schedule of at least 0, such as the weight of something that may be left out."""
    return field(default=default, metadata={"range": Range(0)})


def constant(default: Any = MISSING) -> Any:
    """A number above 0, such as a constant of the problem."""
    return field(default=default, metadata={"range": Range(0, open_below=True), "fixed": True})


def fraction() -> Any:
    """A number or schedule in (0, 1], such as the weight of a running average."""
    return field(metadata={"range": Range(0, 1, open_below=True)})


def momentum(default: float = 0.0) -> Any:
    """A number or schedule in [0, 1): how much of the last step is repeated."""
    return field(default=default, metadata={"range": Range(0, 1, open_above=True)})


def count(least: int = 0, default: Any = MISSING) -> Any:
    """A whole number of at least `least`."""
    metadata = {"range": Range(least), "fixed": True, "whole": True}
    return field(default=default, metadata=metadata)


def choice(default: str, *others: str) -> Any:
    """One of several words, the first of which is the default."""
    return field(default=default, metadata={"words": (default, *others)})
