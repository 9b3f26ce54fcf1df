"""F2SA: gradients only; a penalty whose bias shrinks as its multiplier grows; one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import count, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    x: jax.Array
    y: jax.Array  # inner solution, pulled towards a small f
    z: jax.Array  # inner solution


@dataclass(frozen=True, kw_only=True)
class F2SA(Algorithm):
    r"""F2SA (Kwon, Kwon, Wright and Nowak, "A Fully First-Order Method for Stochastic Bilevel
    Optimization", ICML 2023).

    The constraint that y minimises g becomes a penalty, f(x, y) + (g(x, y) - min_z g(x, z)) / p;
    1/p is the source's multiplier lambda. In every iteration, with fresh batches throughout:

        (1)  N times   y <- y - gamma (grad_y g(x, y; xi_i) + p grad_y f(x, y; zeta_i))
                       z <- z - gamma grad_y g(x, z; xi_i)
        (2)  x+ = x - alpha (grad_x f(x, y; zeta) + (grad_x g(x, y; xi) - grad_x g(x, z; xi)) / p)

    Start: x = x0, y = z = y0; y and z keep their values between iterations.

    No second derivative is taken. The price is a bias proportional to p: to first order, y settles
    p H^-1 grad_y f away from the inner solution, and constant steps end where F's gradient is of
    order p. In the source lambda grows, so p shrinks: give it a schedule, such as
    `hb.schedules.power`.

    Departures: lambda is the user's schedule 1/p; the source increases it step by step. The step
    size of y is gamma / lambda, which also shrinks as lambda grows, and that of x is the user's
    own. The two gradients of g in a line share a batch; the source draws one for each. Their
    difference is divided by p, which would amplify the noise. If the problem bounds x, (2) is
    followed by a projection.

    Cost of an iteration: 2 N + 2 batches; 3 N + 3 gradients.

    Args:
        alpha: step size of x.
        gamma: step size of y and z.
        penalty: p.
        inner_steps: N.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=1)
        >>> p = hb.schedules.power(0.5, 1 / 4)
        >>> f2sa = hb.F2SA(alpha=0.01, gamma=0.05, penalty=p, inner_steps=5)
        >>> hb.solve(problem, hb.complete(1), f2sa, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = False  # the distance to the solution shrinks with p
    single_agent: ClassVar[bool] = True

    alpha: Schedule = positive()
    gamma: Schedule = positive()
    penalty: Schedule = positive()
    inner_steps: int = count(1)

    @classmethod
    def suggest(cls, scale: Scale) -> F2SA:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, gamma=0.2 / L, penalty=0.05 * mu, inner_steps=2)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0, agent.y0)

    def step(self, agent: Agent, state: State) -> State:
        x, y, z = state
        alpha, gamma, p = agent.rates(self.alpha, self.gamma, self.penalty)

        def descend(agent: Agent, i: Any, both: tuple[jax.Array, jax.Array]) -> Any:
            y, z = both
            xi = agent.draw_inner("xi_i")
            _, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta_i"))
            y = y - gamma * (agent.inner_gradient(x, y, xi) + p * grad_y_f)
            return y, z - gamma * agent.inner_gradient(x, z, xi)

        y, z = agent.repeat(self.inner_steps, descend, (y, z))  # (1)
        xi = agent.draw_inner("xi")
        grad_x_f, _ = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        (at_y, _), (at_z, _) = (agent.inner_gradients(x, w, xi) for w in (y, z))
        direction = grad_x_f + (at_y - at_z) / p
        return State(agent.project(x - alpha * direction), y, z)  # (2)
