"""A run without an algorithm: what is chosen, and what takes over if that does not work.

A stage is a run with one choice. If it diverges or stalls, the next one starts at the best point
that it saw. The result tells of all stages as of one run, and counts what choosing cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hobnob.analysis.choose import Choice, Trouble, adaptive_choice, first_choice, next_choice
from hobnob.analysis.estimates import estimate, unit_of_x
from hobnob.analysis.exact import affordable
from hobnob.analysis.mean_system import Cost
from hobnob.core.ledger import COLUMNS, Traffic
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.core.setup import Runtime, Setup
from hobnob.ground.errors import DivergenceError, SettingError
from hobnob.ground.terminal import say
from hobnob.run.chosen.trouble import trouble_of
from hobnob.run.options import SolveOptions
from hobnob.run.recorder import whole
from hobnob.run.result import Before, Result
from hobnob.runtimes.simulate import Simulate

ESTIMATED = ("samples", "gradients", "products")  # columns that estimates add to
Attempt = Callable[[Problem, Choice, SolveOptions], Result]


def solve_by_choice(
    problem: Problem, network: Network, steps: int | None, options: SolveOptions, attempt: Attempt
) -> Result:
    """Run what is chosen, stage by stage, until a stage needs no other."""
    if isinstance(options.runtime, Simulate):
        problem = problem.loaded()
    choice, unit = _first(problem, network, steps, options.runtime)
    measured = options.metrics == "all" and not problem.unread and affordable(problem)
    shown = options.progress if options.runtime.leads else False
    earlier, start = Earlier(choice.cost), problem
    while True:
        say(choice.why, shown)
        here = replace(options, checkpoint=_folder(options.checkpoint, earlier.stages))
        if options.tolerance is None and measured:
            here = replace(here, tolerance=choice.tolerance)
        if measured:
            here = replace(here, hopeless=partial(_in_trouble, choice))
        ended: Result | DivergenceError
        try:
            ended = attempt(start, choice, here)
        except DivergenceError as error:
            ended = error
        trouble = _trouble(ended, choice)
        done = earlier.steps + (ended.step if isinstance(ended, DivergenceError) else ended.steps)
        left = None if steps is None else steps - done
        following = trouble and next_choice(choice, trouble, problem, unit, left)
        if not following or left == 0:
            if isinstance(ended, DivergenceError):
                raise ended
            return earlier.told(ended, choice)
        start = _restart(start, choice, here, ended, attempt)
        earlier.add(ended, choice)
        choice = following


def _first(
    problem: Problem, network: Network, steps: int | None, runtime: Runtime
) -> tuple[Choice, float]:
    """The first choice, and the unit of x."""
    if problem.unread and not isinstance(runtime, Simulate):
        if problem.personal:
            raise SettingError(
                "Give an algorithm, such as LoPA: where every agent has its own y, step sizes are "
                "chosen from all data in one place, and here the shards are read by several ranks."
            )
        unit, cost = _unit_across(problem, network, runtime)
        reason = "No process has all data, so step sizes follow the curvature on the way."
        return adaptive_choice(problem, unit, steps, reason)._replace(cost=cost), unit
    known = estimate(problem)
    return first_choice(known, problem, network, steps), known.unit


def _unit_across(problem: Problem, network: Network, runtime: Runtime) -> tuple[float, Cost]:
    """Each process estimates it from the agents that it hosts; the median holds for all."""
    with problem.precision(), runtime.watched(network):
        anything = adaptive_choice(problem, 1.0, None, "").algorithm
        group, _ = runtime.join(Setup(problem, network, anything))
        every = group.allgather(unit_of_x(problem.hosting(group.here.tolist())))
        units, costs = zip(*every, strict=True)
        return float(np.median(units)), Cost(*np.mean(costs, axis=0).tolist())


def _folder(folder: str | Path | None, stages: int) -> str | Path | None:
    """Where a stage is saved: the first in the run's own folder."""
    return folder if folder is None or not stages else Path(folder) / f"stage-{stages + 1}"


def _in_trouble(choice: Choice, history: dict[str, np.ndarray]) -> bool:
    return trouble_of(history, choice) is not None


