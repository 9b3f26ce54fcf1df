"""BSA: bilevel stochastic approximation, two loops, one agent."""

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
class BSA(Algorithm):
    r"""Bilevel stochastic approximation (Ghadimi and Wang, "Approximation Methods for Bilevel
    Programming", 2018).

    In iteration t = 1, 2, ... , with fresh batches throughout:

        (1)  t times   y <- y - eta_i grad_y g(x, y; xi_i)              i = 0 .. t - 1
        (2)  x+ = x - alpha (grad_x f - J(xi) q grad_y f)               f at (x, y; zeta)
        (3)  q = (N/L) prod_{j<n} (I - H(xi_j)/L),                      n uniform in 0 .. N - 1

    Start: x = x0, y = y0; y keeps its value between iterations.

    Departure: all N - 1 Hessian batches are drawn and counted; only the first n are used.

    Cost of iteration t: t + N + 1 batches. So T iterations cost about T^2 / 2 batches.

    Args:
        alpha: step size of x.
        eta: step size of y, a number or a callable of the inner iteration i.
        terms: N.
        smoothness: L, an upper bound on the eigenvalues of H.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=1)
        >>> bsa = hb.BSA(alpha=0.01, eta=0.05, terms=20, smoothness=10.0)
        >>> hb.solve(problem, hb.complete(1), bsa, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = False
    chance: ClassVar[bool] = True
    single_agent: ClassVar[bool] = True

    alpha: Schedule = positive()
    eta: Schedule = positive()
    terms: int = count(1)
    smoothness: float = constant()

    @classmethod
    def suggest(cls, scale: Scale) -> BSA:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, eta=0.5 / L, terms=max(1, round(4 * L / mu)), smoothness=L)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: Agent, state: State) -> State:
        x, y = state
        (alpha,) = agent.rates(self.alpha)

        def descend(agent: Agent, i: Any, y: jax.Array) -> jax.Array:
            (eta,) = agent.rates(self.eta, at=i)
            return y - eta * agent.inner_gradient(x, y, agent.draw_inner("inner"))

        y = agent.repeat(lambda step: step + 1, descend, y)  # (1)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        z = random_term(agent, x, y, grad_y_f, self.terms, self.smoothness)  # (3)
        hypergradient = grad_x_f - agent.cross_product(x, y, agent.draw_inner("xi"), z)
        return State(agent.project(x - alpha * hypergradient), y)  # (2)
