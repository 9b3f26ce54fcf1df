"""NASA: nested averaged stochastic approximation, one time scale; one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import constant, fraction
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    x: jax.Array
    y: jax.Array  # running average of h, called u in the source
    z: jax.Array  # running average of the gradient


@dataclass(frozen=True, kw_only=True)
class NASA(Algorithm):
    r"""NASA (Ghadimi, Ruszczyński and Wang, "A Single Timescale Stochastic Approximation Method for
    Nested Stochastic Optimization", SIAM Journal on Optimization 2020), for f(h(x)) with
    h(x) = E h(x; xi).

        (1)  x~ = the nearest allowed point to x - z / c
        (2)  x+ = x + tau (x~ - x)
        (3)  z+ = (1 - a tau) z + a tau (grad_x f + grad h(x+; xi)' grad_y f)   f at (x+, y; zeta)
        (4)  y+ = (1 - b tau) y + b tau h(x+; xi)

    Start: x = x0, y = y0, z = 0. grad_x f is there for regularisers of x.

    Cost of an iteration: 2 batches; xi serves both h and its Jacobian.

    Args:
        tau: step size, in (0, 1].
        a, b: weights of the averages relative to tau; a tau and b tau must be at most 1.
        c: weight of the proximal term.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("policy")(agents=1, states=10)
        >>> nasa = hb.NASA(tau=0.1, a=2.0, b=2.0, c=4.0)
        >>> hb.solve(problem, hb.complete(1), nasa, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = True
    single_agent: ClassVar[bool] = True
    compositional: ClassVar[bool] = True

    tau: Schedule = fraction()
    a: float = constant()
    b: float = constant()
    c: float = constant()

    @classmethod
    def suggest(cls, scale: Scale) -> NASA:
        return cls(tau=0.2, a=2.0, b=2.0, c=4.0)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0, agent.zeros(agent.dim_x))

    def step(self, agent: Agent, state: State) -> State:
        x, y, z = state
        (tau,) = agent.rates(self.tau)
        nearby = agent.project(x - z / self.c)  # (1)
        x = x + tau * (nearby - x)  # (2)
        value, transposed = agent.mapping(x, agent.draw_inner("xi"))
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        direction = grad_x_f + transposed(grad_y_f)
        return State(
            x,
            (1 - self.b * tau) * y + self.b * tau * value,  # (4)
            (1 - self.a * tau) * z + self.a * tau * direction,  # (3)
        )
