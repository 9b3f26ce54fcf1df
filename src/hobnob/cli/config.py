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

Every option of a problem, a network or an algorithm is a key of its table. A problem may also be a
function in a file of the user's own, name = "mine.py:problem", and have one file an agent, data =
["a.csv", "b.csv"]; own_problem.py tells how. A network's size is the problem's number of agents;
instead of a name it may have `edges` or a `matrix`. A table [network.levels.y] describes a network
of its own for one level of the algorithm. Without [algorithm] a method and its step sizes are
chosen. A table [beside] is a second algorithm, which runs after the first and is shown beside it. A
table [rules] is for runs of several owners.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx

from hobnob import algorithms, networks
from hobnob.analysis.exact import affordable, curvature
from hobnob.cli.calls import Settings, call, call_with, check_options
from hobnob.cli.own_problem import make_problem, resolved
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
OTHERS = ("links", "rules")  # tables without a name
NEEDED = ("problem", "network")
FAILURES = {"drop": Drop, "cut": Cut, "silent": Silent}  # the keys of [links]
RULES = ("nonconvex", "pl_outer", "pl_average", "capped", "power", "settling")


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
    _find_files(settings["problem"], path.parent)
    return settings


def build(settings: Settings) -> Job:
    problem, network, links = _scene(settings)
    return Job(
        problem,
        network,
        algorithm_of(settings, "algorithm", problem),
        algorithm_of(settings, "beside", problem),
        {name: settings[name] for name in OPTIONS if name in settings}
        | ({"links": links} if links is not None else {}),
    )


def scene(settings: Settings) -> Scene:
    """With the data of all agents in this process."""
    found = _scene(settings)
    return found._replace(problem=found.problem.loaded())


def _scene(settings: Settings) -> Scene:
    problem = make_problem(settings["problem"])
    network = network_of(settings["network"], problem.size)
    return Scene(problem, network, links_of(settings))


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
        return {f"{table['name']} as given": call("algorithm", algorithms.get, {**table, **own})}
    check_options(f"[algorithm] {table['name']}", kind, own)
    words = ", ".join(f"{key} = {value}" for key, value in own.items())
    return {f"{table['name']}, {words}": lambda scale: replace(kind.suggest(scale), **own)}


def _find_files(table: Settings, folder: Path) -> None:
    """Files are beside the configuration; the run may be resumed from another working directory."""
    table["name"] = resolved(table["name"], folder)
    data = table.get("data")
    if isinstance(data, list) and all(isinstance(file, str) for file in data):
        table["data"] = [str((folder / file).resolve()) for file in data]
    elif isinstance(data, str) and (folder / data).is_file():
        table["data"] = str((folder / data).resolve())


def _check_keys(settings: Settings, path: Path) -> None:
    known = (*OPTIONS, *TABLES, *OTHERS)
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
    if table and table not in (*TABLES, *OTHERS):
        raise ConfigError(f"--set {change}: there is no table [{table}].")
    (settings.setdefault(table, {}) if table else settings)[name] = value


def network_of(table: Settings, size: int) -> Network:
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
    return call("network", networks.get, {first: size, **table})


def links_of(settings: Settings) -> list[Failure] | None:
    """`drop` is a probability; `cut` and `silent` are lists of what `Cut` and `Silent` take."""
    if "links" not in settings:
        return None
    failures: list[Failure] = []
    for kind, given in settings["links"].items():
        if kind not in FAILURES:
            raise ConfigError(f"[links] has no {kind!r}. There are: {', '.join(FAILURES)}.")
        rows = given if kind != "drop" and isinstance(given, list) else [[given]]
        try:
            failures += [FAILURES[kind](*row) for row in rows]
        except TypeError as error:
            raise ConfigError(f"[links] {kind} = {given!r}: {error}.") from error
    return failures


def algorithm_of(settings: Settings, kind: str, problem: Problem) -> Algorithm | None:
    if kind not in settings:
        return None
    table = settings[kind]
    made = algorithms.get(table["name"])
    required = {f.name for f in fields(made) if f.default is MISSING}
    missing = sorted(required - set(table))
    if missing:
        raise ConfigError(f"[{kind}] {table['name']} needs {missing[0]}.{_hint(missing, problem)}")
    table = {key: _schedule(key, value) for key, value in table.items()}
    return call(kind, algorithms.get, table)


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
    return call_with(f"{key}, rule {rule}", getattr(schedules, rule), value, leave_out="rule")
