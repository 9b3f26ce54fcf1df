"""Recorder: measures the network's state and keeps the history."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.compiler import compiler_options
from hobnob.errors import SettingError
from hobnob.ledger import COLUMNS
from hobnob.record import metrics
from hobnob.record.view import View

Metric = Callable[[View], Any]
Metrics = str | Metric | Sequence[str | Metric] | Mapping[str, Metric] | None


@partial(jax.tree_util.register_dataclass, data_fields=["numbers", "x", "y"], meta_fields=["names"])
@dataclass(frozen=True)
class Measured:
    """The library's own metrics, all in one array, [seeds,] metrics; where x and y were.

    The device may still be at it, and does what it is asked for later only afterwards.
    """

    names: tuple[str, ...]
    numbers: Any
    x: Any
    y: Any


class Recorder:
    """Columns of numbers, one row a recorded step.

    The library's own metrics are compiled together; a user's run on the host with NumPy arrays.
    What a step cost (samples, bytes, ...) is per agent, the mean over agents.
    """

    def __init__(self, run: Any, chosen: Any = "all"):
        self._run = run
        own, self.users = _choose(chosen, run.problem)
        self.names = [*own, *self.users]
        for name in self.users:
            if name in ("step", "seconds", *COLUMNS, *metrics.names()):
                raise SettingError(
                    f"A metric of yours is called {name!r}, as a column of the library's own is. "
                    f"Give it another name: metrics={{name: function}}."
                )
        self.rows: list[dict[str, np.ndarray]] = []  # but for the one that waits
        self._waiting: tuple[int, float, Measured] | None = None
        self._last: Measured | None = None
        here = run.measurable(own)
        self._elsewhere = [name for name in own if name not in here]
        self._measure = _compiled(run.problem, tuple(here), run.many_seeds, run.layout)

    def measure(self, gathered: Any) -> Measured:
        """Of a state with all agents in it, which need not be there yet either."""
        return self._measure(self._run.places, gathered)

    def record(self, step: int, state: Any, seconds: float, gathered: Any) -> dict[str, np.ndarray]:
        """A row, now. `gathered` is the state with all agents in it, where the run leads."""
        start = self._start_of_row(step, seconds)
        losses = self._run.pooled_losses(state, self._elsewhere)

        def measured() -> dict[str, np.ndarray]:
            return start | losses | self._read(self.measure(gathered)) | self._ask_users(gathered)

        row = self._run.told(measured)
        self.rows.append(row)
        return row

    def record_later(self, step: int, seconds: float, measured: Measured) -> None:
        """A row, at the next `catch_up`. It has no metrics of the user's, nor losses of others."""
        self._waiting = step, seconds, measured

    def wait(self) -> float:
        """Until the device is done with the row that waits, if it is not yet. Returns that time."""
        if self._waiting is None or self._waiting[2].numbers.is_ready():
            return 0.0
        jax.block_until_ready(self._waiting[2].numbers)
        return time.perf_counter()

    def catch_up(self) -> None:
        """Read the row that waits."""
        if self._waiting is not None:
            (step, seconds, measured), self._waiting = self._waiting, None
            self.rows.append(self._start_of_row(step, seconds) | self._read(measured))

    def has(self, step: int) -> bool:
        """Whether there is a row of this step, or one that waits."""
        last = self._waiting[0] if self._waiting else self.rows[-1]["step"] if self.rows else -1
        return bool(last == step)

    def _start_of_row(self, step: int, seconds: float) -> dict[str, np.ndarray]:
        costs = self._run.costs.mean_until(step)
        return {"step": np.asarray(step), **costs, "seconds": np.asarray(seconds)}

    def _read(self, measured: Measured) -> dict[str, np.ndarray]:
        self._last = measured
        return dict(zip(measured.names, np.asarray(measured.numbers).T, strict=True))

    @property
    def seen_at(self) -> tuple[Any, Any]:
        """The mean x and y of the last row that this process measured, or where a run begins."""
        problem, last = self._run.problem, self._last
        if last is None:
            return problem.x0, problem.y0
        x, y = (np.asarray(v).reshape(-1, v.shape[-1]).mean(axis=0) for v in (last.x, last.y))
        return problem.x_layout.unravel(x, np), problem.y_layout.unravel(y, np)

    def history(self) -> dict[str, np.ndarray]:
        """Column -> [rows], or [seeds, rows] where a run has several seeds."""
        self.catch_up()
        columns = {}
        for name in self.rows[0] if self.rows else ():
            values = np.stack(np.broadcast_arrays(*(row[name] for row in self.rows)), axis=-1)
            whole = name in COLUMNS and (values == np.round(values)).all()
            columns[name] = values.astype(np.int64) if whole else values
        if self._run.many_seeds:
            seeds = len(self._run.world.keys)
            columns = {
                n: np.broadcast_to(v, (seeds, v.shape[-1])).copy() for n, v in columns.items()
            }
        return columns

    def restore(self, history: dict[str, np.ndarray]) -> None:
        count = history["step"].shape[-1] if history else 0
        self.rows = [
            {name: np.asarray(v[..., i]) for name, v in history.items()} for i in range(count)
        ]
        for row in self.rows:
            row["step"] = row["step"].reshape(-1)[0]

    def _ask_users(self, gathered: Any) -> dict[str, Any]:
        if not self.users:
            return {}
        state = jax.tree.map(np.asarray, self._run.layout.opened(gathered))
        seeds = range(len(self._run.world.keys)) if self._run.many_seeds else [slice(None)]
        answers = []
        for seed in seeds:
            one = jax.tree.map(lambda leaf, seed=seed: leaf[seed], state)
            view = View(self._run.problem, self._run.places, one)
            answer = _flattened({name: ask(view) for name, ask in self.users.items()})
            answers.append({name: _number(name, value) for name, value in answer.items()})
        if not self._run.many_seeds:
            return {name: np.asarray(answer) for name, answer in answers[0].items()}
        return {name: np.array([answer[name] for answer in answers]) for name in answers[0]}


@lru_cache(maxsize=8)
def _compiled(
    problem: Any, own: tuple[str, ...], many_seeds: bool, layout: Any
) -> Callable[..., Any]:
    """The library's own metrics; runs on one problem share the compilation."""

    def of_seed(places: Any, state: Any, disagreements: dict[str, Any]) -> Measured:
        view = View(problem, places, state, disagreements)
        found = _flattened({name: metrics.get(name)(view) for name in own})
        return Measured(tuple(found), jnp.array(list(found.values())), view.flat_x, view.flat_y)

    lifted = jax.vmap(of_seed, in_axes=(None, 0, 0)) if many_seeds else of_seed

    def measure(places: Any, held: Any) -> Measured:
        return lifted(places, layout.opened(held), layout.disagreements(held))

    return jax.jit(measure, compiler_options=compiler_options(problem.dtype))


def _choose(chosen: Any, problem: Any) -> tuple[list[str], dict[str, Any]]:
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
