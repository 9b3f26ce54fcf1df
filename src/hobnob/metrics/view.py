"""View: the network's state as a metric sees it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from hobnob.analysis.exact import Exact
from hobnob.analysis.pooled import solve_problem
from hobnob.core.problem import Problem
from hobnob.ground.errors import SettingError


class View:
    """The whole network at one moment. A metric is a function of it.

    Attributes:
        variables: what agents hold, by the name it has in the algorithm, with a leading axis of
            agents: `view.variables["x"][3]` is agent 3's x, a flat vector.
        x, y: the network's mean, shaped like the problem's x0 and y0. If the problem is personal,
            y is not averaged: its leaves have a leading axis of agents.
        flat_x, flat_y: the same as flat vectors.
        problem: the problem.

    Args:
        problem: the problem.
        places: the data of all agents, or None if several ranks hold it.
        state: the algorithm's state, with a leading axis of agents.
        disagreements: those already computed, by name.
        flat: the inner problem may have many solutions.

    Example:
        >>> import hobnob as hb
        >>> import jax.numpy as jnp
        >>> def worst_agent(view):
        ...     return jnp.linalg.norm(view.variables["x"] - view.flat_x, axis=1).max()
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> dsoba = hb.DSOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2)
        >>> result = hb.solve(problem, hb.ring(4), dsoba, steps=20, metrics={"worst": worst_agent})
        >>> result.history["worst"].shape
        (21,)
    """

    def __init__(
        self,
        problem: Problem,
        places: Any,
        state: Any,
        disagreements: Mapping[str, jax.Array] | None = None,
        flat: bool = False,
    ):
        self.problem = problem
        self.variables: dict[str, Any] = state._asdict()
        self._places, self._disagreements = places, disagreements or {}
        self._flat = flat

    @property
    def x(self) -> Any:
        return self.problem.x_layout.unravel(self.flat_x)

    @property
    def y(self) -> Any:
        return self.problem.y_layout.unravel(self.flat_y)

    @property
    def flat_x(self) -> Any:
        return self.variables["x"].mean(axis=0)

    @property
    def flat_y(self) -> Any:
        y = self.variables["y"]
        return y if self.problem.personal else y.mean(axis=0)

    def disagreement(self, name: str) -> Any:
        """mean_k |w_k - mean w|^2 of a variable."""
        if name in self._disagreements:
            return self._disagreements[name]
        stack = self.variables[name]
        deviations = (stack - stack.mean(axis=0)).ravel()
        return deviations @ deviations / stack.shape[0]  # many times faster than a sum of squares

    def outer_loss(self, x: jax.Array, y: jax.Array) -> jax.Array:
        """mean_k f_k over all data, for flat x and y; of a personal problem y is [agents, d_y]."""
        return self.problem.pooled_outer(x, y, self._all_data()[0])

    def inner_loss(self, x: jax.Array, y: jax.Array) -> jax.Array:
        """mean_k g_k over all data, for flat x and y; of a personal problem y is [agents, d_y]."""
        return self.problem.pooled_inner(x, y, self._all_data()[1])

    def _all_data(self) -> Any:
        if self._places is None:
            raise SettingError(
                "A metric asks for a loss over all data, which lies with several ranks. Use "
                "outer_loss and inner_loss, or metrics of `variables`."
            )
        return self._places

    @cached_property
    def exact(self) -> Exact:
        """F, its gradient and y* at the mean x, flat; computed once for all metrics that ask.

        If the inner problem has many solutions, y* is that of the smallest norm.
        """
        value, gradient, y, left = solve_problem(
            self.problem, self._all_data(), self.flat_x, self.flat_y, self._flat
        )
        solved = (left <= jnp.sqrt(jnp.finfo(y.dtype).eps)).all()
        return Exact(*(jnp.where(solved, part, jnp.nan) for part in (value, gradient, y)))
