"""DSBO: gossip-based decentralised stochastic bilevel optimisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.algorithms._series import stored_series
from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import constant, count, fraction, positive
from hobnob.core.schedules import Schedule, value_at


class State(NamedTuple):
    """What an agent holds, and sends to its neighbours in every round."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    s: jax.Array  # estimate of grad_x f
    h: jax.Array  # estimate of grad_y f
    u: jax.Array  # estimate of J = grad_xy g, (d_x, d_y)
    v: jax.Array  # b estimates of H = grad_yy g, (b, d_y, d_y)


@dataclass(frozen=True, kw_only=True)
class DSBO(Algorithm):
    r"""Algorithm 1 of "Decentralized Gossip-Based Stochastic Bilevel Optimization over
    Communication Networks" (Yang, Zhang and Wang, NeurIPS 2022).

    In every iteration agent k draws zeta for f, xi for grad_y g and J, and xi_1 .. xi_b for b
    Hessians. All are independent and used at its own (x, y). With W z = sum_j w_kj z_j:

        (1)  x+   = W x - alpha (s - u q h)
        (2)  y+   = W y - gamma grad_y g(x, y; xi)
        (3)  s+   = (1 - beta) W s + beta grad_x f(x, y; zeta)
        (4)  h+   = (1 - beta) W h + beta grad_y f(x, y; zeta)
        (5)  u+   = (1 - beta) W u + beta J(x, y; xi)
        (6)  v_i+ = (1 - beta) W v_i + beta H(x, y; xi_i)               i = 1 .. b
        (7)  q    = (I + A_b (I + A_{b-1} (... (I + A_1)))) / L,        A_i = I - v_i / L

    Start: x = x0, y = y0, s = h = u = 0, v_i = mu I.

    q is never formed. Only q h is needed, and (7) gives it as b matrix-vector products: p = h, then
    p <- h + p - v_i p / L for i = 1 .. b, then q h = p / L.

    Cost of an iteration, per agent: b + 2 batches; one round, in which every neighbour is sent
    2 d_x + 2 d_y + d_x d_y + b d_y^2 numbers. With batches of one record, the first message reveals
    that record: see the guide on what is sent.

    When agents differ, constant step sizes leave a distance to the solution that shrinks with them;
    the paper's diminishing ones converge.

    If the problem bounds x, (1) is followed by a projection. The paper has no such step.

    Args:
        alpha: step size of x, a number or a callable `step -> number`.
        beta: weight of the newest sample in the averages, in (0, 1].
        gamma: step size of y, in (0, 1].
        terms: b, the number of factors in the series for the inverse Hessian.
        smoothness: L, an upper bound on the eigenvalues of H.
        strong_convexity: mu, a lower bound on the eigenvalues of H.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> dsbo = hb.DSBO(alpha=0.01, beta=0.1, gamma=0.1, terms=20,
        ...                smoothness=10.0, strong_convexity=1.0)
        >>> hb.solve(problem, hb.ring(4), dsbo, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = False

    alpha: Schedule = positive()
    beta: Schedule = fraction()
    gamma: Schedule = fraction()
    terms: int = count()
    smoothness: float = constant()
    strong_convexity: float = constant()

    @classmethod
    def suggest(cls, scale: Scale) -> DSBO:
        L, mu = scale
        return cls(
            alpha=0.1 * mu / L,
            beta=0.1,
            gamma=min(1.0, 0.5 / L),
            terms=max(1, round(4 * L / mu)),
            smoothness=L,
            strong_convexity=mu,
        )

    def explain_divergence(self, step: int, largest_curvature: float) -> str:
        gamma, most = float(value_at(self.gamma, step)), 2 / largest_curvature
        if gamma > most:
            return f"gamma = {gamma:.3g} is above 2/L_g = {most:.3g} (estimated)."
        if self.smoothness < largest_curvature / 2:
            return (
                f"smoothness = {self.smoothness:.3g} is below half of the largest curvature, "
                f"{largest_curvature:.3g} (estimated), so the series for the inverse diverges."
            )
        alpha = float(value_at(self.alpha, step))
        return f"gamma and smoothness look safe, so alpha = {alpha:.3g} may be too large."

    def init(self, agent: Agent) -> State:
        dx, dy = agent.dim_x, agent.dim_y
        mu_identity = self.strong_convexity * jnp.eye(dy, dtype=agent.y0.dtype)
        return State(
            x=agent.x0,
            y=agent.y0,
            s=agent.zeros(dx),
            h=agent.zeros(dy),
            u=agent.zeros(dx, dy),
            v=jnp.broadcast_to(mu_identity, (self.terms, dy, dy)),
        )

    def step(self, agent: Agent, state: State) -> State:
        x, y, s, h, u, v = state
        alpha, beta, gamma = agent.rates(self.alpha, self.beta, self.gamma)

        zeta = agent.draw_outer("zeta")
        xi = agent.draw_inner("xi")
        xis = agent.draw_inner("xi_i", self.terms)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)

        qh = stored_series(h, v, self.smoothness)  # (7)
        W = agent.mix(state)
        return State(
            x=agent.project(W.x - alpha * (s - u @ qh)),  # (1)
            y=W.y - gamma * agent.inner_gradient(x, y, xi),  # (2)
            s=(1 - beta) * W.s + beta * grad_x_f,  # (3)
            h=(1 - beta) * W.h + beta * grad_y_f,  # (4)
            u=(1 - beta) * W.u + beta * agent.cross(x, y, xi),  # (5)
            v=(1 - beta) * W.v + beta * agent.hessians(x, y, xis),  # (6)
        )
