"""SPARKLE: one loop, with a correction at each level that makes constant steps exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.algorithms._lazy import Mix, lazy
from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.fields import choice, fraction, momentum, positive
from hobnob.core.schedules import Schedule


class State(NamedTuple):
    """What an agent holds. Each level's member of the family keeps its own memory."""

    x: jax.Array  # outer solution
    y: jax.Array  # inner solution
    z: jax.Array  # estimate of H^-1 grad_y f
    r: jax.Array  # average of its own x-directions
    x_memory: jax.Array
    y_memory: jax.Array  # its last row is b_y, if there is momentum
    z_memory: jax.Array  # its last row is b_z, if there is momentum


@dataclass(frozen=True, kw_only=True)
class SPARKLE(Algorithm):
    r"""SPARKLE (Zhu, Kong, Lu, Huang and Yuan, "SPARKLE: A Unified Single-Loop Primal-Dual
    Framework for Decentralized Bilevel Optimization", NeurIPS 2024).

    In every iteration agent k draws zeta for f and xi for g. For w = y, z, x in that order,

        (1)  g_y = b_y+ = momentum b_y + grad_y g                       at (x, y)
        (2)  g_z = b_z+ = momentum b_z + H z - grad_y f                 at (x, y+)
        (3)  g_x = r+ = (1 - theta) r + theta (grad_x f - J z+)         at (x, y+)
        (4)  w+ = A (C w - step g_w) - D,   D+ = D + B w+

    with step = gamma, beta, alpha. With M = (I + W) / 2 the members of the family are

        "ed"           exact diffusion     A = M     C = I     B = I - M
        "extra"        EXTRA               A = I     C = M     B = I - M
        "gt"           gradient tracking   A = I     C = M^2   B = (I - M)^2
        "semi-atc-gt"  gradient tracking   A = M     C = M     B = (I - M)^2
        "atc-gt"       gradient tracking   A = M^2   C = I     B = (I - M)^2

    and the levels may use different ones. Start: x = x0, y = y0, z = r = D = b = 0.

    As written, (4) would take up to four exchanges. The functions below compute equivalent forms
    with fewer. They agree from the first iteration because all agents start at the same point.

    Cost of an iteration, per agent: 2 batches; 2 gradients and 2 products; a level sends one vector
    in one round with "ed" and "extra", two vectors in one round with "gt" and "semi-atc-gt", and
    two rounds of one vector with "atc-gt". So "ed" everywhere sends d_x + 2 d_y numbers, as D-SOBA
    does, but in three rounds: z needs y+ and x needs z+.

    Without noise, constant steps find the solution, however much agents differ. "ed" and "extra"
    accumulate the rounding errors of w itself, the others only those of step g_w. In float32, long
    runs drift with the first two; the tracking members come much nearer.

    Each level may have its own network: `network.with_levels(y=..., z=...)`.

    Departures: momentum, a heavy ball on y and z, is not in the source. It makes the inner problem
    faster where it is badly conditioned, and costs no message: b is the agent's own. If the problem
    bounds x, (4) is followed by a projection. Exact diffusion corrects its memory for it; otherwise
    it would take the projection's change for disagreement.

    Args:
        alpha, beta, gamma: step sizes of x, z and y.
        theta: weight of the newest direction in r, in (0, 1].
        momentum: of y and z, in [0, 1).
        x, y, z: the member of each level.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> sparkle = hb.SPARKLE(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2, y="extra", x="gt")
        >>> hb.solve(problem, hb.ring(4), sparkle, steps=100).status
        'finished'
    """

    exact: ClassVar[bool] = True
    levels: ClassVar[tuple[str, ...]] = ("x", "y", "z")

    alpha: Schedule = positive()
    beta: Schedule = positive()
    gamma: Schedule = positive()
    theta: Schedule = fraction()
    momentum: Schedule = momentum()
    x: str = choice("ed", "extra", "gt", "semi-atc-gt", "atc-gt")
    y: str = choice("ed", "extra", "gt", "semi-atc-gt", "atc-gt")
    z: str = choice("ed", "extra", "gt", "semi-atc-gt", "atc-gt")

    @classmethod
    def suggest(cls, scale: Scale) -> SPARKLE:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, beta=0.2 / L, gamma=0.2 / L, theta=0.2)

    def init(self, agent: Agent) -> State:
        x, y, z = agent.x0, agent.y0, agent.zeros(agent.dim_y)
        return State(
            x=x,
            y=y,
            z=z,
            r=agent.zeros(agent.dim_x),
            x_memory=_START[self.x](x),
            y_memory=self._with_ball(_START[self.y](y)),
            z_memory=self._with_ball(_START[self.z](z)),
        )

    def step(self, agent: Agent, state: State) -> State:
        x, y, z, r, x_memory, y_memory, z_memory = state
        move_x, move_y, move_z = _MOVE[self.x], _heavy(self.y), _heavy(self.z)
        M_x, M_y, M_z = (lazy(agent, level) for level in self.levels)
        alpha, beta, gamma, theta = agent.rates(self.alpha, self.beta, self.gamma, self.theta)
        (m,) = agent.rates(self.momentum)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")

        grad_y_g = agent.inner_gradient(x, y, xi)
        y, y_memory = move_y(M_y, y, y_memory, m, grad_y_g, gamma)  # (1), (4)
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)
        residual = agent.hessian_product(x, y, xi, z) - grad_y_f
        z, z_memory = move_z(M_z, z, z_memory, m, residual, beta)  # (2), (4)
        r = (1 - theta) * r + theta * (grad_x_f - agent.cross_product(x, y, xi, z))  # (3)
        free, x_memory = move_x(M_x, x, x_memory, alpha * r)  # (4)
        x = agent.project(free)
        if self.x == "ed":
            x_memory = x_memory + (x - free)
        return State(x, y, z, r, x_memory, y_memory, z_memory)

    def _with_ball(self, memory: jax.Array) -> jax.Array:
        """One more row, if there is momentum."""
        still = not callable(self.momentum) and self.momentum == 0
        return memory if still else jnp.concatenate([memory, jnp.zeros_like(memory[:1])])


