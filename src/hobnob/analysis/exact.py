"""What a solver with all data in one place finds: for measuring, never for an agent.

F(x) = f(x, y*(x)) needs y*(x), which `newton.py` computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.optimize

from hobnob.analysis.newton import DENSE, NEWTON_STEPS, solve_inner
from hobnob.core.problem import Problem, as_tree
from hobnob.ground.errors import ProblemError
from hobnob.ground.pytrees import map_numbers

FLAT = 1e-12  # of the largest curvature: what is below can't be told from 0


class Exact(NamedTuple):
    """F(x), its gradient and y*(x)."""

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
    """The smallest and the largest eigenvalue of the pooled inner Hessian."""

    smallest: float
    largest: float


def exact(problem: Problem, x: Any) -> Exact:
    """F(x), its gradient and y*(x) on the pooled data, in float64 whatever the problem's dtype.

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

    Both are NaN if the Hessian is not finite.

    Args:
        problem: the problem.
        x, y: where, shaped like the problem's x0 and y0, which are the default.

    Example:
        >>> import hobnob as hb
        >>> smallest, largest = hb.curvature(hb.problems.get("quadratic")(agents=4))
        >>> round(smallest, 2), round(largest, 2)
        (1.0, 10.0)
    """
    problem = problem.loaded()
    flat_x = _flat(problem, problem.x0 if x is None else x)
    flat_y = problem.y_layout.ravel(problem.y0 if y is None else y).astype(np.float64)
    if problem.dim_y > DENSE:
        raise ProblemError(
            f"The curvature is computed from the whole Hessian, which for d_y = {problem.dim_y} is "
            f"too large (the limit is {DENSE})."
        )
    with jax.enable_x64(True):
        hessian = np.asarray(_compiled(problem).hessian(flat_x, flat_y))
    if not np.isfinite(hessian).all():
        return Curvature(float("nan"), float("nan"))
    values = np.linalg.eigvalsh(hessian)
    return Curvature(float(values[0]), float(values[-1]))


def affordable(problem: Problem) -> bool:
    """True if exact F is cheap enough to be measured repeatedly during a run."""
    if problem.unread or not problem.has_pooled_losses or problem.dim_y > 300:
        return False
    numbers = sum(
        leaf.size
        for source in (problem.outer_data, problem.inner_data)
        for leaf in jax.tree.leaves(source.arrays)
    )
    # One Newton step takes about dim_y gradients over all data.
    return (numbers + problem.size * problem.dim_y) * problem.dim_y <= 1e8


class _Compiled(NamedTuple):
    solve: Callable[..., Any]
    hessian: Callable[..., Any]


@lru_cache(maxsize=8)
def _compiled(problem: Problem) -> _Compiled:
    """The problem's pooled losses in float64, compiled once. Call it with x64 enabled."""
    wide = problem if problem.dtype == np.float64 else problem.in_precision(np.float64)
    outer_place, inner_place = wide.place()

    @jax.jit
    def solve(x: jax.Array, y: jax.Array, outer_place: Any, inner_place: Any) -> Any:
        return solve_inner(
            lambda x, y: wide.pooled_outer(x, y, outer_place),
            lambda x, y: wide.pooled_inner(x, y, inner_place),
            x,
            y,
        )

    @jax.jit
    def hessian(x: jax.Array, y: jax.Array, inner_place: Any) -> jax.Array:
        return jax.hessian(lambda y: wide.pooled_inner(x, y, inner_place))(y)

    return _Compiled(
        lambda x, y: solve(x, y, outer_place, inner_place),
        lambda x, y: hessian(x, y, inner_place),
    )


def _solve_checked(problem: Problem, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    if not problem.has_pooled_losses:
        raise ProblemError(
            "Exact F needs the mean losses. This problem's simulator does not know its own: give "
            "hb.Simulator(..., expected=...)."
        )
    with jax.enable_x64(True):
        y0 = problem.y_layout.ravel(problem.y0).astype(np.float64)
        found = _compiled(problem).solve(x, y0)
        value, gradient, y, left = (np.asarray(part) for part in found)
    if not (np.isfinite(value) and np.isfinite(gradient).all() and np.isfinite(left)):
        _explain_flatness(problem, x)
    if left > 1e-6:
        raise ProblemError(
            f"The inner problem was not solved at this x: |grad_y g| = {left:.1e} is left after "
            f"{NEWTON_STEPS} Newton steps. Is it strongly convex in y, and bounded below?"
        )
    return float(value), gradient, y


def check_strong_convexity(problem: Problem, flat_allowed: bool = False) -> bool:
    """Raise an error if the pooled inner loss is not strongly convex at the starting point.

    If `flat_allowed`, it only has to be convex, and the answer is whether it is flat somewhere.
    """
    smallest, largest = curvature(problem)
    # Data in float32 is rounded, so that curvatures of 0 become a little more or less.
    rounding = 8 * float(np.finfo(problem.dtype).eps) if flat_allowed else 0
    least = max(FLAT, rounding) * max(largest, 1e-300)
    if smallest > least:
        return False
    if flat_allowed and smallest >= -least:
        return True
    raise ProblemError(
        f"The inner problem is not strongly convex at x0: the smallest curvature of the mean "
        f"is {smallest:.3g}, the largest {largest:.3g}, so y*(x) is not defined there. If x0 "
        f"switches a regulariser off, parametrise its weights as exp(x), or start at x0 > 0. If "
        f"the inner problem is convex and has many solutions, use hb.MADSBOGT with a ridge."
    )


def _refuse_flatness(problem: Problem, x: np.ndarray, y: np.ndarray) -> None:
    """Of the many solutions of a flat problem, rounding errors may pick one without a complaint."""
    if problem.dim_y <= DENSE:
        trees = problem.x_layout.unravel(x, np), problem.y_layout.unravel(y, np)
        smallest, largest = curvature(problem, *trees)
        if smallest <= FLAT * largest:
            _explain_flatness(problem, x)


def _explain_flatness(problem: Problem, x: np.ndarray) -> None:
    place = ""
    if problem.dim_y <= DENSE:
        smallest, _ = curvature(problem, problem.x_layout.unravel(x, np))
        place = f": its smallest curvature at (x, y0) is {smallest:.3g}"
    raise ProblemError(
        f"The inner problem could not be solved at this x{place}. It must be strongly convex in y "
        f"for y*(x) to be defined."
    )


def _flat(problem: Problem, x: Any) -> np.ndarray:
    x = as_tree(x)
    if jax.tree.structure(x) != problem.x_layout.structure:
        raise ProblemError("x must have the structure of the problem's x0.")
    flat = problem.x_layout.ravel(map_numbers(np.asarray, x)).astype(np.float64)
    if flat.size != problem.dim_x:
        raise ProblemError(f"x has {flat.size} entries, the problem's x0 has {problem.dim_x}.")
    return flat
