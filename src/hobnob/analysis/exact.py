"""What a solver with all data in one place finds: for measuring, never for an agent.

F(x) = f(x, y*(x)) needs y*(x), which `newton.py` computes; `pooled.py` knows whose it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.optimize

from hobnob.analysis.newton import DENSE, NEWTON_STEPS
from hobnob.analysis.pooled import inner_hessians, solve_problem
from hobnob.core.data import Records
from hobnob.core.problem import Problem, as_tree
from hobnob.ground.errors import ProblemError
from hobnob.ground.pytrees import map_numbers

FLAT = 1e-12  # of the largest curvature: what is below can't be told from 0


class Exact(NamedTuple):
    """F(x), its gradient and y*(x). In a personal problem y has a leading axis of agents."""

    value: Any
    gradient: Any
    y: Any


class Optimum(NamedTuple):
    """The best point that centralised optimisation found: x, y*(x), F(x) and |grad F(x)|."""

    x: Any
    y: Any
    value: float
    gradient_norm: float


class Curvature(NamedTuple):
    """The smallest and the largest eigenvalue of the inner Hessian."""

    smallest: float
    largest: float


def exact(problem: Problem, x: Any) -> Exact:
    """F(x), its gradient and y*(x) on the pooled data, in float64 whatever the problem's dtype.

    If the problem is personal, y has a leading axis of agents: every agent's own y*_k(x).

    Args:
        problem: the problem.
        x: where, shaped like the problem's x0.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> found = hb.exact(problem, problem.x0)
        >>> round(found.value, 3), found.gradient.shape, found.y.shape
        (-0.551, (5,), (6,))
    """
    problem, flat = problem.loaded(), _flat(problem, x)
    value, gradient, y = _solve_checked(problem, flat)
    _refuse_flatness(problem, flat, y)
    return Exact(value, problem.x_layout.unravel(gradient, np), problem.y_layout.unravel(y, np))


def optimum(problem: Problem, x0: Any = None, tolerance: float = 1e-8) -> Optimum:
    """A minimiser of F with all data in one place, by L-BFGS-B on exact gradients from x0.

    It is a benchmark for decentralised runs. If F is not convex, it may be a local minimiser.

    Args:
        problem: the problem.
        x0: where to start, shaped like the problem's x0, which is the default.
        tolerance: stop when no entry of the projected gradient is larger.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> hb.optimum(problem).gradient_norm < 1e-5
        True
    """
    problem = problem.loaded()
    start = _flat(problem, problem.x0 if x0 is None else x0)
    bounds = None if problem.x_bounds is None else np.stack(problem.x_bounds, axis=1)

    first, _, _ = _solve_checked(problem, start)

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            value, gradient, _ = _solve_checked(problem, flat)
        except ProblemError:
            # Along a flat direction a trial step may reach values that are not finite: reject it.
            return first + 1e3 * (1 + abs(first)), np.zeros_like(flat)
        return value, gradient

    found = scipy.optimize.minimize(
        value_and_gradient,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 2000, "maxfun": 4000, "gtol": tolerance, "ftol": 1e-15},
    )
    value, gradient, y = _solve_checked(problem, found.x)
    _refuse_flatness(problem, found.x, y)
    if bounds is not None:
        gradient = found.x - np.clip(found.x - gradient, *bounds.T)
    return Optimum(
        problem.x_layout.unravel(found.x, np),
        problem.y_layout.unravel(y, np),
        value,
        float(np.linalg.norm(gradient)),
    )


def curvature(problem: Problem, x: Any = None, y: Any = None) -> Curvature:
    """The smallest and largest curvature of the pooled inner loss in y.

    If the problem is personal, they are the smallest and the largest of all agents' own inner
    losses. Both are NaN if a Hessian is not finite.

    Args:
        problem: the problem.
        x, y: where, shaped like the problem's x0 and y0, which are the default. For a personal
            problem y may have a leading axis of agents.

    Example:
        >>> import hobnob as hb
        >>> smallest, largest = hb.curvature(hb.problems.get("quadratic")(agents=4))
        >>> round(smallest, 2), round(largest, 2)
        (1.0, 10.0)
    """
    values = _spectra(problem.loaded(), x, y)
    if not np.isfinite(values).all():
        return Curvature(float("nan"), float("nan"))
    return Curvature(float(values.min()), float(values.max()))


def _spectra(problem: Problem, x: Any = None, y: Any = None) -> np.ndarray:
    """The eigenvalues in ascending order: a row for the mean, or for every agent of its own."""
    flat_x = _flat(problem, problem.x0 if x is None else x)
    flat_y = _flat_y(problem, problem.y0 if y is None else y)
    if problem.dim_y > DENSE:
        raise ProblemError(
            f"The curvature is computed from the whole Hessian, which for d_y = {problem.dim_y} is "
            f"too large (the limit is {DENSE})."
        )
    with jax.enable_x64(True):
        hessians = np.asarray(_compiled(problem).hessians(flat_x, flat_y))
    finite = np.isfinite(hessians).all(axis=(1, 2))
    values = np.full(hessians.shape[:2], np.nan)
    values[finite] = np.linalg.eigvalsh(hessians[finite])
    return values


def affordable(problem: Problem) -> bool:
    """True if exact F is cheap enough to be measured repeatedly during a run."""
    if problem.unread or not problem.has_pooled_losses or problem.dim_y > 300:
        return False
    numbers = sum(_numbers(problem, source) for source in (problem.outer_data, problem.inner_data))
    # Agents of a personal problem factorise a Hessian each, in d_y^3 / 3 operations.
    factors = problem.size * problem.dim_y**2 / 3 if problem.personal else 0
    # One Newton step takes about dim_y gradients over all data.
    return (numbers + problem.size * problem.dim_y + factors) * problem.dim_y <= 1e8


def _numbers(problem: Problem, source: Any) -> int:
    """What a pass over the data looks at: if agents are solved apart, shards are padded."""
    held = sum(leaf.size for leaf in jax.tree.leaves(source.arrays))
    if not problem.personal or not isinstance(source, Records):
        return held
    return held * source.size * int(source.lengths.max()) // int(source.lengths.sum())


class _Compiled(NamedTuple):
    solve: Callable[..., Any]
    hessians: Callable[..., Any]


@lru_cache(maxsize=8)
def _compiled(problem: Problem) -> _Compiled:
    """The problem's losses over all data in float64, compiled once. Call it with x64 enabled."""
    wide = problem if problem.dtype == np.float64 else problem.in_precision(np.float64)
    places = wide.place()
    solve = jax.jit(partial(solve_problem, wide))
    hessians = jax.jit(partial(inner_hessians, wide))
    return _Compiled(lambda x, y: solve(places, x, y), lambda x, y: hessians(places[1], x, y))


