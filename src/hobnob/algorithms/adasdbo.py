"""AdaSDBO: one loop whose step sizes shrink with the squared directions met so far."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import constant, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What an agent holds, and what it sends before it is mixed."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    z: jax.Array  # estimate of H^-1 grad_y f
    S: jax.Array  # S_x, S_y and S_z: squared directions so far, over all agents


@dataclass(frozen=True, kw_only=True)
class AdaSDBO(Algorithm):
    r"""AdaSDBO (Zhai, Yan and Zhang, "Problem-Parameter-Free Decentralized Bilevel Optimization",
    NeurIPS 2025, arXiv 2510.24288), reconstructed: see below.

    In every iteration agent k draws zeta for f and xi for g, and uses both at its own (x, y, z).
    With W w = sum_j w_kj w_j:

        (1)  u_y = grad_y g,   u_z = H z - grad_y f,   u_x = grad_x f - J z
        (2)  S_w <- S_w + |u_w|^2                                             w = x, y, z
        (3)  y+ = W (y - gamma / sqrt(S_y) u_y)
        (4)  z+ = W (z - beta / sqrt(max(S_y, S_z)) u_z)
        (5)  x+ = W (x - alpha / (sqrt(S_x) sqrt(max(S_y, S_z))) u_x)
        (6)  S_w+ = W S_w                                                     w = x, y, z

    Start: x = x0, y = y0, z = 0, S_w = `initial`. By (6) the agents' step sizes agree up to a part
    that vanishes; agents with step sizes of their own would weight their losses differently.

    Cost of an iteration, per agent: 2 batches; 2 gradients and 2 products; one round of
    d_x + 2 d_y + 3 numbers.

    What to expect. If agents are identical and nothing is random, all u vanish at the solution, S
    stays bounded, and any constants lead there in the end. If agents differ or draws are noisy, the
    u of a single agent do not vanish. Then S grows like the step count t, so y and z move with
    steps of order t^-1/2 and x with steps of order t^-1: x closes its distance like a power of t
    whose exponent is proportional to alpha. With alpha = beta = gamma = 1 that power may be tiny.
    Larger constants let x move, and leave the error of `DSOBA` with steps of that size, which
    shrinks slowly as S grows. So the right constants do depend on the problem: `suggest` takes them
    from its curvature. `SPARKLE` reaches the solution and sends no more.

    Source: the paper's box was not at hand. Its abstract, public summaries and a public review tell
    of one loop, steps from accumulated gradient norms, a hierarchy among the three steps, tracking
    of step sizes over the network, six hyper-parameters and messages six times as large as a model.
    The formulas (2) to (6) are a reconstruction; the paper's may differ, in particular in what is
    sent. Here that is three vectors and three numbers, and the three S share one `initial`.

    Departure: if the problem bounds x, (5) is followed by a projection.

    Args:
        alpha, beta, gamma: numerators of the step sizes of x, z and y.
        initial: S at the start, the same at all levels. Step sizes begin to fall when about this
            much has been added to it.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> ones = hb.AdaSDBO(alpha=1.0, beta=1.0, gamma=1.0)
        >>> hb.solve(problem, hb.ring(4), ones, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = False

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()
    initial: float = constant(1.0)

    @classmethod
    def suggest(cls, scale: Scale) -> AdaSDBO:
        L, mu = scale
        # The first steps are D-SOBA's. A smaller S would make them fall before x has arrived.
        initial = 2000 * max(1.0, L) ** 2
        step = 0.2 / L * sqrt(initial)
        return cls(alpha=0.1 * mu / L * initial, beta=step, gamma=step, initial=initial)

    def init(self, agent: Agent) -> State:
        S = agent.zeros(3) + self.initial
        return State(agent.x0, agent.y0, agent.zeros(agent.dim_y), S)

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, S = state
        alpha, beta, gamma = agent.rates(self.alpha, self.beta, self.gamma)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)
        grad_y_g, products = agent.inner_products(x, y, xi)
        Jz, Hz = products(z)

        u_x, u_y, u_z = grad_x_f - Jz, grad_y_g, Hz - grad_y_f  # (1)
        S = S + jnp.stack([u @ u for u in (u_x, u_y, u_z)])  # (2)
        root_x, root_y, root_z = jnp.sqrt(S)
        slower = jnp.maximum(root_y, root_z)
        W = agent.mix(
            State(
                x=x - alpha / (root_x * slower) * u_x,  # (5)
                y=y - gamma / root_y * u_y,  # (3)
                z=z - beta / slower * u_z,  # (4)
                S=S,  # (6)
            )
        )
        return W._replace(x=agent.project(W.x))
