"""Option: settings besides the suggested ones that a transcription knows too.

A reference with `OPTIONS = [Option(...)]` has each of them held to all that is asked of the method.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from hobnob.core.algorithm import Algorithm, Scale


class Option(NamedTuple):
    name: str
    settings: dict[str, Any]
    exact: bool  # what the method's `exact` is with these settings
    elsewhere: tuple[str, ...] = ()  # checks that need other settings, in a test of their own

    def of(self, cls: type[Any]) -> type[Algorithm]:
        """The method with these settings, as a class of its own: checks take classes."""
        settings, is_exact = self.settings, self.exact

        class WithOption(cls):
            exact = is_exact

            @classmethod
            def suggest(cls, scale: Scale) -> Any:
                return replace(super().suggest(scale), **settings)

        WithOption.__name__ = WithOption.__qualname__ = f"{cls.__name__} ({self.name})"
        return WithOption
