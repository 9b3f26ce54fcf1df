"""LoPA: every agent keeps an inner problem of its own; only x is shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import choice, fraction, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What an agent holds. It sends x, and h where directions are tracked; nothing of y or z."""

    x: jax.Array  # outer solution, common to all
    y: jax.Array  # its own inner solution
    z: jax.Array  # its own estimate of H^-1 grad_y f
    r: jax.Array  # average of its own x-directions
    h: jax.Array  # the direction that x goes: its estimate of the mean of all r, or its own r


@dataclass(frozen=True, kw_only=True)
class LoPA(Algorithm):
    r"""LoPA (Niu, Xu, Sun, Huang and Chai, "Distributed Stochastic Bilevel Optimization: Improved
    Complexity and Heterogeneity Analysis", arXiv 2312.14690, JMLR 2025), for personal problems:
    F(x) = mean_k f_k(x, y*_k(x)), where y*_k(x) minimises agent k's own g_k(x, y).

    In every iteration agent k draws zeta for f and xi for g. All derivatives are its own, at its
    own (x, y), and only (4) and (5) listen to neighbours, W w = sum_j w_kj w_j:

        (1)  y+ = y - gamma grad_y g
        (2)  z+ = z - beta (H z - grad_y f)
        (3)  r+ = (1 - theta) r + theta (grad_x f - J z)
        (4)  h+ = W h + r+ - r     with "gt", gradient tracking
             h+ = r+               with "lg", the local direction
        (5)  x+ = W x - alpha h+

    Start: x = x0, y = y0, z = r = h = 0.

    Source and departures: only the paper's abstract and summaries by others were at hand. They name
    the parts: no inner loops, steps on y and z in turn with those on x, an averaged direction, and
    the variants LoPA-LG and LoPA-GT. How they are put together here is a reconstruction, so the
    order of the steps, and which iterate a derivative is taken at, may differ from the paper. If
    the problem bounds x, (5) is followed by a projection.

    Cost of an iteration, per agent: 2 batches; 2 gradients and 2 products; one round of 2 d_x
    numbers with "gt", and of d_x with "lg". What is sent does not grow with y.

    Without noise, constant steps find the solution with "gt", however much agents differ; "lg"
    stops at a distance that shrinks with alpha. If W has negative eigenvalues, "gt" may need a
    smaller alpha; `weights="lazy"` has none.

    Args:
        alpha, beta, gamma: step sizes of x, z and y.
        theta: weight of the newest direction in r, in (0, 1].
        direction: "gt" or "lg".

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4, personal=True)
        >>> lopa = hb.LoPA(alpha=0.02, beta=0.05, gamma=0.05, theta=0.5)
        >>> result = hb.solve(problem, hb.ring(4), lopa, steps=100)
        >>> result.x.shape, result.y.shape  # a y for each agent
        ((5,), (4, 6))
    """

    exact: ClassVar[bool] = True
    personal: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()
    theta: Schedule = fraction()
    direction: str = choice("gt", "lg")

    @classmethod
    def suggest(cls, scale: Scale) -> LoPA:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, beta=0.2 / L, gamma=0.2 / L, theta=0.2)

    def init(self, agent: Agent) -> State:
        zero_x, zero_y = agent.zeros(agent.dim_x), agent.zeros(agent.dim_y)
        return State(x=agent.x0, y=agent.y0, z=zero_y, r=zero_x, h=zero_x)

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, r, h = state
        alpha, beta, gamma, theta = agent.rates(self.alpha, self.beta, self.gamma, self.theta)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)
        grad_y_g, products = agent.inner_products(x, y, xi)
        Jz, Hz = products(z)

        y = y - gamma * grad_y_g  # (1)
        z = z - beta * (Hz - grad_y_f)  # (2)
        r_new = (1 - theta) * r + theta * (grad_x_f - Jz)  # (3)
        if self.direction == "gt":
            W = agent.mix({"x": x, "h": h})
            h = W["h"] + r_new - r  # (4)
        else:
            W, h = agent.mix({"x": x}), r_new  # (4)
        x = agent.project(W["x"] - alpha * h)  # (5)
        return State(x, y, z, r_new, h)
