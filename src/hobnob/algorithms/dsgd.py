"""DSGD: the paper's double-loop baseline for compositional problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import fraction, positive
from hobnob.core.schedules import InverseRule, Schedule


class State(NamedTuple):
    x: jax.Array
    y: jax.Array


@dataclass(frozen=True, kw_only=True)
class DSGD(Algorithm):
    r"""Decentralised stochastic gradient descent, from the appendix of "Decentralized Gossip-Based
    Stochastic Bilevel Optimization over Communication Networks" (Yang, Zhang and Wang, NeurIPS
    2022), for f(h(x)) with h(x) = E h(x; xi).

    In iteration t = 1, 2, ... , with W z = sum_j w_kj z_j and fresh batches throughout:

        (1)  y = 0, then t times   y <- (1 - eta_i) W y + eta_i h(x; xi_i)      i = 0 .. t - 1
        (2)  x+ = W x - alpha (grad_x f + grad h(x; xi)' grad_y f)              f at (x, y; zeta)

    grad_x f is there for regularisers of x. With eta_i = 1 / (i + 1) on one agent, y is the mean of
    t samples of h.

    (2) uses agent k's own grad h_k instead of the mean's. Unless these Jacobians agree, DSGD
    settles on a wrong point. They do agree in the paper's policy evaluation, where agents differ
    only in their rewards.

    Cost of iteration t, per agent: t + 2 batches; t + 1 rounds of d_y or d_x numbers. So T
    iterations cost about T^2 / 2 batches and rounds.

    Args:
        alpha: step size of x.
        eta: weight of the newest sample in y, a number or a callable of the inner iteration i.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("policy")(agents=4, states=10)
        >>> dsgd = hb.DSGD(alpha=0.01, eta=hb.schedules.InverseRule(1.0))
        >>> hb.solve(problem, hb.ring(4), dsgd, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = False
    biased: ClassVar[bool] = True
    compositional: ClassVar[bool] = True

    alpha: Schedule = positive()
    eta: Schedule = fraction()

    @classmethod
    def suggest(cls, scale: Scale) -> DSGD:
        return cls(alpha=0.05, eta=InverseRule(1.0))

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: Agent, state: State) -> State:
        x, _ = state
        (alpha,) = agent.rates(self.alpha)

        def average(agent: Agent, i: Any, y: jax.Array) -> jax.Array:
            value, _ = agent.mapping(x, agent.draw_inner("inner"))
            (eta,) = agent.rates(self.eta, at=i)
            return (1 - eta) * agent.mix(y) + eta * value

        y = agent.repeat(_inner_steps, average, agent.zeros(agent.dim_y))  # (1)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        _, transposed = agent.mapping(x, agent.draw_inner("xi"))
        x = agent.project(agent.mix(x) - alpha * (grad_x_f + transposed(grad_y_f)))  # (2)
        return State(x, y)


def _inner_steps(step: Any) -> Any:
    """t inner steps in iteration t = step + 1."""
    return step + 1
