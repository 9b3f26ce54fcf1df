"""SCGD: stochastic compositional gradient descent; one agent."""

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
    y: jax.Array  # running average of h(x; xi)


@dataclass(frozen=True, kw_only=True)
class SCGD(Algorithm):
    r"""Stochastic compositional gradient descent (Wang, Fang and Liu, "Stochastic Compositional
    Gradient Descent", Mathematical Programming 2017), for f(h(x)) with h(x) = E h(x; xi).

        (1)  y+ = (1 - beta) y + beta h(x; xi)
        (2)  x+ = x - alpha (grad_x f + grad h(x; xi)' grad_y f)        f at (x, y+; zeta)

    Start: x = x0, y = y0. alpha of order t^-3/4 and beta of order t^-1/2. grad_x f is there for
    regularisers of x.

    Cost of an iteration: 2 batches; xi serves both h and its Jacobian.

    Args:
        alpha: step size of x.
        beta: weight of the newest sample of h, in (0, 1].

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("policy")(agents=1, states=10)
        >>> scgd = hb.SCGD(alpha=0.01, beta=0.1)
        >>> hb.solve(problem, hb.complete(1), scgd, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = True
    single_agent: ClassVar[bool] = True
    compositional: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = fraction()

    @classmethod
    def suggest(cls, scale: Scale) -> SCGD:
        return cls(alpha=0.05, beta=0.5)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: Agent, state: State) -> State:
        x, y = state
        alpha, beta = agent.rates(self.alpha, self.beta)
        value, transposed = agent.mapping(x, agent.draw_inner("xi"))
        y = (1 - beta) * y + beta * value  # (1)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        return State(agent.project(x - alpha * (grad_x_f + transposed(grad_y_f))), y)  # (2)
