"""Configuration files: from TOML to a problem, a network, an algorithm and options for `solve`.

    steps = 2000

    [problem]
    name = "hyperopt"
    data = "breast_cancer"
    agents = 8

    [network]
    name = "ring"

    [algorithm]
    name = "dsbo"
    alpha = 0.1
    beta = { rule = "nonconvex", scale = 10 }
    ...

Every option of a problem, a network or an algorithm is a key of its table. A network's size is the
problem's number of agents; instead of a name it may have `edges` or a `matrix`. A table
[network.levels.y] describes a network of its own for one level of the algorithm. Without
[algorithm] a method and its step sizes are chosen. A table [beside] is a second algorithm, which
runs after the first and is shown beside it.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx

from hobnob import algorithms, networks, problems
from hobnob.analysis.exact import affordable, curvature
from hobnob.core import schedules
from hobnob.core.algorithm import Algorithm
from hobnob.core.links import Cut, Drop, Failure, Silent
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.ground.errors import ConfigError

OPTIONS = (
    "steps",
    "seed",
    "record_every",
    "metrics",
    "tolerance",
    "checkpoint_every",
    "checkpoint_seconds",
)
TABLES = ("problem", "network", "algorithm", "beside")
NEEDED = ("problem", "network")
FAILURES = {"drop": Drop, "cut": Cut, "silent": Silent}  # the keys of [links]
RULES = ("nonconvex", "pl_outer", "pl_average", "capped", "power", "settling")

Settings = dict[str, Any]


class Job(NamedTuple):
    """What a configuration describes."""

    problem: Problem
    network: Network
    algorithm: Algorithm | None  # None: `solve` chooses
    beside: Algorithm | None
    options: dict[str, Any]


class Scene(NamedTuple):
    """The problem, the network and the failures of its links."""

    problem: Problem
    network: Network
    links: list[Failure] | None


def read(path: Path, changes: Sequence[str] = ()) -> Settings:
    """The settings of a file, with changes such as "steps=500" applied."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from error
    for change in changes:
        _apply(settings, change)
    _check_keys(settings, path)
    data = settings["problem"].get("data")
    if isinstance(data, str) and (path.parent / data).is_file():
        # The run may be resumed from another working directory.
        settings["problem"]["data"] = str((path.parent / data).resolve())
    return settings


def build(settings: Settings) -> Job:
    problem, network, links = scene(settings)
    return Job(
        problem,
        network,
        _algorithm(settings, "algorithm", problem),
        _algorithm(settings, "beside", problem),
        {name: settings[name] for name in OPTIONS if name in settings}
        | ({"links": links} if links is not None else {}),
    )


def scene(settings: Settings) -> Scene:
    problem = _call("problem", problems.get, settings["problem"])
    links = _links(settings["links"]) if "links" in settings else None
    return Scene(problem, _network(settings["network"], problem.size), links)


def given_algorithm(settings: Settings) -> dict[str, Any]:
    """name -> the algorithm that a file describes, if it has settings; otherwise empty.

    If required settings are missing, the value is a function of a `Scale` that suggests them.
    """
    table = settings.get("algorithm", {})
    own = {key: _schedule(key, value) for key, value in table.items() if key != "name"}
    if not own:
        return {}
    kind = algorithms.get(table["name"])
    if {f.name for f in fields(kind) if f.default is MISSING} <= set(own):
        return {f"{table['name']} as given": _call("algorithm", algorithms.get, {**table, **own})}
    _check_options(f"[algorithm] {table['name']}", kind, own)
    words = ", ".join(f"{key} = {value}" for key, value in own.items())
    return {f"{table['name']}, {words}": lambda scale: replace(kind.suggest(scale), **own)}


def _check_keys(settings: Settings, path: Path) -> None:
    known = (*OPTIONS, *TABLES, "links")
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise ConfigError(
            f"{path}: {unknown[0]!r} is not a setting. There are: {', '.join(known)}."
        )
    for table in (t for t in TABLES if t in NEEDED or t in settings):
        if not isinstance(settings.get(table), dict):
            raise ConfigError(f"{path}: the table [{table}] is missing.")
        if "name" not in settings[table] and table != "network":
            raise ConfigError(f"{path}: [{table}] needs a name. `hobnob list` shows them.")


