"""Which runs have a kernel: a faster form of their step, chosen without being asked for."""

from __future__ import annotations

from hobnob.algorithm import Algorithm
from hobnob.algorithms.dsbo import DSBO
from hobnob.links import Links
from hobnob.network import Network
from hobnob.problem import Problem
from hobnob.runtimes.dsbo_lanes import InLanes
from hobnob.runtimes.dsbo_shared import SharedHessian, one_hessian
from hobnob.runtimes.kernel import Kernel

# Where lanes pay: with a wide y, products of whole matrices do as well; few lanes leave the
# processor idle; a large W, mixed as a whole, costs more than it saves.
_WIDEST_Y, _FEWEST_LANES, _LARGEST_NETWORK = 32, 2, 128
_ROUNDING = 1e-13  # of a row of W that sums to 1; a user's own may be further off


def kernel_for(
    problem: Problem, network: Network, algorithm: Algorithm, links: Links | None, seeds: int
) -> Kernel | None:
    """The kernel of a run, or None where the lifted step of one agent is to be used."""
    if type(algorithm) is not DSBO:  # a subclass may have a step of its own
        return None
    exact = abs(network.sparse.sum(axis=1) - 1).max() <= _ROUNDING
    if exact and (H := one_hessian(problem)) is not None:
        return SharedHessian(algorithm, H)
    small = problem.dim_y <= _WIDEST_Y and network.size <= _LARGEST_NETWORK
    if small and network.size * seeds >= _FEWEST_LANES:
        return InLanes(algorithm, problem.dim_y, network, links is not None, seeds)
    return None
