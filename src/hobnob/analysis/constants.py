"""The constants of a problem that determine step sizes, estimated at its starting point.

Only products with Hessians are used, so no matrix is formed however large y is. Write

    G1 = grad_y g(x, y),   G2 = H z - grad_y f(x, y),   G3 = grad_x f(x, y) - J z

for the mean losses. At y*(x) and z*(x), where G1 = G2 = 0, G3 is grad F. The solutions move with
x by P v = (y*'(x) v, z*'(x) v), found from the derivatives of G1 and G2 along v, and the second
derivative of F along v is that of G3 along (v, P v).

A method that follows y*(x) and z*(x) with step size gamma while x moves by dx lags behind by
D^-1 P dx / gamma, where D is the derivative of (G1, G2) by (y, z). Its effect on grad F is `lag`,
the norm of C D^-1 P with C the derivative of G3 by (y, z). The step size of x may be gamma / lag,
but not much more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.analysis.newton import minimise_roughly, solve_roughly
from hobnob.core.problem import Problem
from hobnob.ground import keys
from hobnob.ground.errors import ProblemError

DRAWS = 16  # batches that each agent draws to estimate the noise
_POWER_STEPS, _LANCZOS_STEPS = 30, 60
_MOST_NUMBERS = 3_000_000  # in the data; larger data is represented by batches

Vector = jax.Array
MeanLoss = Callable[[Vector, Vector], jax.Array]


class Constants(NamedTuple):
    """All at x0 and y*(x0)."""

    largest: float  # curvature of g in y, in the most curved batch of any agent
    smallest: float  # curvature of the mean of g in y
    outer_largest: float  # curvature of F, by its absolute value
    outer_smallest: float  # curvature of F; negative if F is not convex
    lag: float  # see the module's docstring
    gradient: float  # |grad F|
    noise: float  # variance of one step's estimate of grad F, in units of |grad F|^2


def constants(problem: Problem) -> Constants:
    """Estimate them, with a few hundred Hessian products over all data."""
    problem = problem.loaded()
    with problem.precision():
        losses = _Losses(problem)
        x = jnp.asarray(problem.x_layout.ravel(problem.x0))
        y0 = jnp.asarray(problem.y_layout.ravel(problem.y0))
        y, z = jax.jit(losses.solutions)(losses.world, x, y0)
        if not (jnp.isfinite(y).all() and jnp.isfinite(z).all()):
            raise ProblemError(
                "The inner problem could not be solved roughly at x0, so nothing can be said of "
                "step sizes. Is it strongly convex in y, and bounded below?"
            )
        at = x, y, z
        inner = _ritz(partial(jax.jit(losses.inner_product), losses.world, at), y.size)
        move = jax.jit(losses.moved)
        outer = _ritz(lambda v: move(losses.world, at, v)[0], x.size)
        return Constants(
            largest=float(jax.jit(losses.largest)(losses.world, at)),
            smallest=float(inner[0]),
            outer_largest=float(np.abs(outer).max()),
            outer_smallest=float(outer[0]),
            lag=_norm(lambda v: move(losses.world, at, v)[1], x.size),
            gradient=float(jax.jit(losses.gradient_norm)(losses.world, at)),
            noise=float(jax.jit(losses.noise)(losses.world, at)),
        )


class _World(NamedTuple):
    places: Any
    batches: Any  # [agents, DRAWS, ...], outer and inner


class _Losses:
    """The mean losses of the network and of each agent's batches."""

    def __init__(self, problem: Problem):
        self.problem = problem
        places, agents = problem.place(), jnp.arange(problem.size, dtype=jnp.uint32)
        sources = problem.outer_data, problem.inner_data

        def draws(k: Any, places: Any) -> Any:
            key = keys.of_agent(0, k)
            return tuple(
                source.draw(keys.of_slot(key, 0, slot), place, DRAWS)
                for source, place, slot in zip(sources, places, ("zeta", "xi"), strict=True)
            )

        self._per_agent = tuple(source.per_agent for source in sources)
        self.world = _World(places, jax.vmap(draws, in_axes=(0, self._per_agent))(agents, places))
        numbers = sum(a.size for a in jax.tree.leaves([places[0].arrays, places[1].arrays]))
        self._pooled = problem.has_pooled_losses and numbers <= _MOST_NUMBERS

    def outer(self, world: _World) -> MeanLoss:
        if self._pooled:
            return lambda x, y: self.problem.pooled_outer(x, y, world.places[0])
        return self._mean_of_batches(world, self.problem.outer_loss, 0)

    def inner(self, world: _World) -> MeanLoss:
        if self._pooled:
            return lambda x, y: self.problem.pooled_inner(x, y, world.places[1])
        return self._mean_of_batches(world, self.problem.inner_loss, 1)

    def solutions(self, world: _World, x: Vector, y: Vector) -> tuple[Vector, Vector]:
        """y*(x) and z*(x) = H^-1 grad_y f, roughly."""
        inner, outer = self.inner(world), self.outer(world)
        y = minimise_roughly(partial(inner, x), y)
        z = solve_roughly(jax.grad(partial(inner, x)), y, jax.grad(outer, argnums=1)(x, y))
        return y, z

    def inner_product(self, world: _World, at: Any, v: Vector) -> Vector:
        x, y, _ = at
        return jax.jvp(jax.grad(partial(self.inner(world), x)), (y,), (v,))[1]

    def moved(self, world: _World, at: Any, v: Vector) -> tuple[Vector, Vector]:
        """The change of grad F when x moves along v, and the error that lagging behind causes."""
        moves = self._solve(world, at, *self._along(world, at, v)[:2])
        behind = self._solve(world, at, *(-part for part in moves))
        return self._along(world, at, v, *moves)[2], self._along(world, at, None, *behind)[2]

    def gradient_norm(self, world: _World, at: Any) -> jax.Array:
        return jnp.linalg.norm(_system(self.outer(world), self.inner(world), *at)[2])

    def noise(self, world: _World, at: Any) -> jax.Array:
        """The variance of grad F as all agents estimate it from one draw, over |grad F|^2."""

        def means(draw: Any) -> Any:
            of_all = jax.vmap(self._of_batch, in_axes=(self._per_agent, 0, None))
            each = of_all(world.places, jax.tree.map(lambda b: b[:, draw], world.batches), at)
            return jax.tree.map(lambda part: part.mean(axis=0), each)

        def estimate(draw: Any) -> Vector:
            *errors, direct = means(draw)
            through = self._solve(world, at, *errors)
            return direct + self._along(world, at, None, *through)[2]

        variance = jax.lax.map(estimate, jnp.arange(DRAWS)).var(axis=0, ddof=1).sum()
        return variance / jnp.maximum(self.gradient_norm(world, at) ** 2, 1e-30)

    def _along(self, world: _World, at: Any, *direction: Vector | None) -> Any:
        """The derivative of (G1, G2, G3) along a direction; missing parts are 0."""
        padded = (*direction, *(None,) * (3 - len(direction)))
        full = tuple(jnp.zeros_like(a) if d is None else d for a, d in zip(at, padded, strict=True))
        return jax.jvp(partial(_system, self.outer(world), self.inner(world)), at, full)[1]

    def _solve(
        self, world: _World, at: Any, first: Vector, second: Vector
    ) -> tuple[Vector, Vector]:
        """How y and z must move so that errors `first` in G1 and `second` in G2 vanish."""
        x, y, _ = at
        invert = partial(solve_roughly, jax.grad(partial(self.inner(world), x)), y)
        y_moves = invert(-first)
        return y_moves, invert(-second - self._along(world, at, None, y_moves)[1])

    def largest(self, world: _World, at: Any) -> jax.Array:
        """The largest curvature of g in y over all batches of all agents, by power iteration."""
        x, y, _ = at
        start = jax.random.normal(keys.of_slot(keys.of_agent(0, 0), 0, "power"), y.shape, y.dtype)

        def of_batch(place: Any, batch: Any) -> jax.Array:
            gradient = jax.grad(lambda y: self.problem.inner_loss(x, y, place, batch))
            product = jax.linearize(gradient, y)[1]

            def again(_: Any, v: Vector) -> Vector:
                v = product(v)
                return v / jnp.maximum(jnp.linalg.norm(v), 1e-30)

            v = jax.lax.fori_loop(0, _POWER_STEPS, again, start / jnp.linalg.norm(start))
            return jnp.linalg.norm(product(v))

        of_agent = jax.vmap(of_batch, in_axes=(None, 0))
        of_all = jax.vmap(of_agent, in_axes=(self._per_agent[1], 0))
        return of_all(world.places[1], world.batches[1]).max()

    def _of_batch(self, places: Any, batches: Any, at: Any) -> Any:
        """G1, G2 and G3 of one agent's batches."""
        (outer_place, inner_place), (outer_batch, inner_batch) = places, batches
        return _system(
            lambda x, y: self.problem.outer_loss(x, y, outer_place, outer_batch),
            lambda x, y: self.problem.inner_loss(x, y, inner_place, inner_batch),
            *at,
        )

    def _mean_of_batches(self, world: _World, loss: Callable[..., Any], which: int) -> MeanLoss:
        def mean(x: Vector, y: Vector) -> jax.Array:
            of_agent = jax.vmap(partial(loss, x, y), in_axes=(None, 0))
            of_all = jax.vmap(of_agent, in_axes=(self._per_agent[which], 0))
            return of_all(world.places[which], world.batches[which]).mean()

        return mean


