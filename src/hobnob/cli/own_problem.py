"""A [problem] table: one of the library's, or a function in a file of the user's own.

    [problem]
    name = "mine.py:problem"

names a function `problem(read, agents, **options)` that returns an `hb.Problem`. `read(k)` is the
table of agent k, column -> NumPy array; it can be read only where that agent lives, so shards are
usually functions of the agent's number that call it. `agents` is the number of all agents.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from hobnob import problems
from hobnob.cli.agent_files import AgentFiles
from hobnob.cli.calls import Settings, call_with, check_options
from hobnob.core.problem import Problem
from hobnob.ground.errors import ConfigError, HobnobError

SEPARATOR = ".py:"


def is_own(name: str) -> bool:
    return SEPARATOR in name


def resolved(name: str, folder: Path) -> str:
    """The same name with the file's whole path, if it is a file beside a configuration."""
    if not is_own(name):
        return name
    path, _, function = name.rpartition(":")
    return f"{(folder / path).resolve()}:{function}"


def make_problem(
    table: Settings, agents: int | None = None, files: AgentFiles | None = None
) -> Problem:
    """The problem that a table describes, with the data of the agents whose files are here.

    A list of files in the table itself, data = ["a.csv", "b.csv"], is one an agent.
    """
    own = is_own(table["name"])
    where = f"[problem] {Path(table['name']).name if own else table['name']}"
    made = load(table["name"]) if own else problems.get(table["name"])
    options = {key: value for key, value in table.items() if key != "name"}
    if files is None and isinstance(options.get("data"), list):
        listed = options.pop("data")
        files = AgentFiles(dict(enumerate(map(Path, listed))))
        agents = len(listed)
    parameters = inspect.signature(made).parameters
    if "agents" in parameters and agents is not None:
        given = options.setdefault("agents", agents)
        if given != agents:
            raise ConfigError(f"{where}: agents = {given}, and there are {agents}.")
    if own and "read" in parameters:
        if files is None:
            raise ConfigError(
                f"{where} reads a file for each agent, and none is given. In a configuration: "
                f'data = ["a.csv", "b.csv", ...]; on the command line of an owner: --data FILE.'
            )
        options["read"] = files
    elif files is not None:
        if own or "features" not in parameters:
            raise ConfigError(f"{where} does not read files of its agents: give it none.")
        options["data"] = files.labelled
        if files.features is not None:
            options.setdefault("features", files.features)
    if not own:
        return call_with(where, made, options)
    return _made_by(where, made, options)


def takes_files(table: Settings) -> bool:
    """Whether each agent may have a file of its own for this problem."""
    own = is_own(table["name"])
    made = load(table["name"]) if own else problems.get(table["name"])
    return ("read" if own else "features") in inspect.signature(made).parameters


def load(name: str) -> Callable[..., Any]:
    """The function of "path/mine.py:problem"."""
    path, function = Path(name.rpartition(":")[0]), name.rpartition(":")[2]
    if not path.is_file():
        raise ConfigError(
            f"There is no {path.name} in {path.parent}: [problem] names a function in it. The "
            f"file does not travel with a configuration; put a copy there, and read it first."
        )
    private = f"_hobnob_own_{sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(private, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[private] = module  # dataclasses look for their module there
    try:
        # Not by its loader, which would leave a compiled copy beside the file.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        raise ConfigError(f"{path.name}, line {error.lineno}: {error.msg}.") from error
    except Exception as error:
        raise ConfigError(f"{path.name} fails: {_said(error, path)}") from error
    found = getattr(module, function, None)
    if not callable(found):
        there = [n for n, v in vars(module).items() if inspect.isfunction(v) and n[0] != "_"]
        raise ConfigError(
            f"{path.name} has no function {function!r}. It has: {', '.join(there) or 'none'}."
        )
    return found


def _made_by(where: str, made: Callable[..., Any], options: Settings) -> Problem:
    parameters = check_options(where, made, options)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in options:
            raise ConfigError(f"{where} needs {name!r}: give it as a key of [problem].")
    try:
        problem = made(**options)
    except HobnobError:
        raise
    except Exception as error:
        file = Path(inspect.getsourcefile(made) or "")
        raise ConfigError(f"{where} fails: {_said(error, file)}") from error
    if not isinstance(problem, Problem):
        raise ConfigError(f"{where} must return a hb.Problem, not a {type(problem).__name__}.")
    return problem


def _said(error: Exception, file: Path) -> str:
    """What an error in a file says, and the last of its lines that was running."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}" + (f" (line {line})." if line else ".")
