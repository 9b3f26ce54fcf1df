"""The ready topologies: a public function here that returns a `Network` is registered by that.

Files that start with an underscore are what `Network` itself is made of.
"""

from __future__ import annotations

import inspect
from typing import Any

from hobnob.ground.registry import Registry


def _is_topology(value: Any) -> bool:
    # By name: `Network` is built on this package's private files, so it cannot be imported here.
    if not inspect.isfunction(value):
        return False
    returned = value.__annotations__.get("return")
    return getattr(returned, "__name__", returned) == "Network"


_registry = Registry("network", __name__, _is_topology)
names = _registry.names
get = _registry.get
