"""SUSTAIN: variance-reduced directions for x and y, one random term of the series; one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.algorithms._series import random_terms
from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import constant, count, fraction, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    x: jax.Array
    y: jax.Array
    x_before: jax.Array  # one iteration ago
    y_before: jax.Array
    u: jax.Array  # x-direction, as STORM estimates it; h^f in the source
    v: jax.Array  # y-direction, likewise; h^g in the source


@dataclass(frozen=True, kw_only=True)
class SUSTAIN(Algorithm):
    r"""SUSTAIN (Khanduri, Zeng, Hong, Wai, Wang and Yang, "A Near-Optimal Algorithm for Stochastic
    Bilevel Optimization via Double-Momentum", NeurIPS 2021).

    In every iteration, with w = (x, y), and the same batches and n at w and at w_before:

        (1)  v+ = G(w) + (1 - theta) (v - G(w_before))                  G = grad_y g, on xi'
        (2)  u+ = D(w) + (1 - theta) (u - D(w_before))
        (3)  D  = grad_x f - J(xi) q grad_y f                           f on zeta
        (4)  q  = (N/L) prod_{j<n} (I - H(xi_j)/L),                     n uniform in 0 .. N - 1
        (5)  x+ = x - alpha u+,   y+ = y - beta v+

    Start: x = x0, y = y0, u = v = 0. In the first iteration theta is 1, so u+ = D(w) and v+ = G(w).

    Departures: one theta serves both levels. N is fixed; in the source it grows with log T. All
    N - 1 Hessian batches are drawn and counted; only the first n are used. If the problem bounds x,
    (5) is followed by a projection.

    Cost of an iteration: N + 2 batches, each used twice; 4 gradients and 2 N products.

    Args:
        alpha, beta: step sizes of x and of y. For a general F both are of order t^-1/3.
        theta: how much of the past is forgotten, in (0, 1], of the order of alpha^2.
        terms: N.
        smoothness: L, an upper bound on the eigenvalues of H.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=1)
        >>> sustain = hb.SUSTAIN(alpha=0.01, beta=0.05, theta=0.2, terms=20, smoothness=10.0)
        >>> hb.solve(problem, hb.complete(1), sustain, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = False
    chance: ClassVar[bool] = True
    single_agent: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    theta: Schedule = fraction()
    terms: int = count(1)
    smoothness: float = constant()

    @classmethod
    def suggest(cls, scale: Scale) -> SUSTAIN:
        L, mu = scale
        terms = max(1, round(4 * L / mu))
        return cls(alpha=0.02 * mu / L, beta=0.2 / L, theta=0.2, terms=terms, smoothness=L)

    def init(self, agent: Agent) -> State:
        x, y = agent.x0, agent.y0
        return State(x, y, x, y, jnp.zeros_like(x), jnp.zeros_like(y))

    def step(self, agent: Agent, state: State) -> State:
        x, y, x_before, y_before, u, v = state
        alpha, beta, theta = agent.rates(self.alpha, self.beta, self.theta)
        keep = jnp.where(agent.step == 0, 0, 1 - theta)
        inner, zeta, xi = agent.draw_inner("xi'"), agent.draw_outer("zeta"), agent.draw_inner("xi")
        points = (x, y), (x_before, y_before)

        G, G_before = (agent.inner_gradient(*at, inner) for at in points)
        v = G + keep * (v - G_before)  # (1)

        outer = [agent.outer_gradients(*at, zeta) for at in points]
        h = [grad_y_f for _, grad_y_f in outer]
        z = random_terms(agent, points, h, self.terms, self.smoothness)  # (4)
        D, D_before = (
            grad_x_f - agent.cross_product(*at, xi, solved)  # (3)
            for at, (grad_x_f, _), solved in zip(points, outer, z, strict=True)
        )
        u = D + keep * (u - D_before)  # (2)
        return State(agent.project(x - alpha * u), y - beta * v, x, y, u, v)  # (5)
