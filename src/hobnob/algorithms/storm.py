"""Decentralised STORM: variance-reduced, tracked directions for all three unknowns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import choice, fraction, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What an agent holds. The last three join the parts for x, y and z, in this order."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    z: jax.Array  # estimate of H^-1 grad_y f
    before: jax.Array  # (x, y, z) one iteration ago
    v: jax.Array  # its own directions, as STORM estimates them
    u: jax.Array  # its estimate of the mean of all v


@dataclass(frozen=True, kw_only=True)
class STORM(Algorithm):
    r"""STORM (Cutkosky and Orabona, "Momentum-Based Variance Reduction in Non-Convex SGD", 2019)
    with gradient tracking, on the three directions of a bilevel problem.

    VRDBO (Gao, Gu and Thai, "On the Convergence of Distributed Stochastic Bilevel Optimization
    Algorithms over a Network") applies it to local hypergradients and inherits their bias: see
    `MDBO`. The directions below have none. See also Zhang, Thai, Wu and Gao, "On the Communication
    Complexity of Decentralized Bilevel Optimization", for variance reduction where agents differ.

    In every iteration agent k draws zeta for f and xi for g. With w = (x, y, z) and

        (1)  G(w) = (grad_x f - J z, grad_y g, H z - grad_y f)          on zeta and xi
        (2)  v+ = G(w) + (1 - theta) (v - G(w_before))                  the same batches in both
        (3)  u+ = W u + v+ - v
        (4)  w+ = W w - (alpha, gamma, beta) u+

    Start: x = x0, y = y0, z = 0, v = u = 0. In the first iteration theta is 1, so v+ = G(w).

    directions="normalised" is for noise with heavy tails, even without a variance. Every step gets
    a fixed length, so that no draw throws an agent far. After Zhang, Zhang, Liang and Gao,
    "Nonconvex Decentralized Stochastic Bilevel Optimization under Heavy-Tailed Noise" (arXiv
    2509.15543):

        (4') w+ = W w - (alpha u_x+ / |u_x+|, gamma u_y+ / |u_y+|, beta u_z+ / |u_z+|)

    Then step sizes are lengths: `suggest` can't know them, constant ones stop at a distance that
    shrinks with them, and close to the solution agents differ by about a step.

    Departures: the step sizes are the user's; STORM adapts them to the gradients seen. (4') was
    built from the abstract of its source, on the directions (1). If the problem bounds x, (4) is
    followed by a projection.

    Cost of an iteration, per agent: 2 batches, each used twice; 4 gradients and 4 products; one
    round of 2 d_x + 4 d_y numbers.

    Without noise, constant plain steps find the solution, however much agents differ. If W has
    negative eigenvalues, the steps must be smaller; `weights="lazy"` has none.

    Args:
        alpha, beta, gamma: step sizes of x, z and y.
        theta: how much of the past is forgotten, in (0, 1]; 1 is gradient tracking.
        directions: "plain", or "normalised" for steps of fixed lengths.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> storm = hb.STORM(alpha=0.005, beta=0.02, gamma=0.02, theta=0.1)
        >>> hb.solve(problem, hb.ring(4), storm, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = True  # with plain directions

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()
    theta: Schedule = fraction()
    directions: str = choice("plain", "normalised")

    @classmethod
    def suggest(cls, scale: Scale) -> STORM:
        L, mu = scale
        return cls(alpha=0.05 * mu / L, beta=0.1 / L, gamma=0.1 / L, theta=0.1)

    def init(self, agent: Agent) -> State:
        z = agent.zeros(agent.dim_y)
        start = jnp.concatenate([agent.x0, agent.y0, z])
        zero = jnp.zeros_like(start)
        return State(agent.x0, agent.y0, z, start, zero, zero)

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, before, v, u = state
        alpha, beta, gamma, theta = agent.rates(self.alpha, self.beta, self.gamma, self.theta)
        theta = jnp.where(agent.step == 0, 1, theta)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        parts = [agent.dim_x, agent.dim_x + agent.dim_y]

        def G(w: jax.Array) -> jax.Array:
            x, y, z = jnp.split(w, parts)
            grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)
            grad_y_g, products = agent.inner_products(x, y, xi)
            Jz, Hz = products(z)
            return jnp.concatenate([grad_x_f - Jz, grad_y_g, Hz - grad_y_f])  # (1)

        w = jnp.concatenate([x, y, z])
        v_new = G(w) + (1 - theta) * (v - G(before))  # (2)
        W = agent.mix({"w": w, "u": u})
        u = W["u"] + v_new - v  # (3)
        directions = jnp.split(u, parts)
        if self.directions == "normalised":
            directions = map(_of_length_1, directions)
        (x, y, z), (u_x, u_y, u_z) = jnp.split(W["w"], parts), directions
        x, y, z = x - alpha * u_x, y - gamma * u_y, z - beta * u_z  # (4)
        return State(agent.project(x), y, z, before=w, v=v_new, u=u)


def _of_length_1(u: jax.Array) -> jax.Array:
    """u / |u|, and 0 for 0. Scaled first, or the squares of large entries would overflow."""
    largest = jnp.abs(u).max()
    scaled = u / jnp.where(largest > 0, largest, 1)
    return scaled / jnp.where(largest > 0, jnp.linalg.norm(scaled), 1)
