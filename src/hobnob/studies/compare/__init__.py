"""compare: several methods on one problem and network, from the call to the page.

Every contestant is a cell: it searches for step sizes and is then measured, see `contest`. On the
command line, worker processes measure them in parallel. From Python they run one after the other
in this process, because other processes may not be able to import a user's losses and classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hobnob import algorithms as registry
from hobnob.analysis.estimates import inner_curvatures
from hobnob.analysis.exact import affordable, curvature, exact, optimum
from hobnob.analysis.newton import DENSE
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.ground.errors import ConfigError, ProblemError, SettingError
from hobnob.report.picture import Picture
from hobnob.studies import study_folder
from hobnob.studies.cell import Cell, Found
from hobnob.studies.compare import contest
from hobnob.studies.compare.comparison_page import Facts, report
from hobnob.studies.compare.contest import Contestant, Rules
from hobnob.studies.compare.ranking import Standing, ranked, standing, target_without_optimum
from hobnob.studies.study import Report

DRAWS, QUICK_DRAWS = 20_000, 4_000  # batches an agent may draw where no budget is given
SEEDS, QUICK_SEEDS = 10, 6

Wanted = Sequence[Any] | Mapping[str, Any] | None


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        recommendation: what to take, in a sentence.
        table: what each method needed to reach the target, best first; rows of column -> value.
        standings: the same as numbers, with intervals.
        curves: name -> cost or measurement -> array; `value` and `gradient_norm` are [seeds, rows].
        target: the value that had to be reached.
        left_out: methods that do not fit, and why.
        pictures: by name. `save` of one writes it as SVG, PNG and CSV.
        page: the path of the page, where a folder was given.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=2, dim_x=2, dim_y=2)
        >>> dsoba = hb.DSOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2)
        >>> found = hb.compare(problem, hb.ring(2), {"small": dsoba}, steps=20, seeds=2)
        >>> found.curves["small"]["value"].shape
        (2, 21)
    """

    recommendation: str
    table: Sequence[Mapping[str, object]]
    standings: Sequence[Standing]
    curves: Mapping[str, Found] = field(repr=False)
    target: float
    left_out: Mapping[str, str]
    report: Report = field(repr=False)
    page: Path | None

    @property
    def pictures(self) -> dict[str, Picture]:
        return {picture.name: picture for picture in self.report.pictures()}

    @property
    def reached(self) -> bool:
        """Whether any method reached the target."""
        return any(s.there for s in self.standings)

    def to_pandas(self) -> Any:
        """Everything that was recorded, one row for each method, seed and step."""
        import pandas

        return pandas.DataFrame(self.report.rows)

    def __str__(self) -> str:
        return self.recommendation


