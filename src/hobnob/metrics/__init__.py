"""Metrics: functions of a `View` that return a number, or a dict of numbers.

`@metric` registers a function of any file here; `when` says for which problems it can be computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hobnob.core.problem import Problem
from hobnob.ground.registry import Registry
from hobnob.metrics.view import View

Metric = Callable[[View], Any]


def metric(when: Callable[[Problem], bool] = lambda problem: True) -> Callable[[Metric], Metric]:
    """Register a metric for the problems for which `when` is true."""

    def mark(function: Metric) -> Metric:
        function.when = when  # type: ignore[attr-defined]
        return function

    return mark


_registry = Registry("metric", __name__, lambda value: hasattr(value, "when"))
names, get = _registry.names, _registry.get


def available(problem: Problem) -> list[str]:
    """The metrics that can be computed for this problem."""
    return [name for name in names() if get(name).when(problem)]
