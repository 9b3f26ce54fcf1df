"""Adaptive: tracked directions, scaled by the curvature of y and by the size of x's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.algorithms._lazy import lazy
from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import fraction, positive
from hobnob.core.schedules import Schedule

KEPT_H, KEPT_S = 0.99, 0.999  # how much of h and s is kept in an iteration
FLOOR = 0.01  # of the largest s: smaller ones count as this
TINY = 1e-12  # of the largest h: a y without curvature isn't moved to infinity


class State(NamedTuple):
    """What an agent holds: three variables, what tracks their directions, and two scales."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    z: jax.Array  # estimate of H^-1 grad_y f
    r: jax.Array  # average of its own x-directions
    g_y: jax.Array  # its latest y-direction
    g_z: jax.Array  # its latest z-direction
    Mu_x: jax.Array  # what it and its neighbours think the mean of all r is
    Mu_y: jax.Array  # likewise of all g_y
    Mu_z: jax.Array  # likewise of all g_z
    h: jax.Array  # mean square of the rows of H
    s: jax.Array  # mean square of u_x
    top: jax.Array  # the largest s so far


@dataclass(frozen=True, kw_only=True)
class Adaptive(Algorithm):
    r"""Gradient tracking whose steps are scaled: y and z by curvature, x as Adam does.

    In every iteration agent k draws zeta for f, xi for g and a vector v of random signs. With
    M = (I + W) / 2, and with t = 1, 2, ... and products of vectors entry by entry:

        (1)  h+ = 0.99 h + 0.01 (v H v)^2,   D = 1 / sqrt(h+ / (1 - 0.99^t))        at (x, y)
        (2)  u_y = M u_y + g_y+ - g_y        with g_y+ = grad_y g                   at (x, y)
        (3)  (y+, M u_y) = M (y - gamma D u_y, u_y)
        (4)  u_z = M u_z + g_z+ - g_z        with g_z+ = H z - grad_y f             at (x, y+)
        (5)  (z+, M u_z) = M (z - gamma D u_z, u_z)
        (6)  r+ = (1 - theta) r + theta (grad_x f - J z+)                           at (x, y+)
        (7)  u_x = M u_x + r+ - r
        (8)  s+ = 0.999 s + 0.001 u_x^2,   S = s+ / (1 - 0.999^t)
        (9)  (x+, M u_x) = M (x - alpha u_x / sqrt(max(S, 0.01 max S)), u_x)

    where max S is over all iterations so far. Start: x = x0, y = y0, all else 0.

    The mean of (v H v)^2 is the squared length of a row of H, so D sees what is off the diagonal
    and how batches differ. Directions are tracked first and scaled after: each agent scales an
    estimate of the same mean, so agents scale differently and still end at the same point. The
    steps of x have the size alpha, in units of x, whatever the size of F. Below a tenth of the
    largest direction seen they shrink with it; without that, constant steps would not settle.

    Without noise, constant steps find the solution, however much agents differ. It needs no
    constants of the problem but the scale of x: alpha should be about a hundredth of the distance
    that x has to go. gamma has no units; of 0.03, 0.1 and 0.3 the second is the safe one.

    Source: the parts are known (Hutchinson's estimate of a diagonal, Adam by Kingma and Ba, 2015,
    gradient tracking, SOBA's directions); that they work together here is this library's own
    finding.

    Departure: if the problem bounds x, (9) is followed by a projection.

    Cost of an iteration, per agent: 2 batches; 2 gradients and 3 products; three rounds with
    2 d_x + 4 d_y numbers in all, twice what SPARKLE's exact diffusion sends. To mix h and s as well
    would make it three times as many, and was no better on any problem tried.

    Args:
        alpha: step size of x, in units of x.
        gamma: step size of y and z, without units.
        theta: weight of the newest direction in r, in (0, 1].

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("hyperopt")("iris", agents=4, positive="virginica")
        >>> adaptive = hb.Adaptive(alpha=0.03, gamma=0.1, theta=0.2)
        >>> hb.solve(problem, hb.ring(4), adaptive, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = True

    alpha: Schedule = positive()
    gamma: Schedule = positive()
    theta: Schedule = fraction()

    @classmethod
    def suggest(cls, scale: Scale) -> Adaptive:
        return cls(alpha=0.03, gamma=0.1, theta=0.2)

    def init(self, agent: Agent) -> State:
        x, y = agent.zeros(agent.dim_x), agent.zeros(agent.dim_y)
        return State(agent.x0, agent.y0, y, x, y, y, x, y, y, h=y, s=x, top=x)

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, r, g_y, g_z, Mu_x, Mu_y, Mu_z, h, s, top = state
        alpha, gamma, theta = agent.rates(self.alpha, self.gamma, self.theta)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        v, t, M = agent.draw_signs("v", agent.dim_y), agent.step + 1, lazy(agent)

        h = KEPT_H * h + (1 - KEPT_H) * (v * agent.hessian_product(x, y, xi, v)) ** 2  # (1)
        D = _inverse_root(jnp.maximum(h, TINY * h.max()) / (1 - KEPT_H**t))
        g_y_old, g_y = g_y, agent.inner_gradient(x, y, xi)
        u_y = Mu_y + g_y - g_y_old  # (2)
        said_y = M({"y": y - gamma * D * u_y, "u": u_y})  # (3)
        y = said_y["y"]

        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)
        g_z_old, g_z = g_z, agent.hessian_product(x, y, xi, z) - grad_y_f
        u_z = Mu_z + g_z - g_z_old  # (4)
        said_z = M({"z": z - gamma * D * u_z, "u": u_z})  # (5)
        z = said_z["z"]

        r_old, r = r, (1 - theta) * r + theta * (grad_x_f - agent.cross_product(x, y, xi, z))  # (6)
        u_x = Mu_x + r - r_old  # (7)
        s = KEPT_S * s + (1 - KEPT_S) * u_x**2  # (8)
        S = s / (1 - KEPT_S**t)
        top = jnp.maximum(top, S)
        scaled = _inverse_root(jnp.maximum(S, FLOOR * top)) * u_x
        said_x = M({"x": x - alpha * scaled, "u": u_x})  # (9)
        return State(
            x=agent.project(said_x["x"]),
            y=y,
            z=z,
            r=r,
            g_y=g_y,
            g_z=g_z,
            Mu_x=said_x["u"],
            Mu_y=said_y["u"],
            Mu_z=said_z["u"],
            h=h,
            s=s,
            top=top,
        )


def _inverse_root(square: jax.Array) -> jax.Array:
    """1 / sqrt(square), and something finite for 0: then what it multiplies is 0 as well."""
    return jax.lax.rsqrt(jnp.maximum(square, jnp.finfo(square.dtype).tiny))
