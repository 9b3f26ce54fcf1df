"""The penalty method: tracked gradients only; its bias is of the order of its penalty p, or p^2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import choice, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What an agent holds. m and u join the parts for x, y and z, in this order."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution; if one-sided, pulled towards a small f
    z: jax.Array  # inner solution; if central, how far a and b are from y
    m: jax.Array  # its latest directions
    u: jax.Array  # its estimate of the mean of all m


@dataclass(frozen=True, kw_only=True)
class Penalty(Algorithm):
    r"""A first-order penalty method with gradient tracking, in the manner of DSGDA-GT (Wang, Chen,
    Ma and Zhang, "Fully First-Order Methods for Decentralized Bilevel Optimization", 2024).

    The constraint that y minimises g becomes a penalty: f(x, y) + (g(x, y) - min_z g(x, z)) / p. In
    every iteration agent k draws zeta for f and xi for g. With w = (x, y, z):

        (1)  m_x+ = grad_x f(x, y) + (grad_x g(x, y) - grad_x g(x, z)) / p
        (2)  m_y+ = grad_y f(x, y) + grad_y g(x, y) / p
        (3)  m_z+ = grad_y g(x, z) / p
        (4)  u+ = W u + m+ - m
        (5)  w+ = W w - (alpha, gamma, gamma) u+

    Start: x = x0, y = z = y0, m = u = 0.

    No second derivative is taken, and agents agree exactly. The price is a bias proportional to p,
    even if agents are alike: constant steps end where F's gradient is of order p. The directions
    are of order 1/p, so all step sizes must shrink with p. p may be a schedule.

    (1) is a forward difference in p of the x-gradient of min_y (g + p f). difference="central"
    takes the difference of p and -p, as F2SA-2 does (Chen, Li, Chayti and Zhang, "Faster Gradient
    Methods for Highly-smooth Stochastic Bilevel Optimization", ICLR 2026), and the bias is of order
    p^2. With a for the y that minimises g + p f and b for the one that minimises g - p f:

        (1') m_x+ = (grad_x f(x, a) + grad_x f(x, b)) / 2 + (grad_x g(x, a) - grad_x g(x, b)) / 2p
        (2') m_a+ =   grad_y f(x, a) + grad_y g(x, a) / p
        (3') m_b+ = - grad_y f(x, b) + grad_y g(x, b) / p

    An agent holds y, the mean of a and b, whose distance from the inner solution is of order p^2,
    and z, half of their difference: a = y + z, b = y - z. So m_y is half of the sum of (2') and
    (3'), m_z half of their difference, and (4) and (5) stay as they are; z starts at 0. g - p f
    must be strongly convex in y, as it is if p times the largest curvature of f in y is below the
    smallest of g.

    Departures: x, y and z each take one step at once, with the user's step sizes; the sources'
    loops and step sizes are not followed. If the problem bounds x, (5) is followed by a projection.

    Cost of an iteration, per agent: 2 batches; 3 gradients, or 4 if central; one round of
    2 d_x + 4 d_y numbers. If W has negative eigenvalues, the steps must be smaller;
    `weights="lazy"` has none.

    Args:
        alpha: step size of x.
        gamma: step size of y and z.
        penalty: p.
        difference: "one-sided", or "central" for a bias of order p^2.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> penalised = hb.Penalty(alpha=0.002, gamma=0.001, penalty=0.05)
        >>> hb.solve(problem, hb.ring(4), penalised, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = False  # the distance to the solution shrinks with p

    alpha: Schedule = positive()
    gamma: Schedule = positive()
    penalty: Schedule = positive()
    difference: str = choice("one-sided", "central")

    @classmethod
    def suggest(cls, scale: Scale) -> Penalty:
        L, mu = scale
        p = 0.05 * mu
        return cls(alpha=0.4 * p / L, gamma=0.1 * p / L, penalty=p)

    def init(self, agent: Agent) -> State:
        zero = agent.zeros(agent.dim_x + 2 * agent.dim_y)
        z = agent.zeros(agent.dim_y) if self.difference == "central" else agent.y0
        return State(agent.x0, agent.y0, z, zero, zero)

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, m, u = state
        alpha, gamma, p = agent.rates(self.alpha, self.gamma, self.penalty)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        directions = _central if self.difference == "central" else _one_sided
        m_new = jnp.concatenate(directions(agent, (x, y, z), zeta, xi, p))
        W = agent.mix({"x": x, "y": y, "z": z, "u": u})
        u = W["u"] + m_new - m  # (4)
        u_x, u_y, u_z = jnp.split(u, [agent.dim_x, agent.dim_x + agent.dim_y])
        x = agent.project(W["x"] - alpha * u_x)  # (5)
        return State(x, W["y"] - gamma * u_y, W["z"] - gamma * u_z, m_new, u)


Three = tuple[jax.Array, jax.Array, jax.Array]


def _one_sided(agent: Agent, w: Three, zeta: Any, xi: Any, p: jax.Array) -> Three:
    x, y, z = w
    grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)
    grad_x_g, grad_y_g = agent.inner_gradients(x, y, xi)
    grad_x_g_z, grad_y_g_z = agent.inner_gradients(x, z, xi)
    m_x = grad_x_f + (grad_x_g - grad_x_g_z) / p  # (1)
    m_y = grad_y_f + grad_y_g / p  # (2)
    m_z = grad_y_g_z / p  # (3)
    return m_x, m_y, m_z


def _central(agent: Agent, w: Three, zeta: Any, xi: Any, p: jax.Array) -> Three:
    x, y, z = w
    a, b = y + z, y - z
    (f_x_a, f_y_a), (f_x_b, f_y_b) = (agent.outer_gradients(x, at, zeta) for at in (a, b))
    (g_x_a, g_y_a), (g_x_b, g_y_b) = (agent.inner_gradients(x, at, xi) for at in (a, b))
    m_x = (f_x_a + f_x_b) / 2 + (g_x_a - g_x_b) / (2 * p)  # (1')
    m_a = f_y_a + g_y_a / p  # (2')
    m_b = -f_y_b + g_y_b / p  # (3')
    return m_x, (m_a + m_b) / 2, (m_a - m_b) / 2