# --- the members: (w, memory, e = step g_w) -> (w+, next memory) ----------------------------------

Move = Callable[[Mix, jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def _heavy(member: str) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """A member's move with a heavy ball, if its memory has a row for one."""
    move, rows = _MOVE[member], _ROWS[member]

    def moved(
        M: Mix, w: jax.Array, memory: jax.Array, m: jax.Array, g: jax.Array, size: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        own, ball = memory[:rows], memory[rows:]
        if not len(ball):
            return move(M, w, own, size * g)
        b = m * ball[0] + g
        w, own = move(M, w, own, size * b)
        return w, jnp.concatenate([own, b[None]])

    return moved


def _exact_diffusion(
    M: Mix, w: jax.Array, memory: jax.Array, e: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """w+ = M (w + psi+ - psi) with psi+ = w - e."""
    (psi,) = memory
    return M(w + (w - e) - psi), jnp.stack([w - e])


def _extra(M: Mix, w: jax.Array, memory: jax.Array, e: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(4) as written, except that D is updated one step late, from the M w that w+ needs."""
    (D,) = memory
    Mw = M(w)
    D = D + w - Mw
    return Mw - e - D, jnp.stack([D])


def _tracking(M: Mix, w: jax.Array, memory: jax.Array, e: jax.Array) -> tuple[jax.Array, jax.Array]:
    """h+ = M h + e - e_old, w+ = M w - h+. The memory holds M h, sent in one round with w."""
    Mh, e_old = memory
    h = Mh + e - e_old
    Mw, Mh = M((w, h))
    return Mw - h, jnp.stack([Mh, e])


def _semi_tracking(
    M: Mix, w: jax.Array, memory: jax.Array, e: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """h+ = M h + e - e_old, w+ = M (w - h+)."""
    Mh, e_old = memory
    h = Mh + e - e_old
    w, Mh = M((w - h, h))
    return w, jnp.stack([Mh, e])


def _atc_tracking(
    M: Mix, w: jax.Array, memory: jax.Array, e: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """h+ = M (h + e - e_old), w+ = M (w - h+)."""
    h, e_old = memory
    h = M(h + e - e_old)
    return M(w - h), jnp.stack([h, e])


_MOVE: dict[str, Move] = {
    "ed": _exact_diffusion,
    "extra": _extra,
    "gt": _tracking,
    "semi-atc-gt": _semi_tracking,
    "atc-gt": _atc_tracking,
}


_ROWS = {"ed": 1, "extra": 1, "gt": 2, "semi-atc-gt": 2, "atc-gt": 2}  # of a member's memory


def _zeros(count: int) -> Callable[[jax.Array], jax.Array]:
    return lambda w: jnp.zeros((count, *w.shape), w.dtype)


_START: dict[str, Callable[[jax.Array], jax.Array]] = {
    member: _zeros(rows) for member, rows in _ROWS.items()
} | {"ed": lambda w: w[None]}
