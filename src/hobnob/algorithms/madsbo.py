"""MA-DSBO: a few gossip steps on y, a few tracked steps on z, and a moving average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import count, fraction, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What an agent holds. It sends x, y, z and d, in separate rounds."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    z: jax.Array  # estimate of H^-1 grad_y f
    s: jax.Array  # its latest z-direction
    d: jax.Array  # its estimate of the mean of all s
    r: jax.Array  # average of its own x-directions


@dataclass(frozen=True, kw_only=True)
class MADSBO(Algorithm):
    r"""MA-DSBO (Chen, Huang, Ma and Balasubramanian, "Decentralized Stochastic Bilevel Optimization
    with Improved per-Iteration Complexity", ICML 2023).

    In every iteration, with W w = sum_j w_kj w_j and fresh batches throughout:

        (1)  N times   y  <- W y - gamma grad_y g(x, y)
        (2)  N times   s+ <- H z - grad_y f,   d <- W d + s+ - s,   z <- W z - beta d
        (3)  x+ = W x - alpha r
        (4)  r+ = (1 - theta) r + theta (grad_x f - J z)

    The derivatives of (2) and (4) are taken at (x, y) after (1). Start: x = x0, y = y0, all else 0.

    Departures: z, s and d keep their values between iterations, as y does, whatever (2) starts from
    in the source. Restarting at z = 0 would need a large N. If the problem bounds x, (3) is
    followed by a projection.

    Cost of an iteration, per agent: 3 N + 2 batches; 2 N + 1 gradients and N + 1 products; N
    rounds of d_y numbers, N of 2 d_y and one of d_x.

    When agents differ, constant step sizes leave a distance to the solution that shrinks with them.
    `MADSBOGT` reaches the solution.

    Args:
        alpha, beta, gamma: step sizes of x, z and y.
        theta: weight of the newest direction in r, in (0, 1].
        inner_steps: N.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> madsbo = hb.MADSBO(alpha=0.01, beta=0.02, gamma=0.05, theta=0.2, inner_steps=3)
        >>> hb.solve(problem, hb.ring(4), madsbo, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = False

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()
    theta: Schedule = fraction()
    inner_steps: int = count(1)

    @classmethod
    def suggest(cls, scale: Scale) -> MADSBO:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, beta=0.1 / L, gamma=0.2 / L, theta=0.2, inner_steps=2)

    def init(self, agent: Agent) -> State:
        zero_x, zero_y = agent.zeros(agent.dim_x), agent.zeros(agent.dim_y)
        return State(x=agent.x0, y=agent.y0, z=zero_y, s=zero_y, d=zero_y, r=zero_x)

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, s, d, r = state
        alpha, beta, gamma, theta = agent.rates(self.alpha, self.beta, self.gamma, self.theta)

        def descend(agent: Agent, i: Any, y: jax.Array) -> jax.Array:
            return agent.mix(y) - gamma * agent.inner_gradient(x, y, agent.draw_inner("inner"))

        y = agent.repeat(self.inner_steps, descend, y)  # (1)

        def solve(agent: Agent, i: Any, tracked: Tracked) -> Tracked:
            s = residual(agent, x, y, tracked.w)
            return tracked_step(agent, tracked, s, beta)

        z, s, d = agent.repeat(self.inner_steps, solve, Tracked(z, s, d))  # (2)
        grad_x_f, _ = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        u = grad_x_f - agent.cross_product(x, y, agent.draw_inner("xi"), z)
        return State(
            x=agent.project(agent.mix(x) - alpha * r),  # (3)
            y=y,
            z=z,
            s=s,
            d=d,
            r=(1 - theta) * r + theta * u,  # (4)
        )


class Tracked(NamedTuple):
    """A variable, its latest direction and the tracked mean of all directions."""

    w: jax.Array
    s: jax.Array
    d: jax.Array


def residual(agent: Agent, x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    """H z - grad_y f, inside a loop."""
    _, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta_i"))
    return agent.hessian_product(x, y, agent.draw_inner("xi_i"), z) - grad_y_f


def tracked_step(agent: Agent, old: Tracked, s: jax.Array, size: jax.Array) -> Tracked:
    """d+ = W d + s+ - s, w+ = W w - size d+: one round of two vectors."""
    W = agent.mix({"w": old.w, "d": old.d})
    d = W["d"] + s - old.s
    return Tracked(W["w"] - size * d, s, d)
