"""Newton's method for the inner problem, and the exact hypergradient. All of it can be traced.

    grad F(x) = grad_x f - J z,   H z = grad_y f,   H = grad_yy g,  J = grad_xy g   at (x, y*(x)).

Up to `DENSE` inner variables the Hessian is formed and factorised. Beyond that, conjugate gradients
on Hessian-vector products solve the linear systems.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

DENSE = 1000  # inner variables
NEWTON_STEPS = 100

PooledLoss = Callable[[jax.Array, jax.Array], jax.Array]


def solve_inner(
    outer: PooledLoss, inner: PooledLoss, x: jax.Array, y: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """(F(x), grad F(x), y*(x), remaining |grad_y g|), from a first guess y.

    The remaining gradient is relative to |H y|, the size of the terms that cancel in it.
    """
    gradient = jax.grad(inner, argnums=1)
    y, left = _newton(lambda y: inner(x, y), y)
    left = left / jnp.maximum(1, jnp.linalg.norm(jax.jvp(lambda y: gradient(x, y), (y,), (y,))[1]))
    value, (fx, fy) = jax.value_and_grad(outer, argnums=(0, 1))(x, y)
    z = _solve_hessian(lambda y: gradient(x, y), y, fy)
    _, pull = jax.vjp(lambda x: gradient(x, y), x)
    return value, fx - pull(z)[0], y, left


def solve_flat_inner(
    outer: PooledLoss, inner: PooledLoss, x: jax.Array, y: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The same where g is convex in y, but not strongly. y*(x) is its minimiser of smallest norm.

    That is where the minimiser of g + ridge/2 |y|^2 goes as the ridge vanishes: a small ridge and
    one twice as large are extrapolated to 0. Where the two are far apart, g has no minimiser, or
    curvatures too small to tell from 0, and what remains is infinite.
    """
    eps = jnp.finfo(y.dtype).eps
    smallest = 4 * jnp.sqrt(eps) * jnp.linalg.norm(jax.hessian(inner, argnums=1)(x, y))

    def with_ridge(ridge: jax.Array) -> tuple[jax.Array, ...]:
        return solve_inner(outer, lambda x, y: inner(x, y) + ridge / 2 * (y @ y), x, y)

    *coarse, left_coarse = with_ridge(2 * smallest)
    *fine, left_fine = with_ridge(smallest)
    value, gradient, y = (2 * near - far for near, far in zip(fine, coarse, strict=True))
    settled = jnp.linalg.norm(fine[2] - coarse[2]) <= eps**0.25 * jnp.maximum(1, jnp.linalg.norm(y))
    left = jnp.where(settled, jnp.maximum(left_coarse, left_fine), jnp.inf)
    return value, gradient, y, left


def _newton(inner: Callable[[jax.Array], jax.Array], y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Newton's method with backtracking, until the gradient stops shrinking."""
    value_and_gradient = jax.value_and_grad(inner)

    class Point(NamedTuple):
        y: jax.Array
        value: jax.Array
        gradient: jax.Array
        norm: jax.Array
        better: jax.Array
        steps: jax.Array

    def point(y: jax.Array, old_norm: Any, steps: Any) -> Point:
        value, gradient = value_and_gradient(y)
        norm = jnp.linalg.norm(gradient)
        return Point(y, value, gradient, norm, norm < old_norm, jnp.asarray(steps))

    def newton_step(at: Point) -> Point:
        direction = _solve_hessian(jax.grad(inner), at.y, at.gradient)
        slope = at.gradient @ direction

        def reached(size: jax.Array) -> tuple[jax.Array, Point]:
            return size, point(at.y - size * direction, at.norm, at.steps + 1)

        def too_long(end: tuple[jax.Array, Point]) -> jax.Array:
            size, new = end
            # Near the minimum, rounding hides changes of the value; the gradient still shrinks.
            good = (new.value <= at.value - 1e-4 * size * slope) | new.better
            return ~good & (size > 1e-12)

        full = reached(jnp.ones((), at.y.dtype))
        _, new = jax.lax.while_loop(too_long, lambda end: reached(end[0] / 2), full)
        # Far from the minimum, the gradient may grow while the value falls.
        new = new._replace(better=new.better | (new.value < at.value))
        return jax.tree.map(
            lambda a, b: jnp.where(new.better, a, b), new, at._replace(better=new.better)
        )

    start = point(y, jnp.inf, 0)
    floor = 4 * jnp.finfo(y.dtype).eps

    def go_on(at: Point) -> jax.Array:
        return at.better & (at.steps < NEWTON_STEPS) & (at.norm > floor)

    end = jax.lax.while_loop(go_on, newton_step, start)
    return end.y, end.norm


def _solve_hessian(
    gradient: Callable[[jax.Array], jax.Array], y: jax.Array, right: jax.Array
) -> jax.Array:
    """z with H z = right, where H is the Jacobian of `gradient` at y."""
    if y.size <= DENSE:
        factor = jax.scipy.linalg.cho_factor(jax.jacfwd(gradient)(y))
        return jax.scipy.linalg.cho_solve(factor, right)
    product = jax.linearize(gradient, y)[1]
    return jax.scipy.sparse.linalg.cg(product, right, tol=1e-13, maxiter=20 * y.size)[0]
