"""Intervals cover the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from hobnob.studies.statistics import mean_interval, ratio_interval, slope_interval, slopes


def test_mean_intervals_cover_the_truth_at_their_confidence() -> None:
    rng = np.random.default_rng(0)
    covered = np.mean([mean_interval(rng.normal(3, 2, 6)).holds(3) for _ in range(4000)])
    # 95 % of 4,000: the count lies within 4 standard deviations, which fails once in 16,000.
    assert abs(covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 4000)


def test_one_measurement_tells_nothing_about_its_reach() -> None:
    assert mean_interval([2.0]) == (2.0, -np.inf, np.inf)


def test_slopes_of_power_laws() -> None:
    x = np.array([1.0, 2.0, 7.0, 20.0])
    np.testing.assert_allclose(slopes(x, np.stack([3 * x**-0.5, 0.1 * x**2])), [-0.5, 2])
    assert slope_interval(x, np.stack([x, 5 * x])) == pytest.approx((1, 1, 1))


def test_ratios_are_averaged_as_ratios() -> None:
    interval = ratio_interval([0.5, 2.0])
    assert interval.value == pytest.approx(1)
    assert interval.low == pytest.approx(1 / interval.high)
