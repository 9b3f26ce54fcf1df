"""Call what a table of a configuration names, with the table's keys as options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hobnob.ground.errors import ConfigError

Settings = dict[str, Any]


def call(kind: str, get: Callable[[str], Any], table: Settings) -> Any:
    """What the table [kind] names, made with its other keys."""
    return call_with(f"[{kind}] {table['name']}", get(table["name"]), table, leave_out="name")


def call_with(where: str, made: Callable[..., Any], table: Settings, leave_out: str = "") -> Any:
    options = {key: value for key, value in table.items() if key != leave_out}
    parameters = check_options(where, made, options)
    missing = [
        name for name, p in parameters.items() if p.default is p.empty and name not in options
    ]
    if missing:
        raise ConfigError(f"{where} needs {missing[0]!r}.")
    try:
        return made(**options)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}.") from error


def check_options(
    where: str, made: Callable[..., Any], options: Settings
) -> Mapping[str, inspect.Parameter]:
    """The parameters of `made` by name. Raise if an option is not one of them."""
    parameters = inspect.signature(made).parameters
    named = {n: p for n, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key in options:
        if key not in named and not takes_any:
            raise ConfigError(
                f"{where}: there is no option {key!r}. There are: {', '.join(named)}."
            )
    return named
