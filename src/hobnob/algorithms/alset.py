"""ALSET: alternating steps with one time scale; one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.algorithms._series import random_term
from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import constant, count, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    x: jax.Array
    y: jax.Array


@dataclass(frozen=True, kw_only=True)
class ALSET(Algorithm):
    r"""ALSET (Chen, Sun and Yin, "Closing the Gap: Tighter Analysis of Alternating Stochastic
    Gradient Methods for Bilevel Problems", NeurIPS 2021).

    In every iteration, with fresh batches throughout:

        (1)  N times   y <- y - beta grad_y g(x, y; xi)                 a few: N = 1 will do
        (2)  x+ = x - alpha (grad_x f - J(xi) q grad_y f)               f at (x, y; zeta)
        (3)  q = (M/L) prod_{j<n} (I - H(xi_j)/L),                      n uniform in 0 .. M - 1

    Start: x = x0, y = y0; y keeps its value between iterations. Both step sizes are of order
    T^-1/2.

    Departure: all M - 1 Hessian batches are drawn and counted; only the first n are used.

    Cost of an iteration: N + M + 1 batches.

    Args:
        alpha, beta: step sizes of x and of y.
        inner_steps: N.
        terms: M.
        smoothness: L, an upper bound on the eigenvalues of H.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=1)
        >>> alset = hb.ALSET(alpha=0.01, beta=0.05, inner_steps=1, terms=20, smoothness=10.0)
        >>> hb.solve(problem, hb.complete(1), alset, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = False
    chance: ClassVar[bool] = True
    single_agent: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    inner_steps: int = count(1)
    terms: int = count(1)
    smoothness: float = constant()

    @classmethod
    def suggest(cls, scale: Scale) -> ALSET:
        L, mu = scale
        terms = max(1, round(4 * L / mu))
        return cls(alpha=0.02 * mu / L, beta=0.5 / L, inner_steps=2, terms=terms, smoothness=L)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: Agent, state: State) -> State:
        x, y = state
        alpha, beta = agent.rates(self.alpha, self.beta)

        def descend(agent: Agent, i: Any, y: jax.Array) -> jax.Array:
            return y - beta * agent.inner_gradient(x, y, agent.draw_inner("inner"))

        y = agent.repeat(self.inner_steps, descend, y)  # (1)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        z = random_term(agent, x, y, grad_y_f, self.terms, self.smoothness)  # (3)
        hypergradient = grad_x_f - agent.cross_product(x, y, agent.draw_inner("xi"), z)
        return State(agent.project(x - alpha * hypergradient), y)  # (2)
