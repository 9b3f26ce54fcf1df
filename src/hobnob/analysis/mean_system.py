"""MeanSystem: the three directions of a problem's mean losses, and their derivatives, counted.

    G_x = grad_x f(x, y) - J z,   G_y = grad_y g(x, y),   G_z = H z - grad_y f(x, y)

At y*(x) and z*(x), where G_y = G_z = 0, G_x is grad F. Where every agent has its own y, the y and z
here are those of all agents, one after the other, and g is the sum of theirs.

SciPy solves on the host, with products that JAX compiles once: that is quicker to start than a
solver inside a compiled program, and every product can be counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from scipy.sparse.linalg import LinearOperator, cg

from hobnob.core.data import Records
from hobnob.core.problem import Problem
from hobnob.ground import keys

DRAWS, FEW_DRAWS = 16, 4  # batches that each agent draws; fewer where y is long
LONG = 1_000  # entries of y
_POWER_STEPS = 20
_MOST_NUMBERS = 3_000_000  # in the data; larger data is represented by batches

Vector = np.ndarray
Loss = Callable[[Any, Any], jax.Array]


class Triple(NamedTuple):
    """Or a direction, or three errors."""

    x: Any
    y: Any
    z: Any


class Cost(NamedTuple):
    """What estimates cost: records read and derivatives taken per agent, and the time."""

    samples: float = 0.0
    gradients: int = 0
    products: int = 0
    seconds: float = 0.0


class _World(NamedTuple):
    places: Any
    batches: Any  # [agents, draws, ...], outer and inner


class MeanSystem:
    """Made inside `problem.precision()`, and used there."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self._clock, self._gradients, self._products = time.perf_counter(), 0, 0
        self.copies = problem.size if problem.personal else 1  # of y and z
        places, agents = problem.place(), jnp.arange(problem.size, dtype=jnp.uint32)
        sources = problem.outer_data, problem.inner_data
        self.random = not all(isinstance(s, Records) and s.batch_size is None for s in sources)
        self.draws = (FEW_DRAWS if problem.dim_y > LONG else DRAWS) if self.random else 1

        def draws(k: Any, places: Any) -> Any:
            key = keys.of_agent(0, k)
            return tuple(
                source.draw(keys.of_slot(key, 0, slot), place, self.draws)
                for source, place, slot in zip(sources, places, ("zeta", "xi"), strict=True)
            )

        self._per_agent = tuple(source.per_agent for source in sources)
        draw = jax.jit(jax.vmap(draws, in_axes=(0, self._per_agent)))
        self._world = _World(places, draw(agents, places))
        numbers = sum(a.size for a in jax.tree.leaves([places[0].arrays, places[1].arrays]))
        self._pooled = problem.has_pooled_losses and numbers <= _MOST_NUMBERS

    @property
    def cost(self) -> Cost:
        """So far. Each record counts once, however often it was used."""
        samples = sum(
            self.draws * np.mean(source.samples_per_draw())
            + (np.mean(source.lengths) if self._pooled and isinstance(source, Records) else 0)
            for source in (self.problem.outer_data, self.problem.inner_data)
        )
        seconds = time.perf_counter() - self._clock
        return Cost(float(samples), self._gradients, self._products, seconds)

    # --- the mean losses ------------------------------------------------------------------------

    def at(self, point: Triple) -> Triple:
        """G_x, G_y and G_z."""
        self._gradients += 2
        self._products += 2
        return Triple(*map(_wide, self._system(self._world, self._narrow(point))))

    def along(self, point: Triple, direction: Triple) -> Triple:
        """The derivatives of G_x, G_y and G_z along a direction."""
        self._products += 2
        given = self._narrow(point), self._narrow(direction)
        return Triple(*map(_wide, self._derivative(self._world, *given)))

    def jacobian(self, point: Triple) -> np.ndarray:
        """The matrix of `along`: rows (G_x, G_y, G_z), columns (x, y, z)."""
        count = sum(part.size for part in point)
        self._products += 2 * count
        return _wide(self._jacobian(self._world, self._narrow(point)))

    def inner_solution(self, x: Vector, y: Vector) -> Vector:
        """y*(x), roughly, from a first guess."""

        def value_and_gradient(y: Vector) -> tuple[float, Vector]:
            self._gradients += 1
            value, gradient = self._inner_gradient(self._world, *self._narrow((x, y)))
            return float(value), _wide(gradient)

        least = 1e-6 * np.abs(value_and_gradient(y)[1]).max()
        return scipy.optimize.minimize(
            value_and_gradient,
            y,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 300, "gtol": least, "ftol": 1e-14, "maxcor": 30},
        ).x

    def hessian_product(self, point: Triple, v: Vector) -> Vector:
        """H v."""
        self._products += 1
        return _wide(self._hessian(self._world, *self._narrow((point.x, point.y, v))))

    def solve(self, point: Triple, right: Vector) -> Vector:
        """Roughly the v with H v = right."""
        product, shape = partial(self.hessian_product, point), (right.size, right.size)
        operator = LinearOperator(shape, matvec=product, dtype=np.float64)  # type: ignore[call-arg]
        with np.errstate(all="ignore"):  # a flat H: what comes out is not finite, and refused
            return cg(operator, right, rtol=1e-4, maxiter=100)[0]

    def curvature_along(self, point: Triple, v: Vector) -> Vector:
        """The second derivative of F times v."""
        zero = np.zeros_like(point.y)
        y = -self.solve(point, self.along(point, Triple(v, zero, zero)).y)
        z = -self.solve(point, self.along(point, Triple(v, y, zero)).z)
        return self.along(point, Triple(v, y, z)).x

    # --- single batches -------------------------------------------------------------------------

    def batches(self, point: Triple) -> tuple[float, Triple]:
        """The largest curvature of g in y over all batches, and each draw's mean of G over agents.

        The second has a leading axis of draws.
        """
        self._products += self.draws * (_POWER_STEPS + 3)
        self._gradients += 2 * self.draws
        largest, means = self._batches(self._world, self._narrow(point))
        return float(largest), Triple(*map(_wide, means))

    # --- compiled -------------------------------------------------------------------------------

    @cached_property
    def _system(self) -> Callable[..., Any]:
        return jax.jit(lambda world, at: _directions(self._outer(world), self._inner(world), at))

    @cached_property
    def _derivative(self) -> Callable[..., Any]:
        return jax.jit(self._along)

    @cached_property
    def _jacobian(self) -> Callable[..., Any]:
        def jacobian(world: _World, at: Triple) -> jax.Array:
            ends = np.cumsum([part.size for part in at])
            units = jnp.eye(ends[-1], dtype=at.x.dtype)

            def column(unit: jax.Array) -> jax.Array:
                direction = Triple(*jnp.split(unit, ends[:-1]))
                return jnp.concatenate(self._along(world, at, direction))

            return jax.vmap(column, out_axes=1)(units)

        return jax.jit(jacobian)

    @cached_property
    def _inner_gradient(self) -> Callable[..., Any]:
        return jax.jit(lambda world, x, y: jax.value_and_grad(partial(self._inner(world), x))(y))

    @cached_property
    def _hessian(self) -> Callable[..., Any]:
        def product(world: _World, x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
            return jax.jvp(jax.grad(partial(self._inner(world), x)), (y,), (v,))[1]

        return jax.jit(product)

    @cached_property
    def _batches(self) -> Callable[..., Any]:
        K = self.copies

        def of_batch(places: Any, batch: Any, at: Triple) -> Any:
            (outer_place, inner_place), (outer_batch, inner_batch) = places, batch

            def inner(x: Any, y: Any) -> jax.Array:
                return self.problem.inner_loss(x, y, inner_place, inner_batch)

            def outer(x: Any, y: Any) -> jax.Array:
                return self.problem.outer_loss(x, y, outer_place, outer_batch) / K

            product = jax.linearize(jax.grad(partial(inner, at.x)), at.y)[1]
            return _largest(product, at.y), _directions(outer, inner, at)

        def batches(world: _World, at: Triple) -> Any:
            of_agent = jax.vmap(of_batch, in_axes=(None, 0, None))
            of_all = jax.vmap(of_agent, in_axes=(self._per_agent, 0, self._own))
            largest, each = of_all(world.places, world.batches, self._split(at))
            if K == 1:
                return largest.max(), jax.tree.map(lambda part: part.mean(axis=0), each)
            y, z = (jnp.moveaxis(part, 0, 1).reshape(self.draws, -1) for part in (each.y, each.z))
            return largest.max(), Triple(each.x.sum(axis=0), y, z)

        return jax.jit(batches)

    def _along(self, world: _World, at: Triple, direction: Triple) -> Triple:
        directions = partial(_directions, self._outer(world), self._inner(world))
        return jax.jvp(directions, (at,), (direction,))[1]

    def _outer(self, world: _World) -> Loss:
        if self._pooled:
            return lambda x, y: self.problem.pooled_outer(x, self._of_agents(y), world.places[0])
        return self._mean_of_batches(world, self.problem.outer_loss, 0)

    def _inner(self, world: _World) -> Loss:
        pooled, mean = self.problem.pooled_inner, self.problem.inner_loss
        of_batches, K = self._mean_of_batches(world, mean, 1), self.copies
        if self._pooled:
            return lambda x, y: K * pooled(x, self._of_agents(y), world.places[1])
        return lambda x, y: K * of_batches(x, y)

    def _mean_of_batches(self, world: _World, loss: Callable[..., Any], which: int) -> Loss:
        def mean(x: Any, y: Any) -> jax.Array:
            of_agent = jax.vmap(partial(loss, x), in_axes=(None, None, 0))
            of_all = jax.vmap(of_agent, in_axes=(self._own.y, self._per_agent[which], 0))
            return of_all(self._of_agents(y), world.places[which], world.batches[which]).mean()

        return mean

    @property
    def _own(self) -> Triple:
        """Which parts of a triple have an axis of agents, once they are split."""
        return Triple(None, 0, 0) if self.problem.personal else Triple(None, None, None)

    def _of_agents(self, y: Any) -> Any:
        return y.reshape(self.problem.size, -1) if self.problem.personal else y

    def _split(self, at: Triple) -> Triple:
        return Triple(at.x, self._of_agents(at.y), self._of_agents(at.z))

    def _narrow(self, given: Any) -> Any:
        """In the problem's own precision, whatever JAX's flags are."""
        return jax.tree.map(lambda part: np.asarray(part, self.problem.dtype), given)


def _directions(outer: Loss, inner: Loss, at: Triple) -> Triple:
    grad_y_g, pull = jax.vjp(jax.grad(inner, argnums=1), at.x, at.y)
    Jz, Hz = pull(at.z)
    grad_x_f, grad_y_f = jax.grad(outer, argnums=(0, 1))(at.x, at.y)
    return Triple(grad_x_f - Jz, grad_y_g, Hz - grad_y_f)


def _largest(product: Callable[[jax.Array], jax.Array], like: jax.Array) -> jax.Array:
    """The norm of a symmetric operator, by power iteration."""
    start = jax.random.normal(keys.of_slot(keys.of_agent(0, 0), 0, "power"), like.shape, like.dtype)

    def again(_: Any, v: jax.Array) -> jax.Array:
        v = product(v)
        return v / jnp.maximum(jnp.linalg.norm(v), 1e-30)

    v = jax.lax.fori_loop(0, _POWER_STEPS, again, start / jnp.linalg.norm(start))
    return jnp.linalg.norm(product(v))


def _wide(part: Any) -> np.ndarray:
    return np.asarray(part, np.float64)