def _solve_checked(problem: Problem, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    if not problem.has_pooled_losses:
        raise ProblemError(
            "Exact F needs the mean losses. This problem's simulator does not know its own: give "
            "hb.Simulator(..., expected=...)."
        )
    with jax.enable_x64(True):
        found = _compiled(problem).solve(x, _flat_y(problem, problem.y0))
        value, gradient, y, left = (np.asarray(part) for part in found)
    if not (np.isfinite(value) and np.isfinite(gradient).all() and np.isfinite(left).all()):
        _explain_flatness(problem, x)
    if left.max() > 1e-6:
        raise ProblemError(
            f"The inner problem{_whose(problem, left.argmax())} was not solved at this x: "
            f"|grad_y g| = {left.max():.1e} is left after {NEWTON_STEPS} Newton steps. Is it "
            f"strongly convex in y, and bounded below?"
        )
    return float(value), gradient, y


def _whose(problem: Problem, agent: Any) -> str:
    return f" of agent {agent}" if problem.personal else ""


def check_strong_convexity(problem: Problem, flat_allowed: bool = False) -> bool:
    """Raise an error if an inner loss is not strongly convex at the starting point.

    If `flat_allowed`, it only has to be convex, and the answer is whether it is flat somewhere.
    """
    values = _spectra(problem.loaded())
    # Data in float32 is rounded, so that curvatures of 0 become a little more or less.
    rounding = 8 * float(np.finfo(problem.dtype).eps) if flat_allowed else 0
    smallest, least = values[:, 0], max(FLAT, rounding) * np.maximum(values[:, -1], 1e-300)
    flat = ~(smallest > least)  # true for NaN
    if not flat.any():
        return False
    if flat_allowed and (smallest >= -least).all():
        return True
    k = int(flat.argmax())
    of_mean = "" if problem.personal else " of the mean"
    raise ProblemError(
        f"The inner problem{_whose(problem, k)} is not strongly convex at x0: the smallest "
        f"curvature{of_mean} is {smallest[k]:.3g}, the largest {values[k, -1]:.3g}, so y*(x) is "
        f"not defined there. If x0 switches a regulariser off, parametrise its weights as exp(x), "
        f"or start at x0 > 0. If the inner problem is convex and has many solutions, use "
        f"hb.MADSBOGT with a ridge."
    )


def _refuse_flatness(problem: Problem, x: np.ndarray, y: np.ndarray) -> None:
    """Of the many solutions of a flat problem, rounding errors may pick one without a complaint."""
    if problem.dim_y <= DENSE:
        trees = problem.x_layout.unravel(x, np), problem.y_layout.unravel(y, np)
        smallest, largest = curvature(problem, *trees)
        if smallest <= FLAT * largest:
            _explain_flatness(problem, x)


def _explain_flatness(problem: Problem, x: np.ndarray) -> None:
    place, whose = "", ""
    if problem.dim_y <= DENSE:
        smallest = _spectra(problem, problem.x_layout.unravel(x, np))[:, 0]
        # The one to blame is the flattest, or the first that is not finite.
        k = int(np.where(np.isnan(smallest), -np.inf, smallest).argmin())
        place = f": its smallest curvature at (x, y0) is {smallest[k]:.3g}"
        whose = _whose(problem, k)
    raise ProblemError(
        f"The inner problem{whose} could not be solved at this x{place}. It must be strongly "
        f"convex in y for y*(x) to be defined."
    )


def _flat_y(problem: Problem, y: Any) -> np.ndarray:
    """[d_y], or [agents, d_y] for a personal problem, whose agents may all be at one y."""
    flat = problem.y_layout.ravel(y).astype(np.float64)
    if not problem.personal:
        return flat
    try:
        return np.broadcast_to(flat, (problem.size, problem.dim_y))
    except ValueError:
        raise ProblemError(
            f"y must be shaped like y0, or have a leading axis of {problem.size} agents. As "
            f"vectors it has the shape {flat.shape}."
        ) from None


def _flat(problem: Problem, x: Any) -> np.ndarray:
    x = as_tree(x)
    if jax.tree.structure(x) != problem.x_layout.structure:
        raise ProblemError("x must have the structure of the problem's x0.")
    flat = problem.x_layout.ravel(map_numbers(np.asarray, x)).astype(np.float64)
    if flat.size != problem.dim_x:
        raise ProblemError(f"x has {flat.size} entries, the problem's x0 has {problem.dim_x}.")
    return flat
