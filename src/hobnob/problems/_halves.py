"""Records in two halves for every agent, for training and for validation.

Either one table is split and dealt to all agents, or each agent splits a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hobnob.ground.errors import SettingError
from hobnob.problems import _checks, _tables

Arrays = dict[str, np.ndarray]


class Halves(NamedTuple):
    """`training` and `validation`: a list with one shard an agent, or a function of its number."""

    training: Any
    validation: Any
    names: list[str]
    title: str


class Manner(NamedTuple):
    """How records are prepared and split."""

    share: float  # for validation
    deal: str
    scaling: str
    intercept: bool
    seed: int
    dtype: np.dtype


def dealt(table: _tables.Table, agents: int, how: Manner) -> Halves:
    """Split all records, and deal both halves to the agents."""
    table = _with_intercept(
        table._replace(features=_tables.scaled(table.features, how.scaling)), how.intercept
    )
    training, validation = _tables.split(table, how.share, np.random.default_rng(how.seed))
    held_out, fitted = (
        [
            _arrays(shard, how.dtype)
            for shard in _tables.deal(half, agents, how.deal, f"{table.title}, {level}")
        ]
        for half, level in ((validation, "validation"), (training, "training"))
    )
    return Halves(fitted, held_out, table.names, table.title)


def apart(read: Callable[[int], Any], features: int | None, positive: Any, how: Manner) -> Halves:
    """Every agent reads and splits a table of its own, by a seed of its own."""
    if features is None:
        raise SettingError(
            "features is needed where data is a function: no agent's records are read before it "
            "is known where the agent lives."
        )
    if how.scaling != "none":
        raise SettingError(
            f'scaling = "{how.scaling}" is of each feature over all records, and here nobody has '
            f'all of them: they would have to be pooled. Use scaling="none", and let all agents '
            f"prepare their records by fixed numbers that they agreed on."
        )
    if how.deal != "even":
        raise SettingError(f'deal = "{how.deal}" is of one table; here every agent has its own.')
    count = _checks.whole("features", features)

    @cache
    def own(agent: int) -> tuple[Arrays, Arrays]:
        table = _tables.own_table(agent, read(agent), count, positive)
        rng = np.random.default_rng([how.seed, agent])
        halves = _tables.split(_with_intercept(table, how.intercept), how.share, rng)
        return _arrays(halves[0], how.dtype), _arrays(halves[1], how.dtype)

    names = [f"x{i + 1}" for i in range(count)] + ["intercept"] * how.intercept
    return Halves(lambda k: own(k)[0], lambda k: own(k)[1], names, "tables of its own")


def _with_intercept(table: _tables.Table, wanted: bool) -> _tables.Table:
    if not wanted:
        return table
    features = np.hstack([table.features, np.ones((len(table.features), 1))])
    return table._replace(features=features, names=[*table.names, "intercept"])


def _arrays(shard: _tables.Shard, dtype: np.dtype) -> Arrays:
    return {"features": shard.features.astype(dtype), "label": shard.labels.astype(dtype)}
