"""FedNest: local steps between rounds with a server, at both levels."""

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

    x: jax.Array
    y: jax.Array


@dataclass(frozen=True, kw_only=True)
class FedNest(Algorithm):
    r"""FedNest (Tarzanagh, Li, Thrampoulidis and Oymak, "FedNest: Federated Bilevel, Minimax, and
    Compositional Optimization", ICML 2022), for agents with a server.

    With a bar for the mean over agents, through the server, and fresh batches throughout:

        (1)  N times: from y_k = y, agent k takes tau local steps, averaged into y afterwards,
                 y_k <- y_k - beta (grad_y g_k(y_k) - grad_y g_k(y) + bar grad_y g(y))
        (2)  p = bar grad_y f, then M times p <- p - bar(H p) / L; z = (1/L) sum of all these p
        (3)  r = bar(grad_x f - J z)
        (4)  from x_k = x, agent k takes tau local steps, averaged into x afterwards,
                 x_k <- x_k - (alpha / tau) (grad_x f_k(x_k) - grad_x f_k(x) + r)

    f and g are taken at (x, y) unless stated; both gradients of a difference use the same batch.
    Start: x = x0, y = y0; y keeps its value between iterations.

    Departure: every term of (2) uses a fresh Hessian batch, and all terms are used; the source may
    stop at a random one.

    Cost of an iteration, per agent: N (tau + 1) + M + tau + 2 batches; only vectors are sent,
    2 N + M + 3 up and equally many down.

    Args:
        alpha, beta: step sizes of x and of y.
        inner_rounds: N.
        local_steps: tau.
        terms: M.
        smoothness: L, an upper bound on the eigenvalues of H.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> fednest = hb.FedNest.suggest(hb.Scale(smoothness=10.0, strong_convexity=1.0))
        >>> hb.solve(problem, hb.star(4), fednest, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = True
    server: ClassVar[bool] = True

    alpha: Schedule = positive()
    beta: Schedule = positive()
    inner_rounds: int = count(1)
    local_steps: int = count(1)
    terms: int = count(1)
    smoothness: float = constant()

    @classmethod
    def suggest(cls, scale: Scale) -> FedNest:
        L, mu = scale
        return cls(
            alpha=0.1 * mu / L,
            beta=0.3 / L,
            inner_rounds=3,
            local_steps=2,
            terms=max(1, round(24 * L / mu)),
            smoothness=L,
        )

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: Agent, state: State) -> State:
        x, y = state
        alpha, beta = agent.rates(self.alpha, self.beta)
        x, y = agent.from_server((x, y))

        def inner_round(agent: Agent, i: Any, y: jax.Array) -> jax.Array:
            bar = _mean(agent, agent.inner_gradient(x, y, agent.draw_inner("whole")))

            def local(agent: Agent, j: Any, y_k: jax.Array) -> jax.Array:
                xi = agent.draw_inner("local")
                change = agent.inner_gradient(x, y_k, xi) - agent.inner_gradient(x, y, xi)
                return y_k - beta * (change + bar)

            return _mean(agent, agent.repeat(self.local_steps, local, y))

        y = agent.repeat(self.inner_rounds, inner_round, y)  # (1)

        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        p = _mean(agent, grad_y_f)

        def add_term(agent: Agent, i: Any, carry: Any) -> Any:
            p, total = carry
            product = agent.hessian_product(x, y, agent.draw_inner("xi_i"), p)
            p = p - _mean(agent, product) / self.smoothness
            return p, total + p

        _, z = agent.repeat(self.terms, add_term, (p, p))  # (2)
        z = z / self.smoothness
        r = _mean(agent, grad_x_f - agent.cross_product(x, y, agent.draw_inner("xi"), z))  # (3)

        def outer_step(agent: Agent, j: Any, x_k: jax.Array) -> jax.Array:
            zeta = agent.draw_outer("local")
            here, _ = agent.outer_gradients(x_k, y, zeta)
            there, _ = agent.outer_gradients(x, y, zeta)
            return x_k - alpha / self.local_steps * (here - there + r)

        x = agent.to_server(agent.repeat(self.local_steps, outer_step, x))  # (4)
        return State(agent.project(x), y)


def _mean(agent: Agent, vector: jax.Array) -> jax.Array:
    """The mean over agents, sent back to all of them."""
    return agent.from_server(agent.to_server(vector))
