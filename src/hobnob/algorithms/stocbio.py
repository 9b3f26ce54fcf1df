"""stocBiO: a fixed number of warm-started inner steps, and the full series; one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.algorithms._series import whole_series
from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import constant, count, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    x: jax.Array
    y: jax.Array


@dataclass(frozen=True, kw_only=True)
class StocBiO(Algorithm):
    r"""stocBiO (Ji, Yang and Liang, "Bilevel Optimization: Convergence Analysis and Enhanced
    Design", ICML 2021).

    In every iteration, with fresh batches throughout:

        (1)  N times   y <- y - beta grad_y g(x, y; xi)
        (2)  x+ = x - alpha (grad_x f - J(xi) q grad_y f)               f at (x, y; zeta)
        (3)  q = (1/L) sum_{j=0..b} prod_{i<=j} (I - H(xi_i)/L)

    Start: x = x0, y = y0; y keeps its value between iterations.

    Departures: the series uses the factor 1/L, where the source has a separate step size. Its
    Hessian batches are as large as all others; the source lets them shrink from term to term.

    Cost of an iteration: N + b + 2 batches.

    Args:
        alpha, beta: step sizes of x and of y.
        inner_steps: N.
        terms: b, the number of factors in the series for the inverse Hessian.
        smoothness: L, an upper bound on the eigenvalues of H.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=1)
        >>> stocbio = hb.StocBiO(alpha=0.01, beta=0.05, inner_steps=5, terms=20, smoothness=10.0)
        >>> hb.solve(problem, hb.complete(1), stocbio, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = True
    single_agent: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    inner_steps: int = count(1)
    terms: int = count()
    smoothness: float = constant()

    @classmethod
    def suggest(cls, scale: Scale) -> StocBiO:
        L, mu = scale
        # Without noise, only the truncation, (1 - mu/L)^b, keeps it from the solution.
        terms = max(1, round(24 * L / mu))
        return cls(alpha=0.1 * mu / L, beta=0.5 / L, inner_steps=10, terms=terms, smoothness=L)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: Agent, state: State) -> State:
        x, y = state
        alpha, beta = agent.rates(self.alpha, self.beta)

        def descend(agent: Agent, i: Any, y: jax.Array) -> jax.Array:
            return y - beta * agent.inner_gradient(x, y, agent.draw_inner("inner"))

        y = agent.repeat(self.inner_steps, descend, y)  # (1)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        z = whole_series(agent, x, y, grad_y_f, self.terms, self.smoothness)  # (3)
        hypergradient = grad_x_f - agent.cross_product(x, y, agent.draw_inner("xi"), z)
        return State(agent.project(x - alpha * hypergradient), y)  # (2)
