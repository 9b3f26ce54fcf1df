"""choose: a method, step sizes and a number of steps for a user who names none.

Two designs. Where F is convex at the start, SPARKLE with momentum, with the gentlest step sizes of
those that are nearly the fastest on a linear model of the problem. Where it is not, or where nobody
has all data, `Adaptive`, which scales its steps on the way.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import log, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np

from hobnob.algorithms.adaptive import Adaptive
from hobnob.algorithms.edge_sparkle import EdgeSPARKLE
from hobnob.algorithms.lopa import LoPA
from hobnob.algorithms.sparkle import SPARKLE
from hobnob.analysis.estimates import Estimates, estimate
from hobnob.analysis.linear_model import LinearModel, Settings
from hobnob.analysis.mean_system import Cost
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.core.schedules import InverseRule, Schedule, SettlingRule, capped, settling

REACHED = 1e-4  # of |grad F(x0)|: where a run without noise ends
NOISELESS = 1e-12  # draws that differ by less are equal but for rounding
NOISY_REACHED = 0.03  # of |grad F(x0)|: until there, a noisy run goes as if there were no noise
NEAR = 0.003  # of F(x0) - F*: where a noisy convex run should end
FEWEST, MOST, NOT_CONVEX = 1_000, 100_000, 10_000  # steps
SLOWER, SLOWEST = 4, 64  # what step sizes are divided by after a divergence, and at the most
STEP_SIZES = ("alpha", "beta", "gamma")

# What is tried on the linear model: shares of 1/L_F for x, of 1/L for y and z, and the momentum.
OUTER = tuple(1.7**-j for j in range(-1, 19))
INNER = (0.25, 0.5, 1.0, 1.5)
NOISY_INNER = (0.5, 1.0, 1.5)
MOMENTUM = (0.0, 0.3, 0.5, 0.65, 0.8, 0.9)
SHORT = 60  # settings that are tried on a model of the whole network
SPARE = 1 / 0.85  # a setting that takes so many times the fastest one's steps is fast enough

UNIT = 0.02  # of the unit of x: the step of `Adaptive`
INNER_STEP = 0.1  # its step of y and z, which has no units
THETA = 0.2  # how much of r is new

Trouble = Literal["diverged", "stalled"]


class Choice(NamedTuple):
    """What `solve` runs when it is given no algorithm, and why.

    Args:
        algorithm: SPARKLE or `Adaptive`, with its step sizes.
        steps: the number of iterations.
        tolerance: for |grad F|; None if draws are noisy.
        why: the reasons, in words.
        expected: the steps that a linear model of the problem takes to arrive; None without one.
        gain: F(x0) - F*, as the model has it; None without one.
        cost: what the estimates took.
        slower: what step sizes were divided by, after runs that diverged.

    Example:
        >>> import hobnob as hb
        >>> dsoba = hb.DSOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2)
        >>> choice = hb.Choice(dsoba, steps=100, tolerance=None, why="It is cheap.")
        >>> choice.algorithm.alpha, choice.steps
        (0.01, 100)
    """

    algorithm: Algorithm
    steps: int
    tolerance: float | None
    why: str
    expected: int | None = None
    gain: float | None = None
    cost: Cost = Cost()
    slower: int = 1


def choose(problem: Problem, network: Any, steps: int | None = None) -> Choice:
    """A method, its step sizes and a number of steps, from the problem's own curvatures.

    F convex at x0: `SPARKLE` with momentum. Its settings are tried on a linear model of the
    problem, and the gentlest of those that are nearly the fastest is taken. If draws are noisy,
    alpha = min(a, 2/(mu_F t)), with mu_F the smallest curvature of F.

    F not convex: `Adaptive`. Its step of x is a fiftieth of the distance over which grad F changes
    by its own size, so it does not depend on the units of x.

    Where every agent has its own y (`personal=True`), `LoPA`, by the same model.

    Args:
        problem: the problem.
        network: a `Network`, any networkx graph, or a mixing matrix.
        steps: the number of iterations; by default it follows from what the model takes.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=2, dim_x=2, dim_y=2)
        >>> choice = hb.choose(problem, hb.ring(2))
        >>> type(choice.algorithm).__name__, choice.steps
        ('SPARKLE', 1000)
    """
    network = network if isinstance(network, Network) else Network(network)
    return first_choice(estimate(problem), problem, network, steps)


def first_choice(known: Estimates, problem: Problem, network: Network, steps: int | None) -> Choice:
    if known.model is None and problem.personal:
        return _cautious(known, steps)
    if known.model is None:
        reason = "F is not convex at the start, so step sizes follow the curvature on the way."
        tolerance = None if known.random else _tolerance(known)
        return adaptive_choice(problem, known.unit, steps, reason)._replace(
            tolerance=tolerance, cost=known.cost
        )
    if known.noise > NOISELESS:
        return _noisy(known, known.model, problem, network, steps)
    return _steady(known, known.model, problem, network, steps)


def next_choice(
    last: Choice, trouble: Trouble, problem: Problem, unit: float, steps: int | None
) -> Choice | None:
    """What to go on with after a run diverged or stalled; None if nothing else is known.

    SPARKLE's constants are those of the start, so `Adaptive` takes over. If that diverges, or LoPA
    does, its steps are made smaller; if it stalls, nothing of ours is better.
    """
    if isinstance(last.algorithm, Adaptive | LoPA):
        return _slower(last, steps) if trouble == "diverged" else None
    happened = {"diverged": "diverged", "stalled": "hardly came nearer"}[trouble]
    reason = f"SPARKLE {happened}: what holds at the start does not hold on the way."
    return adaptive_choice(problem, unit, steps, reason)._replace(tolerance=last.tolerance)


def _slower(last: Choice, steps: int | None) -> Choice | None:
    """The same with smaller steps, until they are too small for comfort."""
    slower = last.slower * SLOWER
    if slower > SLOWEST:
        return None
    sizes = {name: size for name, size in vars(last.algorithm).items() if name in STEP_SIZES}
    algorithm = replace(last.algorithm, **{name: _divided(size) for name, size in sizes.items()})
    name = type(last.algorithm).__name__
    why = f"{name} diverged: it goes on with its first step sizes divided by {slower}."
    return last._replace(algorithm=algorithm, steps=steps or last.steps, why=why, slower=slower)


def _divided(size: Any) -> Any:
    if isinstance(size, SettlingRule):
        return replace(size, first=size.first / SLOWER)
    if isinstance(size, InverseRule):
        return replace(size, scale=size.scale / SLOWER, most=size.most / SLOWER)
    return size / SLOWER


def adaptive_choice(problem: Problem, unit: float, steps: int | None, reason: str) -> Choice:
    """`Adaptive`, with the step of x in units of x."""
    steps = steps or NOT_CONVEX
    algorithm = Adaptive(
        alpha=settling(float(f"{UNIT * unit:.3g}")), gamma=settling(INNER_STEP), theta=THETA
    )
    width, d_x, d_y = problem.dtype.itemsize, problem.dim_x, problem.dim_y
    why = (
        f"Adaptive was chosen. {reason} x moves by about {UNIT * unit:.2g} a step, a fiftieth of "
        f"the distance over which the slope of F changes; after half of {steps:,} steps all step "
        f"sizes fall, so that noise averages out. It sends {width * (2 * d_x + 4 * d_y):,} bytes "
        f"to each neighbour in a step, twice what SPARKLE would."
    )
    return Choice(algorithm, steps, None, why)


def _steady(
    known: Estimates, model: LinearModel, problem: Problem, network: Network, steps: int | None
) -> Choice:
    """No noise: the gentlest of the settings that are fast enough."""
    tried = np.array(list(product(OUTER, INNER, (0.0,) if problem.personal else MOMENTUM)))
    settings = Settings(tried[:, 0] / known.outer_largest, tried[:, 1] / known.largest, tried[:, 2])
    taken, enough = _raced(known, model, network, tried, settings)
    if np.isfinite(taken).any():
        best = int(np.where(taken <= enough, _effort(tried), np.inf).argmin())
        expected = int(taken[best])
    else:  # nobody arrived within the race: take what is safe
        best = int(np.argmin(np.abs(tried - [OUTER[5], 0.5, 0.0]).sum(axis=1)))
        expected = MOST // 2
    alpha, gamma, m = (float(f"{field[best]:.3g}") for field in settings)
    steps = steps or int(min(max(2 * expected, FEWEST), MOST))
    why = (
        f"{_praise(problem)} F is convex at the start and draws have no noise. Of {len(tried)} "
        f"settings tried on a linear model of the problem, alpha = {alpha:g}, gamma = beta = "
        f"{gamma:g} and momentum {m:g} are the gentlest that are nearly the fastest. They should "
        f"take about {expected:,} steps; at most {steps:,} are made."
    )
    algorithm = _exact_method(problem, alpha, gamma, m)
    return Choice(algorithm, steps, _tolerance(known), why, expected, model.gain, known.cost)


def _raced(
    known: Estimates, model: LinearModel, network: Network, tried: np.ndarray, settings: Settings
) -> tuple[np.ndarray, float]:
    """The steps that each setting takes on the model, and how many of them are few enough."""
    agreeing = log(1 / REACHED) / _agreeing(network)
    if known.network is None:
        # What agents do to each other is not known: leave some room. They agree no faster than the
        # network lets them, and larger steps than that takes would only hurt.
        taken = model.race(settings, REACHED, 2 * SPARE, agreeing)
        taken[(tried[:, 0] > 1) | (tried[:, 1] > 1)] = np.inf
        return np.maximum(taken, agreeing), max(1.2 * SPARE * taken.min(), agreeing)
    of_mean = model.race(settings, REACHED, 3, 2 * agreeing)
    fast = np.flatnonzero(of_mean <= max(3 * of_mean.min(), 2 * agreeing))
    by_effort = fast[_effort(tried[fast]).argsort()]
    short = by_effort[np.unique(np.linspace(0, len(fast) - 1, SHORT).astype(int))]
    taken = np.full(len(tried), np.inf)
    taken[short] = known.network.race(network.matrix, settings.rows(short), REACHED)
    return taken, SPARE * taken.min()


def _effort(tried: np.ndarray) -> np.ndarray:
    """How bold a setting is."""
    return tried[:, 0] + tried[:, 1] / (1 - tried[:, 2])


def _noisy(
    known: Estimates, model: LinearModel, problem: Problem, network: Network, steps: int | None
) -> Choice:
    """Noise: constant steps until 2/(mu_F t) is smaller, so that it averages out."""
    # Agents draw different batches, so that their curvatures average out in part.
    curvature = known.mean_largest + (known.largest - known.mean_largest) / problem.size
    most = 1 / (known.outer_largest * (1 + 5 * known.noise))
    tried = np.array(list(product(OUTER[1:], NOISY_INNER, (0.0,))))
    settings = Settings(most * tried[:, 0], tried[:, 1] / curvature, tried[:, 2])
    agreeing = log(1 / NOISY_REACHED) / _agreeing(network)
    taken = model.race(settings, NOISY_REACHED, SPARE, agreeing)
    enough = max(SPARE * taken.min(), agreeing)
    best = int(np.where(taken <= enough, _effort(tried), np.inf).argmin())
    alpha, gamma, _ = (float(f"{field[best]:.3g}") for field in settings)
    mu = known.outer_smallest
    averaging = 2 * known.outer_largest * known.noise * known.gradient**2 / mu**2
    slowest = log(1 / REACHED) / min(alpha * mu, _agreeing(network))
    expected = int(max(averaging / (NEAR * model.gain), slowest / 2))
    steps = steps or int(min(max(2 * expected, FEWEST), MOST))
    why = (
        f"{_praise(problem)} F is convex at the start, and draws are noisy (variance "
        f"{known.noise:.2g} of |grad F|^2): alpha = {alpha:g} until 2/(mu t) is smaller, with mu = "
        f"{mu:.2g} the smallest curvature of F; gamma = beta = {gamma:g} follow from the largest "
        f"curvature of a batch, {known.largest:.2g}. {steps:,} steps are made."
    )
    algorithm = _exact_method(problem, capped(alpha, float(f"{2 / mu:.3g}")), gamma, 0.0)
    return Choice(algorithm, steps, None, why, expected, model.gain, known.cost)


def _tolerance(known: Estimates) -> float:
    return float(f"{REACHED * known.gradient:.1e}")


def _agreeing(network: Network) -> float:
    """What a round with (I + W) / 2 takes away of a disagreement."""
    return max((1 - sqrt(network.rho)) / 2, 1e-6)


OWN_Y = "LoPA was chosen: it is made for agents that each have their own y."
ONE_Y = "SPARKLE was chosen: it sends no matrix, and finds the solution however much agents differ."


def _praise(problem: Problem) -> str:
    return OWN_Y if problem.personal else ONE_Y


def _exact_method(problem: Problem, alpha: Schedule, gamma: Schedule, momentum: float) -> Algorithm:
    if problem.personal:
        return LoPA(alpha=alpha, beta=gamma, gamma=gamma, theta=1.0)
    # Rounding errors of w itself add up with exact diffusion: too many of them in float32.
    member = "ed" if problem.dtype == np.float64 else "semi-atc-gt"
    return SPARKLE(
        alpha=alpha,
        beta=gamma,
        gamma=gamma,
        theta=1.0,
        momentum=momentum,
        x=member,
        y=member,
        z=member,
    )


def _cautious(known: Estimates, steps: int | None) -> Choice:
    """LoPA where F is not convex: no model, so half of what curvatures allow."""
    alpha, gamma = (float(f"{0.5 / most:.3g}") for most in (known.outer_largest, known.largest))
    algorithm = LoPA(
        alpha=settling(alpha), beta=settling(gamma), gamma=settling(gamma), theta=THETA
    )
    steps = steps or NOT_CONVEX
    why = (
        f"{OWN_Y} F is not convex at the start. alpha = {alpha:g} and gamma = beta = {gamma:g} are "
        f"half of what the curvatures there allow; they fall after half of {steps:,} steps."
    )
    return Choice(algorithm, steps, None, why, cost=known.cost)


def across_owners(scale: Scale) -> Algorithm:
    """For owners who see no data but their own: exact, and it survives that members come and go."""
    return EdgeSPARKLE.suggest(scale)
