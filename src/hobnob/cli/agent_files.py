"""The files of agents: one table each, read where the agent lives and nowhere else.

A CSV file has a line of column names first; numbers become float64, other columns stay text. A
LIBSVM file has the columns "features", [records, features], and "label".
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from hobnob.ground.errors import ConfigError

LIBSVM_COLUMNS = ("label", "features")
_LIBSVM_LINE = re.compile(r"\s*[-+.\w]+(\s+\d+:\S+)+\s*(#.*)?$")

Columns = dict[str, np.ndarray]


class AgentFiles:
    """`files(k)` is the table of agent k: column -> array of its records.

    agents    those whose files are here
    columns   what all tables hold, in this order; other columns of a file are left out
    """

    def __init__(self, paths: Mapping[int, Path], columns: Sequence[str] | None = None):
        self._paths = {agent: Path(path) for agent, path in paths.items()}
        self._read: dict[int, Columns] = {}
        self.agents = sorted(self._paths)
        for path in self._paths.values():
            if not path.is_file():
                raise ConfigError(f"There is no data file {path}.")
        if columns is None:
            if not self.agents:
                raise ConfigError("No data file is given: one is needed for each agent.")
            columns = list(read_table(self._paths[self.agents[0]]))
        self.columns = list(columns)

    def __call__(self, agent: int) -> Columns:
        if agent not in self._read:
            if agent not in self._paths:
                raise ConfigError(
                    f"The data of agent {agent} is not here: this process has that of "
                    f"{', '.join(map(str, self.agents)) or 'none'}."
                )
            self._read[agent] = self._chosen(self._paths[agent])
        return self._read[agent]

    def labelled(self, agent: int) -> tuple[np.ndarray, np.ndarray]:
        """Features [records, features] and labels: what ready problems take."""
        table = dict(self(agent))
        labels = table.pop("label", None)
        if labels is None:
            raise ConfigError(
                f"{self._paths[agent].name} has no column 'label'. It must name the class of each "
                f"record; all other columns are features."
            )
        for name, column in table.items():
            if column.dtype.kind != "f":
                raise ConfigError(
                    f"{self._paths[agent].name}: the column {name!r} holds text such as "
                    f"{str(column[0])!r}. Features must be numbers."
                )
        return np.column_stack(list(table.values())), labels

    @property
    def features(self) -> int | None:
        """How many features records have, as far as it is known here."""
        if "features" not in self.columns:
            return len(self.columns) - 1
        return self.labelled(self.agents[0])[0].shape[1] if self.agents else None

    def _chosen(self, path: Path) -> Columns:
        table = read_table(path)
        for column in self.columns:
            if column not in table:
                raise ConfigError(
                    f"{path.name} has no column {column!r}. All agents' tables must have: "
                    f"{', '.join(self.columns)}. This one has: {', '.join(table)}."
                )
        return {column: table[column] for column in self.columns}


def read_table(path: Path) -> Columns:
    """Column -> array, from a CSV or a LIBSVM file."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = next((line for line in islice(file, 100) if line.strip()), "")
            if _LIBSVM_LINE.match(first):
                return _libsvm(path)
            file.seek(0)
            rows = _rows(file)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text file: {error.reason}.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except csv.Error as error:
        raise ConfigError(f"{path} is not a CSV file: {error}.") from error
    return _table(path, rows)


def _rows(file: Iterable[str]) -> list[tuple[int, list[str]]]:
    """(line, cells) of every line that is not empty."""
    reader = csv.reader(file, skipinitialspace=True)
    return [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]


def _table(path: Path, rows: list[tuple[int, list[str]]]) -> Columns:
    if len(rows) < 2:
        raise ConfigError(f"{path} holds no records: a line of column names, then one a record.")
    names = [cell.strip() for cell in rows[0][1]]
    numbers = [name for name in names if _is_number(name)]
    if numbers:
        raise ConfigError(
            f"{path}: the first line must name the columns, and it has {numbers[0]!r} in it."
        )
    for name in names:
        if not name or names.count(name) > 1:
            raise ConfigError(f"{path}: the column name {name!r} is empty or there twice.")
    for line, row in rows[1:]:
        if len(row) != len(names):
            raise ConfigError(
                f"{path}, line {line}: {len(row)} values, where {len(names)} columns are named."
            )
    columns = zip(*(row for _, row in rows[1:]), strict=True)
    return {name: _column(cells) for name, cells in zip(names, columns, strict=True)}


def _column(cells: Sequence[str]) -> np.ndarray:
    """Numbers if all cells are; one that is empty is NaN."""
    try:
        return np.array([float(cell) if cell.strip() else np.nan for cell in cells])
    except ValueError:
        return np.array([cell.strip() for cell in cells])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.lower() not in ("nan", "inf", "infinity")


def _libsvm(path: Path) -> Columns:
    from hobnob.problems import _tables

    features, labels = _tables.read_libsvm(path)
    return dict(zip(LIBSVM_COLUMNS, (labels, features), strict=True))