def _trouble(ended: Result | DivergenceError, choice: Choice) -> Trouble | None:
    if isinstance(ended, DivergenceError):
        return "diverged"
    return trouble_of(ended.history, choice) if ended.status == "stalled" else None


def _restart(
    start: Problem,
    choice: Choice,
    options: SolveOptions,
    ended: Result | DivergenceError,
    attempt: Attempt,
) -> Problem:
    """The problem from the best point that a stage saw."""
    if not isinstance(options.seeds, int):
        return start  # seeds went different ways
    if isinstance(ended, Result):
        uphill = ended.history["objective"][-1] > ended.history["objective"][0]
        return start if uphill else _from(start, ended.x, ended.y)
    if ended.best is not None:
        return _from(start, *ended.best)
    # It was seen before the run was resumed: go there once more.
    name = "objective" if "objective" in ended.history else "outer_loss"
    if name not in ended.history:
        return start
    step = ended.history["step"][np.nanargmin(ended.history[name])]
    again = replace(
        options, checkpoint=None, resume=False, hopeless=lambda rows: rows["step"][-1] >= step
    )
    found = attempt(start, choice, again)
    return _from(start, found.x, found.y)


def _from(problem: Problem, x: Any, y: Any) -> Problem:
    """Agents with their own y begin again with the one that they all had at the start."""
    return problem.starting_at(x, problem.y0 if problem.personal else y)


@dataclass
class Earlier:
    """What came before the last stage: estimates, and stages that ended in trouble."""

    cost: Cost
    stages: int = 0
    steps: int = 0
    seconds: float = 0.0
    why: list[str] = field(default_factory=list)
    histories: list[dict[str, np.ndarray]] = field(default_factory=list)
    ledger: dict[str, Any] = field(default_factory=dict)
    traffic: Traffic | None = None

    def add(self, ended: Result | DivergenceError, choice: Choice) -> None:
        steps = ended.step if isinstance(ended, DivergenceError) else ended.steps
        self.histories.append(self._moved(ended.history))
        self.seconds += float(ended.history["seconds"].reshape(-1)[-1])
        self.ledger = {name: self.ledger.get(name, 0) + part for name, part in ended.ledger.items()}
        traffic = ended.traffic
        self.traffic = self.traffic.and_then(traffic) if self.traffic else traffic
        self.stages, self.steps = self.stages + 1, self.steps + steps
        self.why.append(choice.why)

    def told(self, result: Result, choice: Choice) -> Result:
        """The last stage's result as that of the whole run."""
        ledger = {name: part + self.ledger.get(name, 0) for name, part in result.ledger.items()}
        for name in ESTIMATED:
            ledger[name] = ledger[name] + getattr(self.cost, name)
        last = self._moved(result.history)
        every = [*self.histories, last]
        # Methods hold different variables: what all stages measured is kept.
        names = [name for name in last if all(name in h for h in every)]
        history = {name: np.concatenate([h[name] for h in every], axis=-1) for name in names}
        message = result.message
        if self.stages:
            message = f"{message} That was stage {self.stages + 1}, from step {self.steps} on."
        return replace(
            result,
            history=history,
            ledger=ledger,
            steps=self.steps + result.steps,
            message=message,
            settings={**result.settings, "choice": " ".join([*self.why, choice.why])},
            before=Before(self.steps, self.traffic) if self.traffic else None,
        )

    def _moved(self, history: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The rows of a stage, counted from the start of the run."""
        before: dict[str, Any] = {
            name: np.mean(part, axis=-1, keepdims=True) for name, part in self.ledger.items()
        }
        before |= {"step": self.steps, "seconds": self.seconds + self.cost.seconds}
        for name in ESTIMATED:
            before[name] = before.get(name, 0) + getattr(self.cost, name)
        moved = {name: values + before.get(name, 0) for name, values in history.items()}
        # A stage that stalled has a row where the next one begins.
        if self.histories and moved["step"].min() == self.histories[-1]["step"].max():
            moved = {name: values[..., 1:] for name, values in moved.items()}
        return {name: whole(v) if name in COLUMNS else v for name, v in moved.items()}
