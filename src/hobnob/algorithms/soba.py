"""SOBA: one loop, three directions from the same two batches; one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    x: jax.Array
    y: jax.Array
    z: jax.Array  # estimate of H^-1 grad_y f


@dataclass(frozen=True, kw_only=True)
class SOBA(Algorithm):
    r"""SOBA (Dagréou, Ablin, Vaiter and Moreau, "A Framework for Bilevel Optimization that Enables
    Stochastic and Global Variance Reduction Algorithms", NeurIPS 2022).

    In every iteration zeta is drawn for f and xi for g, and both are used at the old (x, y, z):

        (1)  y+ = y - gamma grad_y g
        (2)  z+ = z - beta (H z - grad_y f)
        (3)  x+ = x - alpha (grad_x f - J z)

    Start: x = x0, y = y0, z = 0. z replaces the inverse Hessian: at a fixed point of (2) it is
    H^-1 grad_y f, and (3) is a step along the gradient of F.

    Departures: the source writes v = -z, and has one step size for y and v. If the problem bounds
    x, (3) is followed by a projection.

    Cost of an iteration: 2 batches; 2 gradients and 2 products.

    Without noise, constant steps find the solution. With noise they keep moving around it, at a
    distance that shrinks with them. `SABA` finds it in spite of noise, but needs records.

    Args:
        alpha, beta, gamma: step sizes of x, z and y. For a general F all are of order T^-1/2.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=1)
        >>> soba = hb.SOBA(alpha=0.01, beta=0.05, gamma=0.05)
        >>> hb.solve(problem, hb.complete(1), soba, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = True
    single_agent: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()

    @classmethod
    def suggest(cls, scale: Scale) -> SOBA:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, beta=0.2 / L, gamma=0.2 / L)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0, agent.zeros(agent.dim_y))

    def step(self, agent: Agent, state: State) -> State:
        x, y, z = state
        alpha, beta, gamma = agent.rates(self.alpha, self.beta, self.gamma)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        grad_y_g, products = agent.inner_products(x, y, agent.draw_inner("xi"))
        Jz, Hz = products(z)
        return State(
            x=agent.project(x - alpha * (grad_x_f - Jz)),  # (3)
            y=y - gamma * grad_y_g,  # (1)
            z=z - beta * (Hz - grad_y_f),  # (2)
        )
