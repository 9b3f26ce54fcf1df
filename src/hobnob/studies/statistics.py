"""Confidence intervals of numbers that were measured several times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A measured number and its confidence interval, 95 % by default."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    def holds(self, number: float) -> bool:
        return self.low <= number <= self.high


def mean_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """The mean of independent measurements, by Student's t."""
    values = np.asarray(values, float)
    mean = float(values.mean())
    if values.size < 2:
        return Interval(mean, float("-inf"), float("inf"))
    error = float(values.std(ddof=1)) / np.sqrt(values.size)
    reach = float(scipy.stats.t.ppf((1 + confidence) / 2, values.size - 1)) * error
    return Interval(mean, mean - reach, mean + reach)


def ratio_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """The geometric mean of independent ratios, by Student's t on their logarithms."""
    return Interval(*np.exp(mean_interval(np.log(np.asarray(values, float)), confidence)).tolist())


def slopes(x: ArrayLike, y: ArrayLike) -> np.ndarray:
    """The slope of log y against log x by least squares; of every row if y has several."""
    x, y = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    centred = x - x.mean()
    return np.asarray(y @ centred / (centred @ centred))


def slope_interval(x: ArrayLike, y: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """The slope of log y against log x; y [S, R] has a row for each independent simulation."""
    return mean_interval(slopes(x, y), confidence)


def median_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """The median, with two of the measurements as limits.

    It assumes nothing about their distribution, and some may be infinite. Fewer than 6 give no
    limits at 95 %.
    """
    ordered = np.sort(np.asarray(values, float).ravel())
    # This many of the smallest, or the largest, may lie on the wrong side of the true median.
    outside = int(scipy.stats.binom.ppf((1 - confidence) / 2, ordered.size, 0.5))
    if outside == 0:
        return Interval(float(np.median(ordered)), float("-inf"), float("inf"))
    return Interval(
        float(np.median(ordered)), float(ordered[outside - 1]), float(ordered[-outside])
    )
