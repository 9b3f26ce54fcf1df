"""MA-SOBA: SOBA with a moving average of the x-directions; one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import fraction, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    x: jax.Array
    y: jax.Array
    z: jax.Array  # estimate of H^-1 grad_y f
    r: jax.Array  # average of the x-directions, called h in the source


@dataclass(frozen=True, kw_only=True)
class MASOBA(Algorithm):
    r"""MA-SOBA (Chen, Xiao and Balasubramanian, "Optimal Algorithms for Stochastic Bilevel
    Optimization under Relaxed Smoothness Conditions", JMLR 2024).

    In every iteration zeta is drawn for f and xi for g, and both are used at the old (x, y, z):

        (1)  x+ = x - alpha r
        (2)  y+ = y - gamma grad_y g
        (3)  z+ = z - beta (H z - grad_y f)
        (4)  r+ = (1 - theta) r + theta (grad_x f - J z)

    Start: x = x0, y = y0, z = r = 0, so x first moves in the second iteration.

    Departures: x, y and z have separate step sizes. If the problem bounds x, (1) is followed by a
    projection.

    Cost of an iteration: 2 batches; 2 gradients and 2 products.

    The average smooths the noise of single batches in x's direction. Its analysis needs no smooth
    third derivatives; that of `SOBA` does. Without noise, constant steps find the solution.

    Args:
        alpha, beta, gamma: step sizes of x, z and y. For a general F all are of order T^-1/2.
        theta: weight of the newest direction in r, in (0, 1], of the same order.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=1)
        >>> masoba = hb.MASOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2)
        >>> hb.solve(problem, hb.complete(1), masoba, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = True
    single_agent: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()
    theta: Schedule = fraction()

    @classmethod
    def suggest(cls, scale: Scale) -> MASOBA:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, beta=0.2 / L, gamma=0.2 / L, theta=0.2)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0, agent.zeros(agent.dim_y), agent.zeros(agent.dim_x))

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, r = state
        alpha, beta, gamma, theta = agent.rates(self.alpha, self.beta, self.gamma, self.theta)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        grad_y_g, products = agent.inner_products(x, y, agent.draw_inner("xi"))
        Jz, Hz = products(z)
        return State(
            x=agent.project(x - alpha * r),  # (1)
            y=y - gamma * grad_y_g,  # (2)
            z=z - beta * (Hz - grad_y_f),  # (3)
            r=(1 - theta) * r + theta * (grad_x_f - Jz),  # (4)
        )
