"""The penalty method: tracked gradients only; its bias is of the order of its penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What an agent holds. m and u join the parts for x, y and z, in this order."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution, pulled towards a small f
    z: jax.Array  # inner solution
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

    Departures: x, y and z each take one step at once, with the user's step sizes; the source's
    loops and step sizes are not followed. If the problem bounds x, (5) is followed by a projection.

    Cost of an iteration, per agent: 2 batches; 3 gradients; one round of 2 d_x + 4 d_y numbers.
    If W has negative eigenvalues, the steps must be smaller; `weights="lazy"` has none.

    Args:
        alpha: step size of x.
        gamma: step size of y and z.
        penalty: p.

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

    @classmethod
    def suggest(cls, scale: Scale) -> Penalty:
        L, mu = scale
        p = 0.05 * mu
        return cls(alpha=0.4 * p / L, gamma=0.1 * p / L, penalty=p)

    def init(self, agent: Agent) -> State:
        zero = agent.zeros(agent.dim_x + 2 * agent.dim_y)
        return State(agent.x0, agent.y0, agent.y0, zero, zero)

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, m, u = state
        alpha, gamma, p = agent.rates(self.alpha, self.gamma, self.penalty)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)
        grad_x_g, grad_y_g = agent.inner_gradients(x, y, xi)
        grad_x_g_z, grad_y_g_z = agent.inner_gradients(x, z, xi)

        m_x = grad_x_f + (grad_x_g - grad_x_g_z) / p  # (1)
        m_y = grad_y_f + grad_y_g / p  # (2)
        m_z = grad_y_g_z / p  # (3)
        m_new = jnp.concatenate([m_x, m_y, m_z])
        W = agent.mix({"x": x, "y": y, "z": z, "u": u})
        u = W["u"] + m_new - m  # (4)
        u_x, u_y, u_z = jnp.split(u, [agent.dim_x, agent.dim_x + agent.dim_y])
        x = agent.project(W["x"] - alpha * u_x)  # (5)
        return State(x, W["y"] - gamma * u_y, W["z"] - gamma * u_z, m_new, u)
