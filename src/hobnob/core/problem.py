"""Problem: the two losses, the starting point and the agents' data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.core.checks.program import bounds_digest, loss_digest, program_hash, start_digest
from hobnob.core.checks.shards import checked_start, precision_of
from hobnob.core.data import Loss, Place, Records, Simulator, Source, Unread, in_precision
from hobnob.ground.errors import ProblemError
from hobnob.ground.pytrees import VectorLayout, map_numbers


class Problem:
    """minimise over x: mean_k f_k(x, y*(x)), where y*(x) minimises mean_k g_k(x, y).

    With `personal`, every agent has an inner problem of its own: F(x) = mean_k f_k(x, y*_k(x)),
    where y*_k(x) minimises g_k(x, y). Agents then share x and nothing else.

    Args:
        outer: `f(x, y, batch) -> scalar`, the mean outer loss of a batch.
        inner: `g(x, y, batch) -> scalar`, the mean inner loss, strongly convex in y.
        x0, y0: pytrees of arrays where every agent starts; Flax and Equinox models work. Their
            dtype sets the precision: float64 arrays run in float64 without a global flag.
        outer_data, inner_data: one pytree of arrays per agent, leading axis = records; shards may
            differ in length. Or a `Records` with its own batch size, or a `Simulator`; or a
            function of the agent's number that reads its shard, called only where the agent lives.
        batch_size: records in a batch; None takes the agent's whole shard, so nothing is random.
        agents: the number of agents, needed only if both data are functions.
        personal: whether every agent has a y of its own.
        x_bounds: `(lower, upper)`, each None, a number or shaped like x0: x is kept inside.
        solution: the minimiser x*, if known, so that runs can be measured against it.
        name: for reports.
        labels: names for the entries of x, for figures.
        readout: what figures show of x, one number per label: `np.exp` if x is a logarithm.
        objective_name: what reports call F, such as "validation loss".

    Algorithms see x and y as flat vectors; the problem converts them.

    Example:
        >>> import hobnob as hb
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> def outer(x, y, batch):
        ...     return jnp.mean((batch @ y - 1) ** 2)
        >>> def inner(x, y, batch):
        ...     return outer(x, y, batch) + jnp.exp(x[0]) * y @ y
        >>> shards = [np.ones((n, 2)) for n in (5, 10, 20)]
        >>> hb.Problem(outer, inner, np.zeros(1), np.zeros(2), shards, shards, batch_size=2)
        Problem('problem': 3 agents, d_x = 1, d_y = 2, float64)
    """

    #: True if g is 1/2 |y - h(x)|^2, so that compositional methods apply.
    compositional: bool = False

    def __init__(
        self,
        outer: Loss,
        inner: Loss,
        x0: Any,
        y0: Any,
        outer_data: Any,
        inner_data: Any,
        batch_size: int | None = 1,
        *,
        agents: int | None = None,
        personal: bool = False,
        x_bounds: tuple[Any, Any] | None = None,
        solution: Any = None,
        name: str = "problem",
        labels: list[str] | None = None,
        readout: Callable[[Any], Any] | None = None,
        objective_name: str = "F",
    ):
        if not isinstance(personal, bool):
            raise ProblemError(f"personal = {personal!r} must be True or False.")
        self.outer, self.inner = outer, inner
        self.name, self.labels, self.personal = name, labels, personal
        self.readout, self.objective_name = readout, objective_name
        x0, y0 = as_tree(x0), as_tree(y0)
        self.dtype = np.result_type(precision_of(x0, "x0"), precision_of(y0, "y0"))
        self.x0 = checked_start(x0, "x0", self.dtype)
        self.y0 = checked_start(y0, "y0", self.dtype)
        self.x_layout, self.y_layout = VectorLayout(self.x0), VectorLayout(self.y0)
        self.x_bounds = self._checked_bounds(x_bounds)
        self.solution = solution

        given = outer_data, inner_data
        self.outer_data: Any = self._source(outer_data, batch_size, "outer_data", agents, given)
        self.inner_data: Any = self._source(inner_data, batch_size, "inner_data", agents, given)
        if self.outer_data.size != self.inner_data.size:
            raise ProblemError(
                f"outer_data has {self.outer_data.size} shards and inner_data has "
                f"{self.inner_data.size}. Every agent needs one of each."
            )
        if not self.unread:
            self._check_losses()

    @property
    def size(self) -> int:
        """The number of agents."""
        return self.inner_data.size

    @property
    def unread(self) -> bool:
        """True if shards are given as a function and have not been read."""
        return any(isinstance(s, Unread) for s in (self.outer_data, self.inner_data))

    def hosting(self, agents: Sequence[int]) -> Problem:
        """The same problem with only these agents' data, read now if it has not been."""
        other = copy(self)
        for name in ("fingerprint", "_all_read"):
            other.__dict__.pop(name, None)
        for name in ("outer_data", "inner_data"):
            hosted = getattr(self, name).hosted(agents)
            setattr(other, name, in_precision(hosted, self.dtype) if self.unread else hosted)
        if self.unread:
            other._check_losses()
        return other

    def loaded(self) -> Problem:
        """The same problem with the data of all agents in this process."""
        return self._all_read if self.unread else self

    def starting_at(self, x: Any, y: Any) -> Problem:
        """The same problem from another start."""
        other = copy(self)
        for name in ("fingerprint", "_all_read"):
            other.__dict__.pop(name, None)
        other.x0 = checked_start(x, "x0", self.dtype)
        other.y0 = checked_start(y, "y0", self.dtype)
        return other

    @cached_property
    def _all_read(self) -> Problem:
        return self.hosting(range(self.size))

    @property
    def dim_x(self) -> int:
        return self.x_layout.size

    @property
    def dim_y(self) -> int:
        return self.y_layout.size

    def precision(self) -> AbstractContextManager[Any]:
        """A context in which JAX uses this problem's precision, whatever the global flags."""
        return jax.enable_x64(True) if self.dtype == np.float64 else nullcontext()

    def place(self) -> tuple[Place, Place]:
        """The data of the whole network as JAX arrays, outer and inner."""
        return self.outer_data.place(), self.inner_data.place()

    def outer_loss(self, x: jax.Array, y: jax.Array, place: Place, handle: Any) -> jax.Array:
        """One agent's f on a batch it drew, for flat x and y."""
        return self.outer_data.evaluate(self.outer, *self._unravel(x, y), place, handle)

    def inner_loss(self, x: jax.Array, y: jax.Array, place: Place, handle: Any) -> jax.Array:
        """One agent's g on a batch it drew, for flat x and y."""
        return self.inner_data.evaluate(self.inner, *self._unravel(x, y), place, handle)

    def own_outer(self, x: jax.Array, y: jax.Array, place: Place) -> jax.Array:
        """One agent's f over all its data, for flat x and y."""
        return self.outer_data.own_mean(self.outer, *self._unravel(x, y), place)

    def own_inner(self, x: jax.Array, y: jax.Array, place: Place) -> jax.Array:
        """One agent's g over all its data, for flat x and y."""
        return self.inner_data.own_mean(self.inner, *self._unravel(x, y), place)

    def pooled_outer(self, x: jax.Array, y: jax.Array, place: Place) -> jax.Array:
        """mean_k f_k(x, y) over all data. Where agents have their own y, it is [agents, d_y]."""
        if self.personal:
            each = jax.vmap(self.own_outer, in_axes=(None, 0, self.outer_data.per_agent))
            return jnp.mean(each(x, y, place))
        return self.outer_data.pooled(self.outer, *self._unravel(x, y), place)

    def pooled_inner(self, x: jax.Array, y: jax.Array, place: Place) -> jax.Array:
        """mean_k g_k(x, y) over all data. Where agents have their own y, it is [agents, d_y]."""
        if self.personal:
            each = jax.vmap(self.own_inner, in_axes=(None, 0, self.inner_data.per_agent))
            return jnp.mean(each(x, y, place))
        return self.inner_data.pooled(self.inner, *self._unravel(x, y), place)

    @property
    def has_pooled_losses(self) -> bool:
        """True if the losses over all data can be computed; a simulator may not know its own."""
        sources = (self.outer_data, self.inner_data)
        return all(getattr(s, "expected", s) is not None for s in sources)

    def project(self, x: Any) -> Any:
        """The nearest point of the box, for a flat x."""
        return x if self.x_bounds is None else jnp.clip(x, *self.x_bounds)

    def in_precision(self, dtype: Any) -> Problem:
        """The same problem in another precision."""
        other = copy(self)
        other.__dict__.pop("fingerprint", None)
        other.dtype = np.dtype(dtype)
        other.x0, other.y0 = (
            map_numbers(lambda a: a.astype(dtype), start) for start in (self.x0, self.y0)
        )
        if self.x_bounds is not None:
            lower, upper = self.x_bounds
            other.x_bounds = lower.astype(dtype), upper.astype(dtype)
        other.outer_data = in_precision(self.outer_data, dtype)
        other.inner_data = in_precision(self.inner_data, dtype)
        return other

    @cached_property
    def fingerprint(self) -> dict[str, str]:
        """A digest of each part of the problem, so that a mismatch can be named."""
        return {
            "outer loss": loss_digest(self, self.outer, self.outer_data),
            "inner loss": loss_digest(self, self.inner, self.inner_data),
            "outer data": self.outer_data.fingerprint(),
            "inner data": self.inner_data.fingerprint(),
            "starting point": start_digest(self),
            "bounds of x": bounds_digest(self),
            # A common one is not named: checkpoints may be older than the difference.
            **({"inner problem": "each agent's own"} if self.personal else {}),
        }

    def program_hash(self) -> str:
        """A digest of losses, shapes, start and bounds: the same whosever data this process has."""
        return program_hash(self)

    def __repr__(self) -> str:
        own = ", personal" if self.personal else ""
        return (
            f"Problem({self.name!r}: {self.size} agents, d_x = {self.dim_x}, d_y = {self.dim_y}, "
            f"{self.dtype}{own})"
        )

    def _unravel(self, x: jax.Array, y: jax.Array) -> tuple[Any, Any]:
        return self.x_layout.unravel(x), self.y_layout.unravel(y)

    def _source(
        self, data: Any, batch_size: int | None, label: str, agents: int | None, given: Any
    ) -> Source | Unread:
        if callable(data):
            return Unread(data, self._number_of_agents(agents, given), batch_size, label)
        if not isinstance(data, Records | Simulator):
            data = Records(data, batch_size, label)
        return in_precision(data, self.dtype)

    def _number_of_agents(self, agents: int | None, given: Any) -> int:
        if agents is None:
            lists = [data for data in given if not callable(data)]
            agents = getattr(lists[0], "size", None) or len(lists[0]) if lists else None
        if not isinstance(agents, int | np.integer) or agents < 1:
            raise ProblemError(
                f"agents = {agents!r}: where shards are given as a function, say how many agents "
                f"there are: Problem(..., agents=8)."
            )
        return int(agents)

    def _check_losses(self) -> None:
        with self.precision():
            self._check_loss(self.outer, self.outer_data, "outer")
            self._check_loss(self.inner, self.inner_data, "inner")

    def _checked_bounds(self, bounds: Any) -> tuple[np.ndarray, np.ndarray] | None:
        if bounds is None:
            return None
        if not isinstance(bounds, tuple | list) or len(bounds) != 2:
            raise ProblemError(f"x_bounds must be a pair (lower, upper), not {bounds!r}.")
        lower, upper = self._bound(bounds[0], -np.inf), self._bound(bounds[1], np.inf)
        if (lower > upper).any():
            i = int(np.argmax(lower > upper))
            raise ProblemError(
                f"x_bounds: the lower bound of entry {i} is {lower[i]}, above its upper bound "
                f"{upper[i]}, so no x is allowed. The order is (lower, upper)."
            )
        start = self.x_layout.ravel(self.x0)
        outside = (start < lower) | (start > upper)
        if outside.any():
            i = int(np.argmax(outside))
            raise ProblemError(
                f"x0 lies outside x_bounds: entry {i} is {start[i]}, the bounds are "
                f"[{lower[i]}, {upper[i]}]. Start inside."
            )
        return lower, upper

    def _bound(self, bound: Any, default: float) -> np.ndarray:
        """One side of the box, flat: from None, a number, a pytree like x0 or a flat vector."""
        bound = default if bound is None else bound
        try:
            if jax.tree.structure(bound) == self.x_layout.structure:
                flat = np.asarray(self.x_layout.ravel(bound), self.dtype)
            else:
                flat = np.asarray(bound, self.dtype).reshape(-1)
            full = np.broadcast_to(flat, self.dim_x)
        except (TypeError, ValueError):
            full = np.full(1, np.nan)
        if np.isnan(full).any():
            raise ProblemError(
                f"x_bounds: each bound must be None, a number, or numbers shaped like x0, which "
                f"has {self.dim_x}. One of them is {bound!r}."
            )
        return full.copy()

    def _check_loss(self, loss: Loss, source: Source, title: str) -> None:
        trace, example = source.traceables(loss)[0]
        flat = self.of_flat(trace)
        start = self.x_layout.ravel(self.x0), self.y_layout.ravel(self.y0)
        try:
            shape = jax.eval_shape(flat, *start, example)
        except Exception as error:
            raise ProblemError(
                f"{title}(x, y, batch) failed on a batch: {type(error).__name__}: {error}"
            ) from error
        if getattr(shape, "shape", None) != () or not jnp.issubdtype(shape.dtype, jnp.floating):
            found = jax.tree.map(lambda s: f"{s.dtype}{list(s.shape)}", shape)
            raise ProblemError(
                f"{title}(x, y, batch) must return one real number, the mean loss of the batch. It "
                f"returned {found}. A sum over records belongs inside jnp.mean."
            )
        if not _depends_on_y(flat, *start, example):
            follows = {
                "inner": "any y would minimise it, so y*(x) is not defined",
                "outer": "nothing that the inner problem finds would matter",
            }[title]
            raise ProblemError(f"{title}(x, y, batch) does not depend on y: {follows}.")
        if isinstance(source, Records) and source.ragged:
            self._check_mean(loss, source, title)

    def _check_mean(self, loss: Loss, source: Records, title: str) -> None:
        """Check that a loss is a mean: shards of unequal length are evaluated record by record."""
        first = int(source.starts[source.lengths.argmax()])
        rows = np.array([first, first + 1])
        both, one, two = (
            float(
                loss(
                    self.x0, self.y0, jax.tree.map(lambda a, r=r: jnp.asarray(a[r]), source.arrays)
                )
            )
            for r in (rows, rows[:1], rows[1:])
        )
        mean = (one + two) / 2
        if abs(both - mean) > 1e-3 * max(abs(both), abs(mean)) + 1e-6:
            raise ProblemError(
                f"{title}(x, y, batch) is not a mean over the records of its batch: two records "
                f"give {both:.6g}, each alone {one:.6g} and {two:.6g}. A small batch would then "
                f"not stand for the whole shard. Use jnp.mean over the records."
            )

    def of_flat(self, loss: Loss) -> Loss:
        """The same loss as a function of flat x and y."""
        return lambda x, y, batch: loss(*self._unravel(x, y), batch)


def as_tree(value: Any) -> Any:
    """Turn a list of plain numbers into a vector; as a pytree each would be a scalar leaf."""
    plain = isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value)
    return np.asarray(value, float) if plain and value else value


def _depends_on_y(loss: Loss, x: np.ndarray, y: np.ndarray, batch: Any) -> bool:
    """True if the loss uses y at all, whatever its numbers are."""
    over_several_y = jax.vmap(loss, in_axes=(None, 0, None), out_axes=None)
    try:
        jax.eval_shape(over_several_y, x, y[None], batch)
    except Exception:  # vmap refuses out_axes=None if the result depends on y
        return True
    return False
