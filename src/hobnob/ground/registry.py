"""Registries: adding a file to a folder registers what it defines.

Files are imported on first use, and no list of names is kept by hand.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cached_property
from typing import Any

from hobnob.ground.errors import ConfigError


class Registry:
    """The public objects in the modules of one package that `accepts` accepts.

    `name_of(module, name)` is the registered name: an algorithm is named after its file, a topology
    or a metric after its function.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        accepts: Callable[[Any], bool],
        name_of: Callable[[str, str], str] = lambda module, name: name,
    ):
        self.kind = kind
        self._package = package
        self._accepts = accepts
        self._name_of = name_of

    @cached_property
    def _found(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        package = importlib.import_module(self._package)
        for info in pkgutil.iter_modules(package.__path__):
            if info.name.startswith("_"):
                continue
            module = importlib.import_module(f"{self._package}.{info.name}")
            for name, value in vars(module).items():
                defined_here = inspect.getmodule(value) is module
                if not name.startswith("_") and defined_here and self._accepts(value):
                    found[self._name_of(info.name, name)] = value
        return dict(sorted(found.items()))

    def names(self) -> list[str]:
        return list(self._found)

    def get(self, name: str) -> Any:
        try:
            return self._found[name]
        except KeyError:
            known = ", ".join(self.names())
            raise ConfigError(f"There is no {self.kind} {name!r}. There are: {known}.") from None