def compare(
    problem: Problem,
    network: Any,
    algorithms: Wanted = None,
    *,
    without: Collection[str] = (),
    budget: float | None = None,
    steps: int | None = None,
    seeds: int | None = None,
    target: float | None = None,
    links: Any = None,
    quick: bool = False,
    out: str | Path | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Put methods beside each other on one problem and network, at equal cost.

    Args:
        problem, network, links: as for `solve`.
        algorithms: names, classes and instances, or a dict that names them. A name or a class has
            its step sizes searched for, around what it suggests; so has a function of a `Scale`
            that makes an instance. An instance runs as it is. None takes all registered ones that
            fit. A class of your own needs no registration.
        without: names that None leaves out.
        budget: samples that an agent may draw.
        steps: the number of iterations, in place of a budget.
        seeds: how many are measured, besides those that choose the step sizes.
        target: the value of F to be reached (default: 1 % above the best centralised one).
        quick: a small search and a small budget.
        out: a folder for the page, its pictures and all numbers. The same call resumes there after
            an interruption.
        progress: a bar on standard error; None shows it where that is a terminal.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=2, dim_x=2, dim_y=2)
        >>> dsoba = hb.DSOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2)
        >>> found = hb.compare(problem, hb.ring(2), {"small": dsoba}, steps=20, seeds=2)
        >>> [row["method"] for row in found.table]
        ['small']
    """
    network = network if isinstance(network, Network) else Network(network)
    folder = nullcontext(out) if out is not None else TemporaryDirectory(prefix="hobnob-")
    with folder as place:
        found = run_comparison(
            lambda: (problem, network, links),
            algorithms,
            Asked(budget, steps, seeds, target, quick),
            Path(str(place)),
            without=without,
            workers=0,
            progress=progress,
            command="hb.compare(problem, network, ...)",
        )
    if found is None:
        raise KeyboardInterrupt("The comparison was stopped. With out=DIR the same call resumes.")
    return found if out is not None else replace(found, page=None)


@dataclass(frozen=True)
class Asked:
    """The size of the comparison. None: we decide."""

    budget: float | None = None
    steps: int | None = None
    seeds: int | None = None
    target: float | None = None
    quick: bool = False


def run_comparison(
    scene: contest.MakeScene,
    wanted: Wanted,
    asked: Asked,
    folder: Path,
    *,
    extra: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
    workers: int | None = None,
    progress: bool | None = None,
    command: str = "",
) -> Comparison | None:
    """Measure what is missing in the folder. Return None if Ctrl-C interrupted it.

    scene: makes the problem, the network and the failures, in every process that needs them.
    extra: contestants in addition to `wanted`.
    """
    _check(asked)
    problem, network, links = scene()
    contestants, left_out = _contestants(problem, network, links, wanted, extra or {}, without)
    facts = _facts(problem, network, asked, left_out)
    rules = _rules(problem, asked, facts.target)
    study_folder.claim(folder, _described(problem, network, links, contestants, rules))
    cells = [
        Cell(
            study_folder.slug(one.name),
            contest.run,
            {"scene": scene, "contestant": one, "rules": rules},
            solves=rules.runs if one.searched else 2,
        )
        for one in contestants
    ]
    found = study_folder.measure(cells, folder, workers=workers, progress=progress)
    if found is None:
        return None
    curves = {one.name: found[study_folder.slug(one.name)] for one in contestants}
    target = facts.target if facts.target is not None else target_without_optimum(curves)
    standings = ranked(
        [standing(o.name, curves[o.name], target, o.algorithm.server) for o in contestants]
    )
    own = [one.name for one in contestants if one.name not in registry.names()]
    made = report(replace(facts, target=target), rules, standings, curves, own)
    page = study_folder.write(folder, made, command)
    return Comparison(made.verdict, made.table, standings, curves, target, left_out, made, page)


def _check(asked: Asked) -> None:
    if asked.budget is not None and asked.steps is not None:
        raise ConfigError("Give a budget of samples or a number of steps, not both.")
    for name in ("budget", "steps", "seeds"):
        value = getattr(asked, name)
        if value is not None and not value >= 1:
            raise ConfigError(f"{name} = {value} must be at least 1.")
    if asked.target is not None and not np.isfinite(asked.target):
        raise ConfigError(f"target = {asked.target} must be a finite number.")


def _contestants(
    problem: Problem,
    network: Network,
    links: Any,
    wanted: Wanted,
    extra: Mapping[str, Any],
    without: Collection[str],
) -> tuple[list[Contestant], dict[str, str]]:
    """The contestants; and if none are named, the registered methods that don't fit, and why."""
    for name in without:
        registry.get(name)
    scale = _scale(problem)
    left_out = {}
    if wanted is None:
        fitting = []
        for name in (n for n in registry.names() if n not in without):
            try:
                registry.get(name).suggest(scale).check_fits(problem, network, links)
                fitting.append(name)
            except SettingError as error:
                left_out[name] = str(error)
        wanted = fitting
    named = wanted if isinstance(wanted, Mapping) else _named(wanted)
    contestants = [_contestant(name, one, scale) for name, one in {**named, **extra}.items()]
    if not contestants:
        raise ConfigError("There is no method to compare: name at least one that fits.")
    for one in contestants:
        one.algorithm.check_fits(problem, network, links)
    return contestants, left_out


