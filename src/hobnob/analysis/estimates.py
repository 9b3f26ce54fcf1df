"""What determines step sizes, estimated at a problem's starting point.

Small problems have their derivatives in matrices. Where there are more unknowns than `DENSE`, the
linear model is projected on the directions that an iteration really takes: on some of its first
iterates, from products alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from hobnob.analysis.linear_model import LinearModel
from hobnob.analysis.mean_system import Cost, MeanSystem, Triple
from hobnob.analysis.network_model import NetworkModel
from hobnob.core.problem import Problem
from hobnob.ground.errors import ProblemError

DENSE = 200  # unknowns x, y and z of a Jacobian
X_MODEL, Y_MODEL = 16, 32  # unknowns of a model; of one with fewer, all
AGENTS, NETWORK = 256, 1_000_000  # of a model of the network: agents, numbers in their Jacobians
ITERATES = 100  # that a projection is made from
OUTER_LANCZOS_STEPS, INNER_LANCZOS_STEPS = 12, 60
CONVEX = 1e-6  # of F's largest curvature: a smaller one counts as none

Product = Callable[[Triple], Triple]


class Estimates(NamedTuple):
    """All at x0, y*(x0) and z*(x0)."""

    largest: float  # curvature of g in y, in the most curved batch of any agent
    mean_largest: float  # the same of the mean of all agents; 0 if F is not convex
    outer_largest: float  # curvature of F, by its absolute value
    outer_smallest: float  # curvature of F; negative if F is not convex
    gradient: float  # |grad F|
    unit: float  # of x: how far each entry may go before grad F is another
    random: bool  # whether batches are drawn
    noise: float  # variance of one step's estimate of grad F, over |grad F|^2; 0 if F is not convex
    model: LinearModel | None  # None if F is not convex
    network: NetworkModel | None  # None if F is not convex, if it is large, or if draws are random
    cost: Cost


def estimate(problem: Problem) -> Estimates:
    """Estimate them from all data, with some hundred products."""
    problem = problem.loaded()
    with problem.precision():
        system = MeanSystem(problem)
        point, offset = _solutions(system)
        g = system.at(point).x
        largest, draws = system.batches(point)
        if not (np.isfinite(g).all() and 0 < largest < np.inf):
            raise ProblemError(
                "The inner problem could not be solved roughly at x0, so nothing can be said of "
                "step sizes. Is it strongly convex in y, and bounded below?"
            )
        small = sum(part.size for part in point) <= DENSE
        near = (_by_matrices if small else _by_products)(system, point, offset, g)
        most = float(np.abs(near.curvatures).max())
        model, network, noise = None, None, 0.0
        if near.curvatures[0] > CONVEX * most:
            model = near.model or _projected(near.product, offset, g, most, largest)
            errors = np.array([near.effect(Triple(*draw)) for draw in zip(*draws, strict=True)])
            size = max(float(g @ g), 1e-30)
            noise = float(errors.var(axis=0, ddof=1).sum()) / size if system.random else 0.0
            if near.model and not system.random and _agents_fit(problem):
                network = NetworkModel(near.model, *reversed(system.of_agents(point)))
        return Estimates(
            largest=largest,
            mean_largest=float(np.linalg.eigvalsh(model.H)[-1]) if model else 0.0,
            outer_largest=most,
            outer_smallest=float(near.curvatures[0]),
            gradient=float(np.linalg.norm(g)),
            unit=near.unit,
            random=system.random,
            noise=noise,
            model=model,
            network=network,
            cost=system.cost,
        )


def _agents_fit(problem: Problem) -> bool:
    unknowns = problem.dim_x + 2 * problem.dim_y
    few = problem.size <= AGENTS and problem.size * unknowns**2 <= NETWORK
    return few and not problem.personal


def unit_of_x(problem: Problem) -> tuple[float, Cost]:
    """`Estimates.unit` alone, also from a problem with some of the agents."""
    with problem.precision():
        system = MeanSystem(problem)
        point, _ = _solutions(system)
        g = system.at(point).x
        return _unit(g, system.curvature_along(point, g), point.x), system.cost


def inner_curvatures(problem: Problem) -> tuple[float, float]:
    """Of y: the smallest of the mean, and the largest of any batch, however long y is."""
    problem = problem.loaded()
    with problem.precision():
        system = MeanSystem(problem)
        point, _ = _solutions(system)
        start = np.random.default_rng(0).normal(size=point.y.size)
        smallest = _ritz(lambda v: system.hessian_product(point, v), start, INNER_LANCZOS_STEPS)[0]
        return float(smallest), system.batches(point)[0]


def _solutions(system: MeanSystem) -> tuple[Triple, Triple]:
    """(x0, y*, z*), and how far from there an algorithm starts."""
    problem = system.problem
    x = np.asarray(problem.x_layout.ravel(problem.x0), np.float64)
    y0 = np.tile(np.asarray(problem.y_layout.ravel(problem.y0), np.float64), system.copies)
    y = system.inner_solution(x, y0)
    start = Triple(x, y, np.zeros_like(y))
    point = start._replace(z=-system.solve(start, system.at(start).z))
    return point, Triple(np.zeros_like(x), y0 - y, -point.z)


def _unit(gradient: np.ndarray, along: np.ndarray, x0: np.ndarray) -> float:
    """How far an entry of x may go, downhill, until grad F changes by its own size.

    `along` is the second derivative of F times its gradient. Entries of x0 that differ, as those of
    a neural network do, tell the scale of x as well: it is at least what they spread.
    """
    change = np.linalg.norm(along) * np.sqrt(gradient.size)
    unit = max(float(gradient @ gradient / change) if change > 0 else 0.0, float(x0.std()))
    return unit if unit > 0 else 1.0


class _Near(NamedTuple):
    """What the linear iteration near the start is like."""

    curvatures: np.ndarray  # of F: the outermost ones at least, in order
    unit: float
    product: Product  # of the Jacobian of (G_x, G_y, G_z)
    effect: Callable[[Triple], np.ndarray]  # of errors in (G_x, G_y, G_z) on grad F
    model: LinearModel | None  # the whole of it, if it is small


def _by_matrices(system: MeanSystem, point: Triple, offset: Triple, g: np.ndarray) -> _Near:
    B, d_x, d_y = system.jacobian(point), point.x.size, point.y.size
    whole = LinearModel.of_jacobian(B, g, offset.y, offset.z)
    if not np.linalg.eigvalsh(whole.H)[0] > 0:
        raise ProblemError(
            "The inner problem has no curvature in some direction of y at x0, so y*(x) is not "
            "defined there. Is it strongly convex in y?"
        )

    def product(v: Triple) -> Triple:
        return Triple(*np.split(B @ np.concatenate(v), [d_x, d_x + d_y]))

    def effect(error: Triple) -> np.ndarray:
        return error.x + whole.effect_on_gradient(error.y, error.z)

    curvatures = np.linalg.eigvalsh(whole.outer_hessian)
    unit = _unit(g, whole.outer_hessian @ g, point.x)
    small = d_x <= X_MODEL and d_y <= Y_MODEL
    return _Near(curvatures, unit, product, effect, whole if small else None)


def _by_products(system: MeanSystem, point: Triple, offset: Triple, g: np.ndarray) -> _Near:
    along = system.curvature_along(point, g)
    curvatures = np.array([g @ along / max(float(g @ g), 1e-300)])
    if curvatures[0] > 0:  # otherwise it is known that F is not convex
        product = partial(system.curvature_along, point)
        curvatures = _ritz(product, g, OUTER_LANCZOS_STEPS)
    zero = np.zeros_like(point.x)

    def effect(error: Triple) -> np.ndarray:
        y = -system.solve(point, error.y)
        z = -system.solve(point, error.z + system.along(point, Triple(zero, y, 0 * y)).z)
        return error.x + system.along(point, Triple(zero, y, z)).x

    derivative = partial(system.along, point)
    return _Near(curvatures, _unit(g, along, point.x), derivative, effect, None)


def _projected(
    product: Product, offset: Triple, g: np.ndarray, outer_largest: float, largest: float
) -> LinearModel:
    """The model on directions that an iteration with cautious step sizes takes."""
    now, taken, alpha, gamma = offset, [offset], 0.1 / outer_largest, 0.5 / largest
    for _ in range(ITERATES):
        G = product(now)
        now = Triple(now.x - alpha * (g + G.x), now.y - gamma * G.y, now.z - gamma * G.z)
        taken.append(now)
    X = _basis([g, *(point.x for point in taken)], X_MODEL)
    Y = _basis([*(point.y for point in taken), *(point.z for point in taken)], Y_MODEL)
    zero = Triple(*(np.zeros_like(part) for part in offset))
    columns = [
        *(product(zero._replace(x=v)) for v in X.T),
        *(product(zero._replace(y=v)) for v in Y.T),
        *(product(zero._replace(z=v)) for v in Y.T),
    ]
    B = np.stack([np.concatenate([X.T @ c.x, Y.T @ c.y, Y.T @ c.z]) for c in columns], axis=1)
    return LinearModel.of_jacobian(B, X.T @ g, Y.T @ offset.y, Y.T @ offset.z)


def _basis(vectors: list[np.ndarray], most: int) -> np.ndarray:
    """Orthonormal columns that span most of these vectors, each of which counts alike."""
    sizes = [np.linalg.norm(v) for v in vectors]
    kept = np.stack([v / size for v, size in zip(vectors, sizes, strict=True) if size > 0], axis=1)
    U, values, _ = np.linalg.svd(kept, full_matrices=False)
    return U[:, : min(most, int((values > 1e-8 * values[0]).sum()))]


def _ritz(product: Callable[[np.ndarray], np.ndarray], start: np.ndarray, steps: int) -> np.ndarray:
    """Lanczos: sorted eigenvalues of a symmetric operator; the outermost are the best."""
    basis, diagonal, beside = [start / np.linalg.norm(start)], [], []
    for _ in range(min(start.size, steps)):
        w = product(basis[-1])
        diagonal.append(w @ basis[-1])
        for _twice in range(2):  # a single pass leaves rounding errors that grow
            w = w - np.stack(basis).T @ (np.stack(basis) @ w)
        beside.append(np.linalg.norm(w))
        if beside[-1] <= 1e-10 * max(1e-30, np.abs(diagonal).max()):
            break
        basis.append(w / beside[-1])
    inside = np.diag(beside[: len(diagonal) - 1], 1)
    return np.linalg.eigvalsh(np.diag(diagonal) + inside + inside.T)
