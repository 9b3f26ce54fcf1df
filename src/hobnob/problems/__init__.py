"""Ready problems. Any public function in this folder that returns a Problem is registered.

problem = hobnob.problems.get("hyperopt")(data="wine", positive="class_0", agents=5)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from hobnob.core.problem import Problem
from hobnob.ground.registry import Registry


def _makes_a_problem(value: Any) -> bool:
    if not inspect.isfunction(value):
        return False
    made = get_type_hints(value).get("return")
    return inspect.isclass(made) and issubclass(made, Problem)


_registry = Registry("problem", __name__, _makes_a_problem)


def names() -> list[str]:
    """The names of all ready problems."""
    return _registry.names()


def get(name: str) -> Callable[..., Problem]:
    """The function that makes the problem of this name."""
    return _registry.get(name)
