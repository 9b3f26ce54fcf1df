"""choose: a method, step sizes and a number of steps for a user who names none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log, sqrt
from typing import Any, NamedTuple

import numpy as np

from hobnob.algorithms.sparkle import SPARKLE
from hobnob.analysis.constants import Constants, constants
from hobnob.core.algorithm import Algorithm
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.core.schedules import settling

REACHED = 1e-4  # of |grad F(x0)|: where a run without noise ends
NOISELESS = 1e-12  # draws that differ by less are equal but for rounding
FEWEST, MOST, NOT_CONVEX = 1_000, 100_000, 30_000  # steps
SLOWER = (1, 4, 16, 64)  # step sizes are divided by these, one after the other, on divergence


class Choice(NamedTuple):
    """What `solve` runs when it is given no algorithm, and why.

    Args:
        algorithm: SPARKLE, with its step sizes.
        steps: the number of iterations.
        tolerance: for |grad F|; None if draws are noisy.
        why: the reasons, in words.

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


def choose(problem: Problem, network: Any, steps: int | None = None) -> Choice:
    """SPARKLE, with step sizes from the problem's curvatures, its noise and the network.

        gamma = beta = 1 / (2 L (1 + noise))                 L the largest curvature of a batch
        alpha = min(1 / (L_F (1 + 5 noise)), gamma / lag)    so that y and z keep up with x

    L_F, lag and noise are explained in `hobnob.analysis.constants`.

    Args:
        problem: the problem.
        network: a `Network`, any networkx graph, or a mixing matrix.
        steps: the number of iterations; by default it follows from the slowest of x, y and the
            network's agreement.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=2, dim_x=2, dim_y=2)
        >>> choice = hb.choose(problem, hb.ring(2))
        >>> type(choice.algorithm).__name__, choice.steps
        ('SPARKLE', 1000)
    """
    network = network if isinstance(network, Network) else Network(network)
    return _chosen(constants(problem), problem, network, steps)


def choices(problem: Problem, network: Network, steps: int | None) -> Iterator[Choice]:
    """The choice, and then smaller step sizes, for a run that diverges.

    Curvatures are those of the starting point; elsewhere they may be larger.
    """
    known = constants(problem)
    for slower in SLOWER:
        yield _chosen(known, problem, network, steps, slower)


def _chosen(
    known: Constants, problem: Problem, network: Network, steps: int | None, slower: float = 1
) -> Choice:
    gamma = 0.5 / (known.largest * (1 + known.noise))
    alone = 1 / (known.outer_largest * (1 + 5 * known.noise)) if known.outer_largest else gamma
    alpha = min(alone, gamma / known.lag) if known.lag else alone
    gamma, alpha = gamma / slower, alpha / slower
    noisy = known.noise > NOISELESS
    steps = steps or _steps(known, alpha, gamma, network, noisy)
    # Rounding errors of w itself add up with exact diffusion: too many of them in float32.
    member = "ed" if problem.dtype == np.float64 else "semi-atc-gt"
    rule: Callable[[float], Any] = settling if noisy else float
    algorithm = SPARKLE(
        alpha=rule(alpha),
        beta=rule(gamma),
        gamma=rule(gamma),
        theta=0.2 if noisy else 1.0,
        x=member,
        y=member,
        z=member,
    )
    why = [
        "SPARKLE was chosen: it sends no matrix and finds the solution however much agents differ.",
        f"gamma = beta = {gamma:.2g} follow from the largest curvature of a batch, "
        f"{known.largest:.2g}, and alpha = {alpha:.2g} from the curvature of F, "
        f"{known.outer_largest:.2g}, and from how far y and z stay behind x, {known.lag:.2g}.",
        f"Draws are noisy (variance {known.noise:.2g} of |grad F|^2), so step sizes fall over the "
        f"second half of {steps:,} steps."
        if noisy
        else f"Draws have no noise, so step sizes are constant, for at most {steps:,} steps.",
        f"All were divided by {slower:g}, since larger ones diverged." if slower > 1 else "",
    ]
    tolerance = None if noisy else float(f"{REACHED * known.gradient:.1e}")
    return Choice(algorithm, steps, tolerance, " ".join(why).strip())


def _steps(known: Constants, alpha: float, gamma: float, network: Network, noisy: bool) -> int:
    """So many that the slowest part shrinks to `REACHED`, and that noise averages out."""
    agreeing = (1 - sqrt(network.rho)) / 2  # what one round with (I + W) / 2 takes away
    rate = min(alpha * known.outer_smallest, gamma * known.smallest, agreeing)
    if rate <= 0:
        return NOT_CONVEX
    wanted = (3 if noisy else 1.5) * log(1 / REACHED) / rate
    averaging = 3_000 * known.noise * known.outer_largest / known.outer_smallest
    return int(min(max(wanted, averaging, FEWEST), MOST))
