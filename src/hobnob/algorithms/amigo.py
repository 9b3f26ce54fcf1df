"""AmIGO: a few steps on y, then a few on z, both warm-started; one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import count, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    x: jax.Array
    y: jax.Array
    z: jax.Array  # estimate of H^-1 grad_y f


@dataclass(frozen=True, kw_only=True)
class AmIGO(Algorithm):
    r"""AmIGO (Arbel and Mairal, "Amortized Implicit Differentiation for Stochastic Bilevel
    Optimization", ICLR 2022).

    In every iteration, with fresh batches throughout:

        (1)  N times   y <- y - gamma grad_y g(x, y; xi)
        (2)  N times   z <- z - beta (H(xi) z - grad_y f)               f at (x, y; zeta)
        (3)  x+ = x - alpha (grad_x f - J(xi) z)

    (2) and (3) use the y of (1) and share one zeta. Start: x = x0, y = y0, z = 0; y and z keep
    their values between iterations, so a small N is enough.

    Departures: the source writes -z for z, and may take different numbers of steps on z and on y.
    If the problem bounds x, (3) is followed by a projection.

    Cost of an iteration: 2 N + 2 batches; N + 1 gradients and N + 1 products.

    Without noise, constant steps find the solution.

    Args:
        alpha, beta, gamma: step sizes of x, z and y.
        inner_steps: N.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=1)
        >>> amigo = hb.AmIGO(alpha=0.02, beta=0.05, gamma=0.05, inner_steps=5)
        >>> hb.solve(problem, hb.complete(1), amigo, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = True
    single_agent: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()
    inner_steps: int = count(1)

    @classmethod
    def suggest(cls, scale: Scale) -> AmIGO:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, beta=0.2 / L, gamma=0.2 / L, inner_steps=3)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0, agent.zeros(agent.dim_y))

    def step(self, agent: Agent, state: State) -> State:
        x, y, z = state
        alpha, beta, gamma = agent.rates(self.alpha, self.beta, self.gamma)

        def descend(agent: Agent, i: Any, y: jax.Array) -> jax.Array:
            return y - gamma * agent.inner_gradient(x, y, agent.draw_inner("inner"))

        y = agent.repeat(self.inner_steps, descend, y)  # (1)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))

        def solve(agent: Agent, i: Any, z: jax.Array) -> jax.Array:
            Hz = agent.hessian_product(x, y, agent.draw_inner("xi_i"), z)
            return z - beta * (Hz - grad_y_f)

        z = agent.repeat(self.inner_steps, solve, z)  # (2)
        hypergradient = grad_x_f - agent.cross_product(x, y, agent.draw_inner("xi"), z)
        return State(agent.project(x - alpha * hypergradient), y, z)  # (3)
