"""The check that all topologies share."""

from __future__ import annotations

import operator
from typing import Any

from hobnob.ground.errors import NetworkError


def whole(value: Any, what: str, least: int = 1) -> int:
    """`value` as an int; an error unless it is a whole number of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise NetworkError(f"{what} must be a whole number of at least {least}, not {value!r}.")
    return number
