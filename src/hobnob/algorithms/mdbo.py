"""MDBO: momentum on local hypergradients, tracked; agents agree on a wrong point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax

from hobnob.algorithms._series import whole_series
from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import constant, count, fraction, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What an agent holds. It sends everything except m_x and m_y."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    m_x: jax.Array  # average of its own hypergradients
    m_y: jax.Array  # average of its own grad_y g
    u_x: jax.Array  # its estimate of the mean of all m_x
    u_y: jax.Array  # its estimate of the mean of all m_y


class _Message(NamedTuple):
    x: jax.Array
    y: jax.Array
    u_x: jax.Array
    u_y: jax.Array


@dataclass(frozen=True, kw_only=True)
class MDBO(Algorithm):
    r"""MDBO (Gao, Gu and Thai, "On the Convergence of Distributed Stochastic Bilevel Optimization
    Algorithms over a Network"): a cautionary peer.

    In every iteration agent k draws zeta for f, xi for grad_y g and J, and xi_1 .. xi_b for its own
    Hessians. All are used at its own (x, y). With W w = sum_j w_kj w_j:

        (1)  q_k  = (1/L) sum_{j=0..b} prod_{i<=j} (I - H(xi_i)/L)
        (2)  m_x+ = (1 - theta) m_x + theta (grad_x f - J(xi) q_k grad_y f)
        (3)  m_y+ = (1 - theta) m_y + theta grad_y g
        (4)  u+   = W u + m+ - m                                        for x and for y
        (5)  x+   = W x - alpha u_x+,   y+ = W y - gamma u_y+

    Start: x = x0, y = y0, all else 0.

    Tracking makes all agents agree exactly on a point where the mean of the *local* hypergradients
    is zero. When their Hessians differ, that is not the solution, since the mean of J_k H_k^-1 is
    not the J H^-1 of the means: MDBO settles on a wrong point, and the consensus error does not
    show it. `STORM` and `SPARKLE` have no such bias and need fewer batches.

    Departures: all terms of the series (1) are used, and alpha, gamma and theta are free. If the
    problem bounds x, (5) is followed by a projection.

    Cost of an iteration, per agent: b + 2 batches; 2 gradients and b + 1 products; one round of
    2 d_x + 2 d_y numbers.

    Args:
        alpha, gamma: step sizes of x and of y.
        theta: weight of the newest directions in the averages, in (0, 1].
        terms: b, the number of factors in the series for the inverse Hessian.
        smoothness: L, an upper bound on the eigenvalues of H.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> mdbo = hb.MDBO(alpha=0.005, gamma=0.02, theta=0.2, terms=20, smoothness=20.0)
        >>> hb.solve(problem, hb.ring(4), mdbo, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = False
    biased: ClassVar[bool] = True

    alpha: Schedule = positive()
    gamma: Schedule = positive()
    theta: Schedule = fraction()
    terms: int = count()
    smoothness: float = constant()

    @classmethod
    def suggest(cls, scale: Scale) -> MDBO:
        L, mu = scale
        terms = max(1, round(4 * L / mu))
        return cls(alpha=0.05 * mu / L, gamma=0.1 / L, theta=0.2, terms=terms, smoothness=L)

    def init(self, agent: Agent) -> State:
        zero_x, zero_y = agent.zeros(agent.dim_x), agent.zeros(agent.dim_y)
        return State(agent.x0, agent.y0, zero_x, zero_y, zero_x, zero_y)

    def step(self, agent: Agent, state: State) -> State:
        x, y, m_x, m_y, u_x, u_y = state
        alpha, gamma, theta = agent.rates(self.alpha, self.gamma, self.theta)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)
        grad_y_g = agent.inner_gradient(x, y, xi)
        z = whole_series(agent, x, y, grad_y_f, self.terms, self.smoothness)  # (1)
        local = grad_x_f - agent.cross_product(x, y, xi, z)

        new_x = (1 - theta) * m_x + theta * local  # (2)
        new_y = (1 - theta) * m_y + theta * grad_y_g  # (3)
        W = agent.mix(_Message(x, y, u_x, u_y))
        u_x = W.u_x + new_x - m_x  # (4)
        u_y = W.u_y + new_y - m_y
        x, y = agent.project(W.x - alpha * u_x), W.y - gamma * u_y  # (5)
        return State(x, y, new_x, new_y, u_x, u_y)
