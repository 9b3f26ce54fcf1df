"""One published algorithm per file. Putting a file here registers it; no other list is kept."""

from __future__ import annotations

import inspect
from typing import Any

from hobnob.core.algorithm import Algorithm
from hobnob.ground.registry import Registry


def _is_algorithm(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Algorithm)


_registry = Registry("algorithm", __name__, _is_algorithm, name_of=lambda module, name: module)
names, get = _registry.names, _registry.get

__all__ = ["get", "names"]
