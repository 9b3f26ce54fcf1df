"""EdgeSPARKLE: SPARKLE's exact diffusion with a correction on every link, which may come and go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import choice, count, fraction, momentum, positive
from hobnob.core.schedules import Schedule
from hobnob.ground.errors import SettingError


class State(NamedTuple):
    """What an agent holds."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    z: jax.Array  # estimate of H^-1 grad_y f
    r: jax.Array  # average of its own x-directions
    b_y: jax.Array  # heavy balls
    b_z: jax.Array
    x_flows: jax.Array  # what flowed over each link, one row a neighbour
    y_flows: jax.Array
    z_flows: jax.Array


@dataclass(frozen=True, kw_only=True)
class EdgeSPARKLE(Algorithm):
    r"""SPARKLE's exact diffusion (Zhu, Kong, Lu, Huang and Yuan, "SPARKLE: A Unified Single-Loop
    Primal-Dual Framework for Decentralized Bilevel Optimization", NeurIPS 2024), in a form that
    survives the loss and the return of agents.

    In every iteration agent k draws zeta for f and xi for g. For u = y, z, x, all at (x, y, z),

        (1)  g_y = b_y+ = momentum b_y + grad_y g
        (2)  g_z = b_z+ = momentum b_z + H z - grad_y f
        (3)  g_x = r+ = (1 - theta) r + theta (grad_x f - J z)
        (4)  v = u - step g_u - D,   where D = sum_j m_j / 2
        (5)  u+ = (v + W v) / 2,   m_j+ = m_j + w_kj (v_k - v_j) for each neighbour j

    with step = gamma, beta, alpha. m_j is what flowed over the link to j. Start: x = x0, y = y0,
    z = r = b = m = 0. If the problem bounds x, (5) is followed by a projection, which leaves m
    alone: m holds disagreement, and the effect of a bound is none.

    The corrections D of all agents add up to 0, or the method ends at a wrong point. In SPARKLE
    that is up to the whole network, and an agent that dies in the middle of a round breaks it for
    good. Here it is up to each link: its two ends hold m and -m. If a link is down, nothing flows
    and both ends keep what they have; if they drop or repair it, no other link is concerned.

    `rounds` says where the directions are taken. With "one" it is the old point, as above, and y, z
    and x travel in one message. With "three" it is SPARKLE's order: (2) at (x, y+), (3) at (x, y+,
    z+), with a message after each. Then the iterates are those of SPARKLE with "ed". On eight
    quadratics whose agents differ, on rings and with suggested steps, "one" took 0 to 29 % more
    iterations to come within 1e-9 of the solution, and so a third to 43 % of the rounds. It needs
    shorter steps: on one of them (8 agents, condition 4) "one" and "three" took 1,330 and 1,230
    iterations, with four times the suggested steps 700 and 500, and then on a star 3,100 and 650.

    With `local_steps` = tau, an agent takes tau - 1 steps u <- v by itself before each iteration,
    with new batches, and D / tau takes the place of D in all tau. The solution stays exact. With
    D = -tau step g_u each local step stands still there, and these D add up to 0. Where local steps
    contract there is no other place to rest: if tau of them lead back to where they began, one
    does. Rounds are saved as long as tau steps together are not too long. Rounds until all agents
    are within 1e-9, on the quadratic with condition 4:

        local steps                  1       4      16
        suggested step sizes     1,330     340     650
        a quarter of them        4,980   1,250     320
        a sixteenth             20,000   5,000   1,250

    With noise, the mean over agents is as good as without local steps after as many samples. Single
    agents are farther from it: with the suggested steps (noise 0.5, batches of 1) the mean was 0.20
    from the solution for 1, 4 and 16 local steps, and the farthest agent 0.24, 0.35 and 0.53.

    Cost of a local step, per agent: 2 batches, 2 gradients and 2 products. Cost of an iteration:
    d_x + 2 d_y numbers to each neighbour, in one round or in three. An agent remembers as many
    numbers for every link of the agent that has most.

    In float32, rounding errors do not add up either, as they do in SPARKLE with "ed": links cancel
    exactly.

    Each level may have its own network if there are three rounds: `network.with_levels(y=...)`.

    Departures: corrections by link, one round, local steps and momentum, a heavy ball on y and z,
    are not in the source. (4) and (5) are equal to its exact diffusion as long as no link fails.

    Args:
        alpha, beta, gamma: step sizes of x, z and y.
        theta: weight of the newest direction in r, in (0, 1].
        momentum: of y and z, in [0, 1).
        rounds: "one" or "three" messages an iteration.
        local_steps: steps of an agent's own for each exchange.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> edge = hb.EdgeSPARKLE(alpha=0.01, beta=0.02, gamma=0.02, theta=0.2, local_steps=4)
        >>> hb.solve(problem, hb.ring(4), edge, steps=100, links=hb.Silent(3, 20, 60)).status
        'finished'
    """

    exact: ClassVar[bool] = True
    levels: ClassVar[tuple[str, ...]] = ("x", "y", "z")
    flows: ClassVar[tuple[str, ...]] = ("x_flows", "y_flows", "z_flows")

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()
    theta: Schedule = fraction()
    momentum: Schedule = momentum()
    rounds: str = choice("one", "three")
    local_steps: int = count(1, default=1)

    @classmethod
    def suggest(cls, scale: Scale) -> EdgeSPARKLE:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, beta=0.2 / L, gamma=0.2 / L, theta=0.2)

    def check_fits(self, problem: Any, network: Any, links: Any = None) -> None:
        super().check_fits(problem, network, links)
        if network.levels and self.rounds == "one":
            raise SettingError(
                f"The network has links of their own for level {next(iter(network.levels))}, and "
                f'with rounds = "one" all levels travel in one message. Use rounds = "three", or '
                f"leave out with_levels."
            )

    def init(self, agent: Agent) -> State:
        return State(
            x=agent.x0,
            y=agent.y0,
            z=agent.zeros(agent.dim_y),
            r=agent.zeros(agent.dim_x),
            b_y=agent.zeros(agent.dim_y),
            b_z=agent.zeros(agent.dim_y),
            x_flows=agent.zeros(agent.links("x"), agent.dim_x),
            y_flows=agent.zeros(agent.links("y"), agent.dim_y),
            z_flows=agent.zeros(agent.links("z"), agent.dim_y),
        )

    def step(self, agent: Agent, state: State) -> State:
        def alone(agent: Agent, i: Any, state: State) -> State:
            return self._turn(agent, state, _stay)

        if self.local_steps > 1:
            state = agent.repeat(self.local_steps - 1, alone, state)
        return self._turn(agent, state, partial(_meet, agent))

    def _turn(self, agent: Agent, state: State, settle: Settle) -> State:
        """(1) to (5), where `settle` makes u+ of v."""
        x, y, z, r, b_y, b_z, x_flows, y_flows, z_flows = state
        alpha, beta, gamma, theta = agent.rates(self.alpha, self.beta, self.gamma, self.theta)
        (m,) = agent.rates(self.momentum)
        tau, three = self.local_steps, self.rounds == "three"
        D_x, D_y, D_z = (flows.sum(axis=0) / 2 for flows in (x_flows, y_flows, z_flows))
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")

        b_y = m * b_y + agent.inner_gradient(x, y, xi)  # (1)
        v_y = y - gamma * b_y - D_y / tau  # (4)
        if three:
            y, y_flows = settle(v_y, y_flows, "y")  # (5)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)
        b_z = m * b_z + agent.hessian_product(x, y, xi, z) - grad_y_f  # (2)
        v_z = z - beta * b_z - D_z / tau  # (4)
        if three:
            z, z_flows = settle(v_z, z_flows, "z")  # (5)
        r = (1 - theta) * r + theta * (grad_x_f - agent.cross_product(x, y, xi, z))  # (3)
        v_x = x - alpha * r - D_x / tau  # (4)
        if three:
            x, x_flows = settle(v_x, x_flows, "x")  # (5)
        else:
            v = {"x": v_x, "y": v_y, "z": v_z}
            flows = {"x": x_flows, "y": y_flows, "z": z_flows}
            u, flows = settle(v, flows, None)  # (5)
            x, y, z = u["x"], u["y"], u["z"]
            x_flows, y_flows, z_flows = flows["x"], flows["y"], flows["z"]
        return State(agent.project(x), y, z, r, b_y, b_z, x_flows, y_flows, z_flows)


# (v, what flowed so far, level) -> (u+, what has flowed then)
Settle = Callable[[Any, Any, str | None], tuple[Any, Any]]


def _meet(agent: Agent, v: Any, flows: Any, level: str | None) -> tuple[Any, Any]:
    """(5)"""
    Wv, flows = agent.flow(v, flows, level)
    return jax.tree.map(lambda v, Wv: (v + Wv) / 2, v, Wv), flows


def _stay(v: Any, flows: Any, level: str | None) -> tuple[Any, Any]:
    """u+ = v, and nothing flows."""
    return v, flows
