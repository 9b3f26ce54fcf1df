"""TTSA: one step on y, one on x, on two time scales; one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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
class TTSA(Algorithm):
    r"""Two-timescale stochastic approximation (Hong, Wai, Wang and Yang, "A Two-Timescale
    Stochastic Algorithm Framework for Bilevel Optimization: Complexity Analysis and Application to
    Actor-Critic", SIAM Journal on Optimization 2023).

    In every iteration, with fresh batches throughout:

        (1)  y+ = y - beta grad_y g(x, y; xi')
        (2)  x+ = x - alpha (grad_x f - J(xi) q grad_y f)               f at (x, y+; zeta)
        (3)  q = (N/L) prod_{j<n} (I - H(xi_j)/L),                      n uniform in 0 .. N - 1

    Start: x = x0, y = y0. The step sizes set the time scales: for a general F, alpha is of order
    t^-3/5 and beta of order t^-2/5, so y moves ever faster than x and one step on it is enough.
    `hb.schedules.power` has these.

    Departures: N is fixed; the source lets it grow with log t. All N - 1 Hessian batches are drawn
    and counted; only the first n are used.

    Cost of an iteration: N + 2 batches; 2 gradients and N products.

    Args:
        alpha, beta: step sizes of x and of y.
        terms: N.
        smoothness: L, an upper bound on the eigenvalues of H.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=1)
        >>> slow, fast = hb.schedules.power(0.05, 3 / 5), hb.schedules.power(0.1, 2 / 5)
        >>> ttsa = hb.TTSA(alpha=slow, beta=fast, terms=20, smoothness=10.0)
        >>> hb.solve(problem, hb.complete(1), ttsa, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = False
    chance: ClassVar[bool] = True
    single_agent: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    terms: int = count(1)
    smoothness: float = constant()

    @classmethod
    def suggest(cls, scale: Scale) -> TTSA:
        L, mu = scale
        terms = max(1, round(4 * L / mu))
        return cls(alpha=0.02 * mu / L, beta=0.5 / L, terms=terms, smoothness=L)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: Agent, state: State) -> State:
        x, y = state
        alpha, beta = agent.rates(self.alpha, self.beta)
        y = y - beta * agent.inner_gradient(x, y, agent.draw_inner("xi'"))  # (1)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        z = random_term(agent, x, y, grad_y_f, self.terms, self.smoothness)  # (3)
        hypergradient = grad_x_f - agent.cross_product(x, y, agent.draw_inner("xi"), z)
        return State(agent.project(x - alpha * hypergradient), y)  # (2)
