"""Recorder: measures the network's state and keeps the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob import metrics
from hobnob.core.ledger import COLUMNS
from hobnob.core.problem import Problem
from hobnob.core.setup import Tree
from hobnob.fast import StateLayout
from hobnob.ground.errors import SettingError
from hobnob.metrics.view import View
from hobnob.run.observers import Row
from hobnob.run.run import Run

Metric = Callable[[View], Any]
Metrics = str | Metric | Sequence[str | Metric] | Mapping[str, Metric] | None


@partial(jax.tree_util.register_dataclass, data_fields=["numbers", "x", "y"], meta_fields=["names"])
@dataclass(frozen=True)
class Measured:
    """The library's own metrics as one array, [seeds,] metrics, and the view's flat x and y."""

    names: tuple[str, ...]
    numbers: jax.Array
    x: jax.Array
    y: jax.Array


class Recorder:
    """Columns of numbers, one row a recorded step.

    The library's own metrics are compiled together; a user's run on the host with NumPy arrays.
    What a step cost (samples, bytes, ...) is per agent, the mean over agents. If the inner problem
    is `flat`, exact F is that of its solution of the smallest norm.
    """

    def __init__(self, run: Run, chosen: Metrics = "all", flat: bool = False):
        self._run, self.flat = run, flat
        own, self.users = _choose(chosen, run.problem)
        self.names = [*own, *self.users]
        for name in self.users:
            if name in ("step", "seconds", *COLUMNS, *metrics.names()):
                raise SettingError(
                    f"A metric of yours is called {name!r}, as a column of the library's own is. "
                    f"Give it another name: metrics={{name: function}}."
                )
        self.rows: list[Row] = []
        self._last: Measured | None = None
        self._best: tuple[float, Measured | None] | None = None
        # Without all data here, the losses are summed up by all processes.
        spread = ("outer_loss", "inner_loss") if run.places is None else ()
        self._spread = [name for name in own if name in spread]
        here = tuple(name for name in own if name not in spread)
        options = tuple(run.options.items())
        many_seeds, layout = run.setup.many_seeds, run.layout
        self._measure = _compiled(run.problem, here, many_seeds, layout, options, flat)

    def record(self, step: int, state: Tree, seconds: float, gathered: Tree | None) -> Row:
        """Measure and keep a row. The leader has `gathered`, the state of all agents."""
        costs = self._run.costs.mean_until(step)
        start = {"step": np.asarray(step), **costs, "seconds": np.asarray(seconds)}
        losses = self._run.losses_at_mean(state, self._spread)

        def measured() -> Row:
            return start | losses | self._measured(gathered) | self._ask_users(gathered)

        row = self._run.group.from_leader(measured)
        self.rows.append(row)
        return row

    def _measured(self, gathered: Tree) -> Row:
        self._last = self._measure(self._run.places, gathered)
        row = dict(zip(self._last.names, np.asarray(self._last.numbers).T, strict=True))
        self._keep_if_best(row, self._last)
        return row

    @property
    def seen_at(self) -> tuple[Tree, Tree]:
        """A view's x and y at the last row that this process measured, or where the run began."""
        if self._last is None:
            return self._run.problem.x0, self._run.problem.y0
        return self._point(self._last)

    @property
    def best_at(self) -> tuple[Tree, Tree] | None:
        """A view's x and y at the row with the lowest F, or outer loss.

        None where that is not one point: with several seeds, and if an earlier process saw it.
        """
        if self._best is None or self._best[1] is None or self._run.setup.many_seeds:
            return None
        return self._point(self._best[1])

    def _keep_if_best(self, row: Row, measured: Measured | None) -> None:
        value = float(np.median(row.get("objective", row.get("outer_loss", np.inf))))
        if value < (np.inf if self._best is None else self._best[0]):
            self._best = value, measured

    def _point(self, at: Measured) -> tuple[Tree, Tree]:
        problem = self._run.problem
        x, y = (np.asarray(v) for v in (at.x, at.y))
        if self._run.setup.many_seeds:
            x, y = x.mean(axis=0), y.mean(axis=0)
        return problem.x_layout.unravel(x, np), problem.y_layout.unravel(y, np)

    def history(self) -> dict[str, np.ndarray]:
        """Column -> [rows], or [seeds, rows] where a run has several seeds."""
        columns = {}
        for name in self.rows[0] if self.rows else ():
            values = np.stack(np.broadcast_arrays(*(row[name] for row in self.rows)), axis=-1)
            columns[name] = whole(values) if name in COLUMNS else values
        if self._run.setup.many_seeds:
            seeds = len(self._run.world.keys)
            columns = {
                n: np.broadcast_to(v, (seeds, v.shape[-1])).copy() for n, v in columns.items()
            }
        return columns

    def restore(self, history: dict[str, np.ndarray], step: int) -> None:
        """Go on from the rows of a checkpoint of this step."""
        count = history["step"].shape[-1] if history else 0
        self.rows = [
            {name: np.asarray(v[..., i]) for name, v in history.items()} for i in range(count)
        ]
        for row in self.rows:
            row["step"] = row["step"].reshape(-1)[0]
            self._keep_if_best(row, None)

    def _ask_users(self, gathered: Tree) -> Row:
        if not self.users:
            return {}
        state = jax.tree.map(np.asarray, self._run.layout.unpack(gathered))
        seeds = range(len(self._run.world.keys)) if self._run.setup.many_seeds else [slice(None)]
        answers = []
        for seed in seeds:
            one = jax.tree.map(lambda leaf, seed=seed: leaf[seed], state)
            view = View(self._run.problem, self._run.places, one, flat=self.flat)
            answer = _flattened({name: ask(view) for name, ask in self.users.items()})
            answers.append({name: _number(name, value) for name, value in answer.items()})
        if not self._run.setup.many_seeds:
            return {name: np.asarray(answer) for name, answer in answers[0].items()}
        return {name: np.array([answer[name] for answer in answers]) for name in answers[0]}