def _apply(settings: Settings, change: str) -> None:
    key, separator, text = change.partition("=")
    if not separator:
        raise ConfigError(f"--set {change}: it must be KEY=VALUE, such as steps=500.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a word needs no quotes on a command line
    table, _, name = key.rpartition(".")
    if not table and name not in OPTIONS:
        table = "algorithm"  # gamma=0.1 is clear enough
    if table and table not in (*TABLES, "links"):
        raise ConfigError(f"--set {change}: there is no table [{table}].")
    (settings.setdefault(table, {}) if table else settings)[name] = value


def _network(table: Settings, size: int) -> Network:
    table = dict(table)
    levels = table.pop("levels", {})
    network = _one_network(table, size)
    return network.with_levels(**{name: _one_network(own, size) for name, own in levels.items()})


def _one_network(table: Settings, size: int) -> Network:
    given = [key for key in ("name", "edges", "matrix") if key in table]
    if len(given) != 1:
        raise ConfigError("[network] needs exactly one of: name, edges, matrix.")
    weights = {"weights": table["weights"]} if "weights" in table else {}
    if "matrix" in table:
        return Network(table["matrix"])
    if "edges" in table:
        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(size))
        graph.add_edges_from(table["edges"])
        return Network(graph, **weights)
    first = next(iter(inspect.signature(networks.get(table["name"])).parameters))
    return _call("network", networks.get, {first: size, **table})


def _links(table: Settings) -> list[Failure]:
    """`drop` is a probability; `cut` and `silent` are lists of what `Cut` and `Silent` take."""
    failures: list[Failure] = []
    for kind, given in table.items():
        if kind not in FAILURES:
            raise ConfigError(f"[links] has no {kind!r}. There are: {', '.join(FAILURES)}.")
        rows = given if kind != "drop" and isinstance(given, list) else [[given]]
        try:
            failures += [FAILURES[kind](*row) for row in rows]
        except TypeError as error:
            raise ConfigError(f"[links] {kind} = {given!r}: {error}.") from error
    return failures


def _algorithm(settings: Settings, kind: str, problem: Problem) -> Algorithm | None:
    if kind not in settings:
        return None
    table = settings[kind]
    made = algorithms.get(table["name"])
    required = {f.name for f in fields(made) if f.default is MISSING}
    missing = sorted(required - set(table))
    if missing:
        raise ConfigError(f"[{kind}] {table['name']} needs {missing[0]}.{_hint(missing, problem)}")
    table = {key: _schedule(key, value) for key, value in table.items()}
    return _call(kind, algorithms.get, table)


def _hint(missing: list[str], problem: Problem) -> str:
    if not {"smoothness", "strong_convexity"} & set(missing) or not affordable(problem):
        return ""
    smallest, largest = curvature(problem)
    return (
        f" At the starting point the curvature of the inner problem lies between {smallest:.3g} "
        f"(strong_convexity) and {largest:.3g} (smoothness)."
    )


def _schedule(key: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    rule = value.get("rule")
    if rule not in RULES:
        raise ConfigError(f"{key}: the rule {rule!r} is not known. There are: {', '.join(RULES)}.")
    return _call_with(f"{key}, rule {rule}", getattr(schedules, rule), value, leave_out="rule")


def _call(kind: str, get: Callable[[str], Any], table: Settings) -> Any:
    return _call_with(f"[{kind}] {table['name']}", get(table["name"]), table, leave_out="name")


def _call_with(where: str, made: Callable[..., Any], table: Settings, leave_out: str) -> Any:
    options = {key: value for key, value in table.items() if key != leave_out}
    parameters = _check_options(where, made, options)
    missing = [
        name for name, p in parameters.items() if p.default is p.empty and name not in options
    ]
    if missing:
        raise ConfigError(f"{where} needs {missing[0]!r}.")
    try:
        return made(**options)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}.") from error


def _check_options(where: str, made: Callable[..., Any], options: Settings) -> Mapping[str, Any]:
    """The parameters of `made`. Raise if an option is not one of them."""
    parameters = inspect.signature(made).parameters
    for key in options:
        if key not in parameters:
            raise ConfigError(
                f"{where}: there is no option {key!r}. There are: {', '.join(parameters)}."
            )
    return parameters
