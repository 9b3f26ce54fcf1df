"""reproduce: run one of the paper's studies and write its page."""

from __future__ import annotations

import importlib
import re
from argparse import Namespace
from dataclasses import asdict, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from hobnob.ground.errors import ConfigError
from hobnob.studies import study_folder
from hobnob.studies.study import Options, Report, Study

STUDIES = {"hyperopt": "figure_2", "policy": "figure_3", "claims": "claims"}  # name -> module


def reproduce(
    name: str,
    options: Options,
    folder: Path,
    *,
    workers: int | None = None,
    progress: bool | None = None,
    command: str = "",
) -> Report | None:
    """Measure what is missing and write the report. Return None if Ctrl-C interrupted it."""
    study = cast(Study, importlib.import_module(f"hobnob.studies.reproduce.{STUDIES[name]}"))
    _check_options(options)
    cells = study.plan(options)
    study_folder.claim(folder, _asked(name, options))
    found = study_folder.measure(cells, folder, workers=workers, progress=progress)
    if found is None:
        return None
    report = study.report(options, found)
    study_folder.write(folder, report, command)
    return report


def options_of(arguments: Namespace) -> Options:
    """Options from the parsed command line."""
    asked = {field.name: getattr(arguments, field.name) for field in fields(Options)}
    return Options(**{**asked, "only": tuple(sorted(asked["only"]))})


def flags(options: Options) -> str:
    """The options in the form of the command line."""
    return study_folder.flags(asdict(options))


def folder_name(name: str, options: Options) -> str:
    """The default folder of a study with these options."""
    return study_folder.slug(f"reproduce {name}{flags(options)}")


def _check_options(options: Options) -> None:
    for name in ("sims", "steps"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name} {value} must be at least 1.")
    named = options.data is None or not re.search(r"[/.]", options.data)
    if not named and not Path(str(options.data)).is_file():
        raise ConfigError(f"--data {options.data}: there is no such file.")


def _asked(name: str, options: Options) -> dict[str, Any]:
    """The options, with a hash of the data instead of their path."""
    asked: dict[str, Any] = {"study": name, **asdict(options), "only": list(options.only)}
    if options.data and Path(options.data).is_file():
        asked["data"] = sha256(Path(options.data).read_bytes()).hexdigest()
    return asked
