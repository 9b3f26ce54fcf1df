"""FedSBO: DSBO with a server that holds exact averages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.algorithms._series import stored_series
from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import choice, constant, count, fraction, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What the server holds; agents only ever see x and y."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    s: jax.Array  # estimate of grad_x f
    h: jax.Array  # estimate of grad_y f
    u: jax.Array  # estimate of J = grad_xy g, (d_x, d_y)
    v: jax.Array  # b estimates of H = grad_yy g, (b, d_y, d_y)


class Samples(NamedTuple):
    """What an agent sends to the server in an iteration."""

    grad_x_f: jax.Array
    grad_y_f: jax.Array
    grad_y_g: jax.Array
    J: jax.Array
    H: jax.Array


@dataclass(frozen=True, kw_only=True)
class FedSBO(Algorithm):
    r"""Algorithm 2 of "Decentralized Gossip-Based Stochastic Bilevel Optimization over
    Communication Networks" (Yang, Zhang and Wang, NeurIPS 2022), for a star network.

    The server passes (x, y) to all agents; agent k draws zeta for f, xi for grad_y g and J, and
    xi_1 .. xi_b for b Hessians, evaluates them at (x, y) and sends them back. With a bar for the
    mean over agents:

        (1)  x+   = x - alpha (s - u q h)
        (2)  y+   = y - gamma bar grad_y g(x, y; xi)
        (3)  s+   = (1 - beta) s + beta bar grad_x f(x, y; zeta)
        (4)  h+   = (1 - beta) h + beta bar grad_y f(x, y; zeta)
        (5)  u+   = (1 - beta) u + beta bar J(x, y; xi)
        (6)  v_i+ = (1 - beta) v_i + beta bar H(x, y; xi_i)             i = 1 .. b
        (7)  q    = (I + A_b (I + A_{b-1} (... (I + A_1)))) / L,        A_i = I - v_i / L

    Start: x = x0, y = y0, s = h = u = 0, v_i = mu I.

    The paper writes v^-1 in one line of its box and builds q in another. `inverse` chooses:
    "series" is q, "solve" is the inverse of the mean of v_1 .. v_b. All agents work at the same
    point, so there is no consensus error, and constant steps without noise end at the solution.

    Cost of an iteration, per agent: b + 2 batches; d_x + d_y numbers down, and d_x + 2 d_y +
    d_x d_y + b d_y^2 numbers up. The network's mixing weights are not used.

    If the problem bounds x, (1) is followed by a projection. The paper has no such step.

    Args:
        alpha, beta, gamma, terms, smoothness, strong_convexity: as in `DSBO`.
        inverse: "series" for q, or "solve".

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> fedsbo = hb.FedSBO.suggest(hb.Scale(smoothness=10.0, strong_convexity=1.0))
        >>> hb.solve(problem, hb.star(4), fedsbo, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = True
    server: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = fraction()
    gamma: Schedule = fraction()
    terms: int = count(1)
    smoothness: float = constant()
    strong_convexity: float = constant()
    inverse: str = choice("series", "solve")

    @classmethod
    def suggest(cls, scale: Scale) -> FedSBO:
        L, mu = scale
        return cls(
            alpha=0.1 * mu / L,
            beta=0.1,
            gamma=min(1.0, 0.5 / L),
            # Without noise, only the truncation, (1 - mu/L)^b, keeps it from the solution.
            terms=max(1, round(24 * L / mu)),
            smoothness=L,
            strong_convexity=mu,
        )

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

        x, y = agent.from_server((x, y))
        xi = agent.draw_inner("xi")
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        bar = agent.to_server(
            Samples(
                grad_x_f,
                grad_y_f,
                agent.inner_gradient(x, y, xi),
                agent.cross(x, y, xi),
                agent.hessians(x, y, agent.draw_inner("xi_i", self.terms)),
            )
        )
        return State(
            x=agent.project(x - alpha * (s - u @ self._inverse_times(h, v))),  # (1)
            y=y - gamma * bar.grad_y_g,  # (2)
            s=(1 - beta) * s + beta * bar.grad_x_f,  # (3)
            h=(1 - beta) * h + beta * bar.grad_y_f,  # (4)
            u=(1 - beta) * u + beta * bar.J,  # (5)
            v=(1 - beta) * v + beta * bar.H,  # (6)
        )

    def _inverse_times(self, h: jax.Array, v: jax.Array) -> jax.Array:
        if self.inverse == "solve":
            return jnp.linalg.solve(v.mean(axis=0), h)
        return stored_series(h, v, self.smoothness)  # (7)
