"""Checks of options, shared by the ready problems."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from hobnob.ground.errors import SettingError


def whole(name: str, value: Any) -> int:
    """A count: a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise SettingError(f"{name} must be a whole number of 1 or more, not {value!r}.")
    return int(value)


def number(
    name: str, value: Any, least: float, *, below: float = inf, excluded: bool = False
) -> float:
    """A number in [least, below), or in (least, below) if `excluded`."""
    good = isinstance(value, int | float | np.number) and least <= value < below
    if not good or (excluded and value == least):
        bound = "above" if excluded else "of at least"
        end = "" if below == inf else f" and below {below:g}"
        raise SettingError(f"{name} must be a number {bound} {least:g}{end}, not {value!r}.")
    return float(value)


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise SettingError(f"{name} = {value!r} is not known. Choose one of {known}.")
    return value


def precision(dtype: str) -> np.dtype:
    return np.dtype(one_of("dtype", str(dtype), ("float64", "float32")))
