"""Which runs of DSBO have a faster step."""

from __future__ import annotations

from hobnob.algorithms.dsbo import DSBO
from hobnob.core.setup import Setup
from hobnob.fast.dsbo_lanes import InLanes
from hobnob.fast.dsbo_shared import SharedHessian, one_hessian
from hobnob.fast.step import FastStep

# Where lanes pay: with a wide y, products of whole matrices do as well; few lanes leave the
# processor idle; a large W, mixed as a whole, costs more than it saves.
_WIDEST_Y, _FEWEST_LANES, _LARGEST_NETWORK = 32, 2, 128
_ROUNDING = 1e-13  # how far a row of W may be from 1 for all v to stay alike


def dsbo_step(setup: Setup) -> FastStep | None:
    problem, network, algorithm = setup.problem, setup.network, setup.algorithm
    if type(algorithm) is not DSBO:  # a subclass may have a step of its own
        return None
    exact = abs(network.sparse.sum(axis=1) - 1).max() <= _ROUNDING
    if exact and (H := one_hessian(problem)) is not None:
        return SharedHessian(algorithm, H)
    small = problem.dim_y <= _WIDEST_Y and network.size <= _LARGEST_NETWORK
    if small and network.size * setup.seed_count >= _FEWEST_LANES:
        return InLanes(algorithm, problem.dim_y, network, setup.links is not None, setup.seed_count)
    return None
