"""DBSA: the paper's double-loop baseline, with local hypergradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.algorithms._series import whole_series
from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import constant, count, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    x: jax.Array
    y: jax.Array


@dataclass(frozen=True, kw_only=True)
class DBSA(Algorithm):
    r"""Decentralised bilevel stochastic approximation, from the appendix of "Decentralized
    Gossip-Based Stochastic Bilevel Optimization over Communication Networks" (Yang, Zhang and
    Wang, NeurIPS 2022): BSA with gossip.

    In iteration t = 1, 2, ... , with W z = sum_j w_kj z_j and fresh batches throughout:

        (1)  t times   y <- W y - eta_i grad_y g(x, y; xi_i)            i = 0 .. t - 1
        (2)  x+ = W x - alpha (grad_x f - J(xi) q_k grad_y f)           f at (x, y; zeta)
        (3)  q_k = (1/L) sum_{j=0..b} prod_{i<=j} (I - H(xi_i)/L)       agent k's own Hessians

    Start: x = x0, y = y0; y keeps its value between iterations.

    Departures. The paper prints (2) with grad_x f alone. In its own experiment that is zero, so x
    would never move; its text describes the local hypergradient, which is used here. It is biased
    when agents differ, since the mean of J_k H_k^-1 is not the J H^-1 of the means: DBSA settles on
    a wrong point. The paper's box takes t + 1 inner steps, its text t. It does not say where the
    inner loop starts.

    Cost of iteration t, per agent: t + b + 2 batches; t + 1 rounds of d_y or d_x numbers. So T
    iterations cost about T^2 / 2 batches and rounds.

    Args:
        alpha: step size of x.
        eta: step size of y, a number or a callable of the inner iteration i.
        terms: b, the number of factors in the series for the inverse Hessian.
        smoothness: L, an upper bound on the eigenvalues of H.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> dbsa = hb.DBSA(alpha=0.01, eta=0.05, terms=20, smoothness=10.0)
        >>> hb.solve(problem, hb.ring(4), dbsa, steps=20).status
        'finished'
    """

    exact: ClassVar[bool] = False
    biased: ClassVar[bool] = True

    alpha: Schedule = positive()
    eta: Schedule = positive()
    terms: int = count()
    smoothness: float = constant()

    @classmethod
    def suggest(cls, scale: Scale) -> DBSA:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, eta=0.5 / L, terms=max(1, round(4 * L / mu)), smoothness=L)

    def init(self, agent: Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: Agent, state: State) -> State:
        x, y = state
        (alpha,) = agent.rates(self.alpha)

        def descend(agent: Agent, i: Any, y: jax.Array) -> jax.Array:
            (eta,) = agent.rates(self.eta, at=i)
            return agent.mix(y) - eta * agent.inner_gradient(x, y, agent.draw_inner("inner"))

        y = agent.repeat(_inner_steps, descend, y)  # (1)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, agent.draw_outer("zeta"))
        z = whole_series(agent, x, y, grad_y_f, self.terms, self.smoothness)  # (3)
        local = grad_x_f - agent.cross_product(x, y, agent.draw_inner("xi"), z)
        return State(agent.project(agent.mix(x) - alpha * local), y)  # (2)


def _inner_steps(step: Any) -> Any:
    """t inner steps in iteration t = step + 1."""
    return step + 1