def _named(wanted: Sequence[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for one in wanted:
        name = one if isinstance(one, str) else getattr(one, "__name__", None)
        name = name or f"{type(one).__name__} as given"
        if name in named:
            raise SettingError(
                f"Two methods are called {name!r}. Give a dict, name -> method, to tell them apart."
            )
        named[name] = one
    return named


def _contestant(name: str, one: Any, scale: Scale) -> Contestant:
    if isinstance(one, Algorithm):
        return Contestant(name, one, searched=False)
    one = registry.get(one) if isinstance(one, str) else one
    suggest: Any = None if isinstance(one, type) else one
    if isinstance(one, type) and issubclass(one, Algorithm):
        suggest = one.suggest
    try:
        made = suggest(scale) if callable(suggest) else None
        if isinstance(made, Algorithm):
            return Contestant(name, made, searched=True)
    except NotImplementedError:
        raise SettingError(
            f"{name} has no `suggest`, so there is nothing to search around. Write it, or give an "
            f"instance with step sizes of your own, which then stay as they are."
        ) from None
    raise SettingError(
        f"{name}: {one!r} is no method. Give a name, a subclass of hb.Algorithm, an instance, or a "
        f"function that makes one for a hb.Scale."
    )


def _scale(problem: Problem) -> Scale:
    """The curvature of the inner problem at the start; estimated if its Hessian is too large."""
    if problem.dim_y <= DENSE:
        smallest, largest = curvature(problem)
    else:
        smallest, largest = inner_curvatures(problem)
    if not smallest > 0:
        raise ProblemError(
            f"The inner problem is not strongly convex at the start: its smallest curvature is "
            f"{smallest:.3g}. No method suggests step sizes for that."
        )
    return Scale(largest, smallest)


def _facts(problem: Problem, network: Network, asked: Asked, left_out: Mapping[str, str]) -> Facts:
    """The measured value, its best centralised value and the target."""
    given = asked.target is not None
    if not affordable(problem):
        return Facts(problem, network, "outer loss", None, None, asked.target, given, left_out)
    start = exact(problem, problem.x0).value
    try:
        best = optimum(problem).value
    except ProblemError:
        best = None
    target = asked.target
    if target is None and best is not None:
        target = best + max(0.01 * abs(best), 0.001 * (start - best))
    if target is not None and target >= start:
        raise ConfigError(
            f"The target {target:.4g} is met at the start, where the {problem.objective_name} is "
            f"{start:.4g}: there is nothing to compare. Give a lower one."
        )
    return Facts(problem, network, problem.objective_name, start, best, target, given, left_out)


def _rules(problem: Problem, asked: Asked, target: float | None) -> Rules:
    sources = (problem.outer_data, problem.inner_data)
    batch = float(np.mean([source.samples_per_draw() for source in sources]))
    samples = asked.budget
    if asked.steps is None and samples is None:
        samples = (QUICK_DRAWS if asked.quick else DRAWS) * batch
    return Rules(
        samples,
        asked.steps,
        asked.seeds or (QUICK_SEEDS if asked.quick else SEEDS),
        target,
        contest.QUICK_GRID if asked.quick else contest.GRID,
    )


def _described(
    problem: Problem,
    network: Network,
    links: Any,
    contestants: Sequence[Contestant],
    rules: Rules,
) -> dict[str, Any]:
    """The settings that a folder must have to be resumed."""
    return {
        "study": "compare",
        **problem.fingerprint,
        "network": network.fingerprint(),
        "links": str(links),
        "methods": [[one.name, one.searched, one.algorithm.describe()] for one in contestants],
        **rules._asdict(),
    }
