"""DSBO for all agents at once: the same numbers as `DSBO.step`, to rounding, in less time.

Nearly all of DSBO's time goes into v, b Hessians an agent: (7) reads them, and (6) mixes and
rewrites them in every iteration. A fast step holds v in a form of its own. The rest of the
iteration, (1) to (5), is small and is lifted from one agent as everywhere else.
"""

from __future__ import annotations

from typing import Any

import jax

from hobnob.algorithms.dsbo import DSBO, State
from hobnob.core.agent import Agent
from hobnob.fast.step import FastStep


class FastDSBO(FastStep):
    """What the fast steps of DSBO share."""

    _algorithm: DSBO

    def _all_but_v(
        self, agent: Agent, state: State, qh: jax.Array, unit: Any = None
    ) -> tuple[State, jax.Array, Any, Any]:
        """(1) to (5), and what (6) needs: beta, `unit` mixed, and the batches of the Hessians."""
        a = self._algorithm
        x, y, s, _, u, _ = state
        alpha, beta, gamma = agent.rates(a.alpha, a.beta, a.gamma)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        xis = agent.draw_inner("xi_i", a.terms)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)

        W, row = agent.mix((state, unit))
        new = State(
            x=agent.project(W.x - alpha * (s - u @ qh)),  # (1)
            y=W.y - gamma * agent.inner_gradient(x, y, xi),  # (2)
            s=(1 - beta) * W.s + beta * grad_x_f,  # (3)
            h=(1 - beta) * W.h + beta * grad_y_f,  # (4)
            u=(1 - beta) * W.u + beta * agent.cross(x, y, xi),  # (5)
            v=state.v,  # not here
        )
        return new, beta, row, xis
