"""F2SA: gradients only; a penalty whose bias shrinks as its multiplier grows; one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import choice, count, positive
from hobnob.core.schedules import Schedule

Three = tuple[jax.Array, jax.Array, jax.Array]


class State(NamedTuple):
    x: jax.Array
    y: jax.Array  # inner solution; if one-sided, pulled towards a small f
    z: jax.Array  # inner solution; if central, how far a and b are from y


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

    (2) is a forward difference in p of the x-gradient of min_y (g + p f). difference="central"
    takes the difference of p and -p, as F2SA-2 does (Chen, Li, Chayti and Zhang, "Faster Gradient
    Methods for Highly-smooth Stochastic Bilevel Optimization", ICLR 2026). With a for the y that
    minimises g + p f and b for the one that minimises g - p f:

        (1') N times   a <- a - gamma (grad_y g(x, a; xi_i) + p grad_y f(x, a; zeta_i))
                       b <- b - gamma (grad_y g(x, b; xi_i) - p grad_y f(x, b; zeta_i))
        (2') x+ = x - alpha (  (grad_x f(x, a; zeta) + grad_x f(x, b; zeta)) / 2
                             + (grad_x g(x, a; xi) - grad_x g(x, b; xi)) / 2p)

    The state holds y, the mean of a and b, whose distance from the inner solution is of order p^2,
    and z, half of their difference: a = y + z, b = y - z; z starts at 0. g - p f must be strongly
    convex in y, as it is if p times the largest curvature of f in y is below the smallest of g.

    No second derivative is taken. The price is a bias proportional to p: to first order, y settles
    p H^-1 grad_y f away from the inner solution, and constant steps end where F's gradient is of
    order p, or p^2 if central. In the source lambda grows, so p shrinks: give it a schedule, such
    as `hb.schedules.power`.

    Departures: lambda is the user's schedule 1/p; the source increases it step by step. The step
    size of y is gamma / lambda, which also shrinks as lambda grows, and that of x is the user's
    own. The two gradients of g in a line share a batch; the source draws one for each. Their
    difference is divided by p, which would amplify the noise. F2SA-2 has the same loop here, not
    that of its source. If the problem bounds x, (2) is followed by a projection.

    Cost of an iteration: 2 N + 2 batches; 3 N + 3 gradients, or 4 N + 4 if central.

    Args:
        alpha: step size of x.
        gamma: step size of y and z.
        penalty: p.
        inner_steps: N.
        difference: "one-sided", or "central" for a bias of order p^2.

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
    difference: str = choice("one-sided", "central")

    @classmethod
    def suggest(cls, scale: Scale) -> F2SA:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, gamma=0.2 / L, penalty=0.05 * mu, inner_steps=2)

    def init(self, agent: Agent) -> State:
        z = agent.zeros(agent.dim_y) if self.difference == "central" else agent.y0
        return State(agent.x0, agent.y0, z)

    def step(self, agent: Agent, state: State) -> State:
        (alpha,) = agent.rates(self.alpha)
        central = self.difference == "central"
        y, z, direction = (self._central if central else self._one_sided)(agent, *state)
        return State(agent.project(state.x - alpha * direction), y, z)

    def _one_sided(self, agent: Agent, x: jax.Array, y: jax.Array, z: jax.Array) -> Three:
        gamma, p = agent.rates(self.gamma, self.penalty)

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
        return y, z, grad_x_f + (at_y - at_z) / p  # (2)

    def _central(self, agent: Agent, x: jax.Array, y: jax.Array, z: jax.Array) -> Three:
        gamma, p = agent.rates(self.gamma, self.penalty)

        def descend(agent: Agent, i: Any, both: tuple[jax.Array, jax.Array]) -> Any:
            zeta, xi = agent.draw_outer("zeta_i"), agent.draw_inner("xi_i")

            def moved(y: jax.Array, p: jax.Array) -> jax.Array:
                _, grad_y_f = agent.outer_gradients(x, y, zeta)
                return y - gamma * (agent.inner_gradient(x, y, xi) + p * grad_y_f)

            a, b = both
            return moved(a, p), moved(b, -p)

        a, b = agent.repeat(self.inner_steps, descend, (y + z, y - z))  # (1')
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        (f_x_a, _), (f_x_b, _) = (agent.outer_gradients(x, at, zeta) for at in (a, b))
        (g_x_a, _), (g_x_b, _) = (agent.inner_gradients(x, at, xi) for at in (a, b))
        return (a + b) / 2, (a - b) / 2, (f_x_a + f_x_b) / 2 + (g_x_a - g_x_b) / (2 * p)  # (2')
