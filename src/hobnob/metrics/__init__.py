"""Metrics: functions of a `View` that return a number, or a dict of numbers.

A file here is the registration. `@metric` marks its functions; `when` says for which problems one
can be computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hobnob.core.problem import Problem
from hobnob.ground.registry import Registry
from hobnob.metrics.view import View

Metric = Callable[[View], Any]


def metric(when: Callable[[Problem], bool] = lambda problem: True) -> Callable[[Metric], Metric]:
    def mark(function: Metric) -> Metric:
        function.when = when  # type: ignore[attr-defined]
        return function

    return mark


_registry = Registry("metric", __name__, lambda value: hasattr(value, "when"))
names, get = _registry.names, _registry.get


def available(problem: Problem) -> list[str]:
    """The metrics that this problem allows."""
    return [name for name in names() if get(name).when(problem)]
