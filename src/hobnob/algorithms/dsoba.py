"""D-SOBA: one loop, three vectors per round; z = H^-1 grad_y f is a third unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import choice, constant, fraction, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What an agent holds; r never leaves it."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    z: jax.Array  # estimate of H^-1 grad_y f
    r: jax.Array  # average of its own x-directions


class _Message(NamedTuple):
    """What an agent sends: its next x, y and z before they are mixed."""

    x: jax.Array
    y: jax.Array
    z: jax.Array


@dataclass(frozen=True, kw_only=True)
class DSOBA(Algorithm):
    r"""D-SOBA (Kong, Zhu, Lu, Huang and Yuan, "Decentralized Bilevel Optimization over Graphs:
    Loopless Algorithmic Update and Transient Iteration Complexity", 2024).

    In every iteration agent k draws zeta for f and xi for g, and uses both at its own (x, y, z).
    With W w = sum_j w_kj w_j:

        (1)  y+ = W (y - gamma grad_y g)
        (2)  z+ = W (z - beta (H z - grad_y f))
        (3)  r+ = (1 - theta) r + theta (grad_x f - J z)
        (4)  x+ = W (x - alpha r+)

    Start: x = x0, y = y0, z = r = 0. With products="first" no second derivatives are taken: for a
    small width d, H z is (grad_y g(x, y + d z) - grad_y g(x, y - d z)) / (2 d), and J z the same
    with grad_x g, all on the batch xi.

    Cost of an iteration, per agent: 2 batches; 2 gradients and 2 products, or 4 gradients; one
    round of d_x + 2 d_y numbers.

    When agents differ, constant step sizes leave a distance to the solution that shrinks with them.
    `SPARKLE` reaches the solution and sends no more.

    Departure: if the problem bounds x, (4) is followed by a projection.

    Args:
        alpha, beta, gamma: step sizes of x, z and y.
        theta: weight of the newest direction in r, in (0, 1].
        products: "second" for derivatives, "first" for differences of gradients.
        width: d. The error is of order d^2; far below 1e-3, float32 rounding outweighs it.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> dsoba = hb.DSOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2, products="first")
        >>> hb.solve(problem, hb.ring(4), dsoba, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = False

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()
    theta: Schedule = fraction()
    products: str = choice("second", "first")
    width: float = constant(1e-3)

    @classmethod
    def suggest(cls, scale: Scale) -> DSOBA:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, beta=0.2 / L, gamma=0.2 / L, theta=0.2)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0, agent.zeros(agent.dim_y), agent.zeros(agent.dim_x))

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, r = state
        alpha, beta, gamma, theta = agent.rates(self.alpha, self.beta, self.gamma, self.theta)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)
        grad_y_g, Jz, Hz = self._inner(agent, x, y, z, xi)

        r = (1 - theta) * r + theta * (grad_x_f - Jz)  # (3)
        W = agent.mix(
            _Message(
                x=x - alpha * r,  # (4)
                y=y - gamma * grad_y_g,  # (1)
                z=z - beta * (Hz - grad_y_f),  # (2)
            )
        )
        return State(agent.project(W.x), W.y, W.z, r)

    def _inner(
        self, agent: Agent, x: jax.Array, y: jax.Array, z: jax.Array, xi: Any
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """grad_y g, J z and H z."""
        if self.products == "second":
            grad_y_g, products = agent.inner_products(x, y, xi)
            return grad_y_g, *products(z)
        d = self.width
        above, below = (agent.inner_gradients(x, y + way * z, xi) for way in (d, -d))
        Jz, Hz = ((a - b) / (2 * d) for a, b in zip(above, below, strict=True))
        return agent.inner_gradient(x, y, xi), Jz, Hz