def _system(outer: MeanLoss, inner: MeanLoss, x: Vector, y: Vector, z: Vector) -> Any:
    """G1, G2 and G3."""
    grad_y_g, pull = jax.vjp(jax.grad(inner, argnums=1), x, y)
    Jz, Hz = pull(z)
    grad_x_f, grad_y_f = jax.grad(outer, argnums=(0, 1))(x, y)
    return grad_y_g, Hz - grad_y_f, grad_x_f - Jz


def _ritz(product: Callable[[Any], Any], size: int) -> np.ndarray:
    """Lanczos: sorted eigenvalues of a symmetric operator; the outermost are accurate."""
    v = np.random.default_rng(0).normal(size=size)
    basis, diagonal, beside = [v / np.linalg.norm(v)], [], []
    for _ in range(min(size, _LANCZOS_STEPS)):
        w = np.array(product(jnp.asarray(basis[-1])), np.float64)
        diagonal.append(w @ basis[-1])
        for _twice in range(2):  # a single pass leaves rounding errors that grow
            w -= np.stack(basis).T @ (np.stack(basis) @ w)
        beside.append(np.linalg.norm(w))
        if beside[-1] <= 1e-10 * max(1e-30, np.abs(diagonal).max()):
            break
        basis.append(w / beside[-1])
    inside = np.diag(beside[: len(diagonal) - 1], 1)
    return np.linalg.eigvalsh(np.diag(diagonal) + inside + inside.T)


def _norm(product: Callable[[Any], Any], size: int) -> float:
    """Roughly the norm of an operator that need not be symmetric, by repeated application."""
    v, most = np.random.default_rng(0).normal(size=size), 0.0
    for _ in range(10):
        v = np.asarray(product(jnp.asarray(v / np.linalg.norm(v))), np.float64)
        most = max(most, float(np.linalg.norm(v)))
        if not most:
            break
    return most
