"""The ready topologies. Any public function here that returns a `Network` is registered.

network = hobnob.networks.get("ring")(5)
"""

from __future__ import annotations

import inspect
from typing import Any

from hobnob.ground.registry import Registry


def _is_topology(value: Any) -> bool:
    # By name, since annotations are strings in these files.
    if not inspect.isfunction(value):
        return False
    returned = value.__annotations__.get("return")
    return getattr(returned, "__name__", returned) == "Network"


_registry = Registry("network", __name__, _is_topology)
names = _registry.names
get = _registry.get
