"""MA-DSBO-GT: MA-DSBO with gradient tracking at all three levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.algorithms.madsbo import Tracked, residual, tracked_step
from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import count, fraction, nonnegative, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What an agent holds: three variables, its own directions, and tracked means of all."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    z: jax.Array  # estimate of H^-1 grad_y f
    q: jax.Array  # its latest y-direction
    p: jax.Array  # its estimate of the mean of all q
    s: jax.Array  # its latest z-direction
    d: jax.Array  # its estimate of the mean of all s
    r: jax.Array  # average of its own x-directions
    h: jax.Array  # its estimate of the mean of all r


@dataclass(frozen=True, kw_only=True)
class MADSBOGT(Algorithm):
    r"""MA-DSBO (Chen, Huang, Ma and Balasubramanian, "Decentralized Stochastic Bilevel Optimization
    with Improved per-Iteration Complexity", ICML 2023) with gradient tracking.

    In every iteration, with W w = sum_j w_kj w_j and fresh batches throughout:

        (1)  N times   q+ <- grad_y g(x, y) + ridge y,    p <- W p + q+ - q,   y <- W y - gamma p
        (2)  N times   s+ <- H z + ridge z - grad_y f,    d <- W d + s+ - s,   z <- W z - beta d
        (3)  x+ = W x - alpha h
        (4)  r+ = (1 - theta) r + theta (grad_x f - J z)
        (5)  h+ = W h + r+ - r

    The derivatives of (2) and (4) are taken at (x, y) after (1). Start: x = x0, y = y0, all else 0.

    `ridge` is 0 unless given. One that vanishes is for an inner problem that is convex, but not
    strongly: g + ridge/2 |y|^2 is, and as the ridge goes to 0 its minimiser goes to that minimiser
    of g whose norm is the smallest. Exact F is measured there. This is the idea of DUET (Qin, Liu,
    Lu, Liang and Liu, "DUET: Decentralized Bilevel Optimization without Lower-Level Strong
    Convexity", ICLR 2025). Let the ridge fall more slowly than 1/t, as in
    `hb.schedules.power(0.1, 1 / 2)`: in the flat directions y and z follow it at a rate of
    gamma ridge and beta ridge. The error of x is of the order of the last ridge. If grad_y f has a
    part along flat directions, z grows with 1/ridge.

    Departures, as in `MADSBO`: tracked variables keep their values between iterations; if the
    problem bounds x, (3) is followed by a projection. Of DUET, whose agents each have an inner
    problem of their own, only the vanishing ridge is taken, not its recursion and step sizes.

    Cost of an iteration, per agent: 3 N + 2 batches; 2 N + 1 gradients and N + 1 products; 2 N
    rounds of 2 d_y numbers and one of 2 d_x.

    Without noise and ridge, constant steps find the solution, however much agents differ. If W has
    negative eigenvalues, the steps must be smaller; `weights="lazy"` has none.

    Args:
        alpha, beta, gamma: step sizes of x, z and y.
        theta: weight of the newest direction in r, in (0, 1].
        inner_steps: N.
        ridge: weight of |y|^2 / 2, added to g.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> tracked = hb.MADSBOGT(alpha=0.01, beta=0.02, gamma=0.02, theta=0.2, inner_steps=3)
        >>> hb.solve(problem, hb.ring(4), tracked, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()
    theta: Schedule = fraction()
    inner_steps: int = count(1)
    ridge: Schedule = nonnegative(0.0)

    @classmethod
    def suggest(cls, scale: Scale) -> MADSBOGT:
        L, mu = scale
        return cls(alpha=0.05 * mu / L, beta=0.1 / L, gamma=0.1 / L, theta=0.2, inner_steps=2)

    @property
    def needs_strong_convexity(self) -> bool:
        return not callable(self.ridge) and self.ridge == 0

    def init(self, agent: Agent) -> State:
        zero_x, zero_y = agent.zeros(agent.dim_x), agent.zeros(agent.dim_y)
        zeros = dict.fromkeys(("z", "q", "p", "s", "d"), zero_y)
        return State(x=agent.x0, y=agent.y0, r=zero_x, h=zero_x, **zeros)

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, q, p, s, d, r, h = state
        alpha, beta, gamma, theta = agent.rates(self.alpha, self.beta, self.gamma, self.theta)
        (ridge,) = agent.rates(self.ridge)

        def descend(agent: Agent, i: Any, tracked: Tracked) -> Tracked:
            q = agent.inner_gradient(x, tracked.w, agent.draw_inner("inner")) + ridge * tracked.w
            return tracked_step(agent, tracked, q, gamma)

        y, q, p = agent.repeat(self.inner_steps, descend, Tracked(y, q, p))  # (1)

        def solve(agent: Agent, i: Any, tracked: Tracked) -> Tracked:
            s = residual(agent, x, y, tracked.w) + ridge * tracked.w
            return tracked_step(agent, tracked, s, beta)

        z, s, d = agent.repeat(self.inner_steps, solve, Tracked(z, s, d))  # (2)
        grad_x_f, _ = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        u = grad_x_f - agent.cross_product(x, y, agent.draw_inner("xi"), z)
        W = agent.mix({"x": x, "h": h})
        x = agent.project(W["x"] - alpha * h)  # (3)
        r_new = (1 - theta) * r + theta * u  # (4)
        h = W["h"] + r_new - r  # (5)
        return State(x, y, z, q, p, s, d, r_new, h)