@lru_cache(maxsize=8)
def _compiled(
    problem: Problem,
    own: tuple[str, ...],
    many_seeds: bool,
    layout: StateLayout,
    options: tuple[tuple[str, Any], ...],
    flat: bool,
) -> Callable[[Tree, Tree], Measured]:
    """The library's own metrics; runs on one problem share the compilation."""

    def of_seed(places: Tree, state: Tree, disagreements: dict[str, jax.Array]) -> Measured:
        view = View(problem, places, state, disagreements, flat)
        found = _flattened({name: metrics.get(name)(view) for name in own})
        return Measured(tuple(found), jnp.array(list(found.values())), view.flat_x, view.flat_y)

    lifted = jax.vmap(of_seed, in_axes=(None, 0, 0)) if many_seeds else of_seed

    def measure(places: Tree, packed: Tree) -> Measured:
        return lifted(places, layout.unpack(packed), layout.disagreements(packed))

    return jax.jit(measure, compiler_options=dict(options))


def _choose(chosen: Any, problem: Problem) -> tuple[list[str], dict[str, Metric]]:
    """The library's metrics by name, and the user's functions by the name they get."""
    possible = metrics.available(problem)
    if chosen is None or (isinstance(chosen, str) and chosen == "none"):
        return [], {}
    if isinstance(chosen, str):
        return (possible, {}) if chosen == "all" else _choose([chosen], problem)
    if callable(chosen):
        return _choose([chosen], problem)
    if isinstance(chosen, Mapping):
        return possible, dict(chosen)
    if not isinstance(chosen, Sequence):
        raise SettingError(
            f'metrics = {chosen!r} must be "all", names, functions of a View, or None.'
        )
    own, users = [], {}
    for item in chosen:
        if callable(item):
            name = getattr(item, "__name__", "metric")
            if name in users:
                raise SettingError(
                    f"Two metrics are called {name!r}. Name them: metrics={{name: function}}."
                )
            users[name] = item
        elif metrics.get(item).when(problem):
            own.append(item)
        else:
            raise SettingError(
                f"The metric {item!r} cannot be computed for this problem. These can: "
                f"{', '.join(possible)}."
            )
    # Functions alone come on top of what is measured anyway.
    return (own if own else possible), users


def whole(values: np.ndarray) -> np.ndarray:
    """As integers, if they are: a mean over agents need not be."""
    return values.astype(np.int64) if (values == np.round(values)).all() else values


def _number(name: str, value: Any) -> float:
    try:
        if np.ndim(value) == 0:
            return float(value)
    except (TypeError, ValueError):
        pass
    raise SettingError(
        f"The metric {name!r} returned {value!r}. A column takes one number a row: return a "
        f"number, or a dict of numbers."
    )


def _flattened(measured: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in measured.items():
        if isinstance(value, dict):
            flat |= {f"{name}_{key}": part for key, part in value.items()}
        else:
            flat[name] = value
    return flat
