"""SimFBO: local steps on x, y and z together, between rounds with a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import constant, count, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What the server holds; agents start every round from these values."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    z: jax.Array  # estimate of H^-1 grad_y f


@dataclass(frozen=True, kw_only=True)
class SimFBO(Algorithm):
    r"""SimFBO (Yang, Xiao and Ji, "SimFBO: Towards Simple, Flexible and Communication-efficient
    Federated Bilevel Learning", NeurIPS 2023, arXiv 2305.19442), for agents with a server.

    In every iteration, with a bar for the mean over agents, through the server:

        (1)  agent k starts at (x_k, y_k, z_k) = (x, y, z), with h_x = h_y = h_z = 0
        (2)  tau times, with fresh zeta for f and xi for g, all at its own (x_k, y_k, z_k):
                 u_y = grad_y g,   u_z = H z_k - grad_y f,   u_x = grad_x f - J z_k
        (3)      w_k <- w_k - (its local step) a_j u_w                        w = x, y, z
        (4)      h_w <- h_w + a_j u_w                                         w = x, y, z
        (5)  x+ = x - alpha bar h_x,   y+ = y - gamma bar h_y,   z+ = z - beta bar h_z

    where a_j = decay^j weights local step j = 0 .. tau - 1. Start: x = x0, y = y0, z = 0. The
    source calls z v, and h an aggregate; its a_j may be any numbers.

    Cost of an iteration, per agent: 2 tau batches; 2 tau gradients and 2 tau products; one message
    of d_x + 2 d_y numbers down and one up, however large tau is.

    Where constant steps end. With tau = 1 the local steps have no effect, and (5) is `SOBA` with
    exact means: it finds the solution. With more local steps, every agent drifts towards its own
    solution within a round. If agents differ, that leaves an error in proportion to the *local*
    step sizes and to tau - 1. The server's step sizes change how fast it gets there, not where.
    `FedNest` corrects the drift, for more messages.

    Source: the paper's abstract was at hand, its box was not. The recursion is a reconstruction,
    and so is what is said of ShroFBO.

    Departures: all agents take part in every round and make the same number of steps. Then the
    source's variant ShroFBO, which divides each agent's h by its sum of weights so that those with
    many steps do not count for more, is the same method with alpha, beta and gamma divided by
    a_0 + .. + a_{tau-1}. ShroFBO does not correct the drift. The source also keeps z in a ball,
    after (5); here it is free. If the problem bounds x, (3) and (5) are followed by a projection.

    Args:
        alpha, beta, gamma: the server's step sizes of x, z and y. The sums h grow with tau, so the
            server's moves do as well.
        local_alpha, local_beta, local_gamma: the agents' step sizes of x, z and y.
        local_steps: tau.
        decay: a_{j+1} / a_j, the weight of a local step over that of the one before it.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> simfbo = hb.SimFBO.suggest(hb.Scale(smoothness=10.0, strong_convexity=1.0))
        >>> hb.solve(problem, hb.star(4), simfbo, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = False
    server: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()
    local_alpha: Schedule = positive()
    local_beta: Schedule = positive()
    local_gamma: Schedule = positive()
    local_steps: int = count(1)
    decay: float = constant(1.0)

    @classmethod
    def suggest(cls, scale: Scale) -> SimFBO:
        L, mu = scale
        outer, inner = 0.1 * mu / L, 0.2 / L
        return cls(
            alpha=outer,
            beta=inner,
            gamma=inner,
            local_alpha=outer,
            local_beta=inner,
            local_gamma=inner,
            local_steps=3,
        )

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0, agent.zeros(agent.dim_y))

    def step(self, agent: Agent, state: State) -> State:
        alpha, beta, gamma = agent.rates(self.alpha, self.beta, self.gamma)
        local_rates = agent.rates(self.local_alpha, self.local_beta, self.local_gamma)
        local_alpha, local_beta, local_gamma = local_rates
        x, y, z = agent.from_server(state)

        def local(agent: Agent, j: Any, carry: tuple[State, State]) -> tuple[State, State]:
            (x_k, y_k, z_k), h = carry
            zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
            grad_x_f, grad_y_f = agent.outer_gradients(x_k, y_k, zeta)
            grad_y_g, products = agent.inner_products(x_k, y_k, xi)
            Jz, Hz = products(z_k)
            a = self.decay**j
            u = State(a * (grad_x_f - Jz), a * grad_y_g, a * (Hz - grad_y_f))  # (2), weighted
            own = State(  # (3)
                x=agent.project(x_k - local_alpha * u.x),
                y=y_k - local_gamma * u.y,
                z=z_k - local_beta * u.z,
            )
            return own, State(h.x + u.x, h.y + u.y, h.z + u.z)  # (4)

        nothing = State(
            agent.zeros(agent.dim_x), agent.zeros(agent.dim_y), agent.zeros(agent.dim_y)
        )
        _, h = agent.repeat(self.local_steps, local, (State(x, y, z), nothing))  # (1)
        bar = agent.to_server(h)
        return State(  # (5)
            x=agent.project(x - alpha * bar.x),
            y=y - gamma * bar.y,
            z=z - beta * bar.z,
        )
