"""What agents hold: records to index, or a simulator to run.

Both sources have the same methods, so the rest of the library does not ask which one it has:

- `place()`: the arrays of the whole network;
- `draw(key, place, count)`: a *handle* on a fresh batch: row numbers, which are looked up when a
  loss is evaluated, or a simulator's batch itself;
- `evaluate(loss, x, y, place, handle)`: the mean loss of that batch;
- `singles(place, handle)`: its records one by one, for methods that remember each record; `records`
  counts them, and is 0 for a simulator;
- `own_mean(loss, x, y, place)`: an agent's mean loss over all its data;
- `pooled(loss, x, y, place)`: the mean of these over agents, at one x and y.

`pooled` takes the place of the whole network, the others that of one agent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from hashlib import sha256
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.core.checks.shards import checked_batch_size, checked_shards
from hobnob.ground.barrier import materialised
from hobnob.ground.errors import HobnobError, ProblemError
from hobnob.ground.threefry import integers, split

Loss = Callable[[Any, Any, Any], jax.Array]


class Place(NamedTuple):
    """Where an agent finds its data. Rows are numbered through all shards in order."""

    arrays: Any
    start: Any
    length: Any


class Records:
    """One shard of records per agent; shards may differ in length.

    Args:
        shards: one pytree of arrays per agent, leading axis = records.
        batch_size: the number of records in a batch, drawn uniformly with replacement from the
            agent's own shard; None takes the whole shard, without noise.
        label: what error messages call the data.
        agents: the agents' numbers, if they are not 0, 1, ...

    Example:
        >>> import hobnob as hb
        >>> import numpy as np
        >>> records = hb.Records([np.zeros((5, 2)), np.zeros((20, 2))], batch_size=4)
        >>> records.size, records.samples_per_draw().tolist()
        (2, [4, 4])
    """

    def __init__(
        self,
        shards: Sequence[Any],
        batch_size: int | None = 1,
        label: str = "data",
        agents: Sequence[int] | None = None,
    ):
        self.label = label
        self.batch_size = checked_batch_size(batch_size)
        shards = checked_shards(shards, label, agents=agents)
        self.lengths = np.array([len(jax.tree.leaves(shard)[0]) for shard in shards], np.int32)
        self.arrays = jax.tree.map(lambda *leaves: np.concatenate(leaves), *shards)

    @property
    def size(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int32)

    def hosted(self, agents: Sequence[int]) -> Records:
        """The records of some agents only."""
        other, chosen = copy(self), np.asarray(agents)
        spans = zip(self.starts[chosen].tolist(), self.lengths[chosen].tolist(), strict=True)
        rows = np.concatenate([np.arange(at, at + length) for at, length in spans])
        other.lengths = self.lengths[chosen]
        other.arrays = jax.tree.map(lambda a: a[rows], self.arrays)
        return other

    @property
    def noiseless(self) -> bool:
        return self.batch_size is None

    @property
    def ragged(self) -> bool:
        return bool((self.lengths != self.lengths[0]).any())

    def samples_per_draw(self) -> np.ndarray:
        """For each agent, the number of records in one draw."""
        return self.lengths if self.noiseless else np.full(self.size, self.batch_size)

    def place(self) -> Place:
        arrays = jax.tree.map(jnp.asarray, self.arrays)
        if self._stacked:
            arrays = jax.tree.map(lambda a: a.reshape(self.size, -1, *a.shape[1:]), arrays)
        return Place(arrays, jnp.asarray(self.starts), jnp.asarray(self.lengths))

    @property
    def per_agent(self) -> Place:
        """The agents' axis of each part of a place, for `jax.vmap`."""
        return Place(0 if self._stacked else None, 0, 0)

    @property
    def _stacked(self) -> bool:
        return self.noiseless and not self.ragged

    def draw(self, key: jax.Array, place: Place, count: int | None = None) -> jax.Array:
        lead = () if count is None else (count,)
        if self.batch_size is None:
            return jnp.zeros(lead, jnp.int32)
        # Always int32, so that both precisions draw the same rows.
        rows = place.start + integers(key, (*lead, self.batch_size), place.length)
        # Otherwise XLA recomputes the rows for every gathered element.
        return materialised(rows)

    @property
    def records(self) -> int:
        """The length of the longest shard; 1 if the whole shard is always drawn at once."""
        return 1 if self.noiseless else int(self.lengths.max())

    def singles(self, place: Place, handle: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Each record's number in the agent's shard, and a handle on it as a batch of one."""
        if self.noiseless:
            return handle[None], handle[None]
        return handle - place.start, handle[:, None]

    def evaluate(self, loss: Loss, x: Any, y: Any, place: Place, handle: jax.Array) -> jax.Array:
        if not self.noiseless:
            return loss(x, y, jax.tree.map(lambda a: a[handle], place.arrays))
        if self._stacked:
            return loss(x, y, place.arrays)
        rows, own = self._padded(place)
        each = jax.vmap(lambda row: _single(loss, x, y, place.arrays, row))(rows)
        return jnp.sum(jnp.where(own, each, 0)) / place.length

    def own_mean(self, loss: Loss, x: Any, y: Any, place: Place) -> jax.Array:
        if self._stacked:
            return loss(x, y, place.arrays)
        rows, own = self._padded(place)
        if not self.ragged:
            return loss(x, y, jax.tree.map(lambda a: a[rows], place.arrays))
        # In parts: all agents do this at once, and a Hessian has a copy for each of y's entries.
        each = jax.lax.map(
            lambda row: _single(loss, x, y, place.arrays, row),
            rows,
            batch_size=max(1, 8192 // self.size),
        )
        return jnp.sum(jnp.where(own, each, 0)) / place.length

    def _padded(self, place: Place) -> tuple[jax.Array, jax.Array]:
        """An agent's rows, as many as the longest shard has, and which of them are its own."""
        offsets = jnp.arange(int(self.lengths.max()), dtype=jnp.int32)
        return place.start + jnp.minimum(offsets, place.length - 1), offsets < place.length

    def pooled(self, loss: Loss, x: Any, y: Any, place: Place) -> jax.Array:
        if not self.ragged:
            arrays = place.arrays
            if not self._stacked:
                arrays = jax.tree.map(lambda a: a.reshape(self.size, -1, *a.shape[1:]), arrays)
            return jnp.mean(jax.vmap(lambda shard: loss(x, y, shard))(arrays))
        each = jax.lax.map(
            lambda row: _single(loss, x, y, place.arrays, row),
            jnp.arange(int(self.lengths.sum())),
            batch_size=8192,
        )
        weights = np.repeat(1 / (self.size * self.lengths), self.lengths)
        return jnp.sum(each * jnp.asarray(weights, each.dtype))

    def traceables(self, loss: Loss, whole: int | None = None) -> list[tuple[Loss, Any]]:
        """Functions of (x, y, example) that JAX can trace, with an example each.

        Where a batch is a shard, it has `whole` records: those of the first agent, if not given.
        """
        rows = self.batch_size or whole or int(self.lengths[0])
        example = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((rows, *a.shape[1:]), a.dtype), self.arrays
        )
        return [(loss, example)]

    def digests(self) -> list[str]:
        """A digest of each agent's shard."""
        shards = zip(self.starts, self.lengths, strict=True)
        leaves = jax.tree.leaves(self.arrays)
        return [_digest([leaf[at : at + length] for leaf in leaves]) for at, length in shards]

    def fingerprint(self, digests: Sequence[str] | None = None) -> str:
        """A digest of all records, made from the digests of the agents' shards."""
        return fingerprint(digests or self.digests(), repr(self.batch_size))


class Simulator:
    """Agents that draw batches from a distribution, each with its own parameters.

    Args:
        parameters: one pytree of arrays per agent, all of the same shapes.
        draw: `draw(key, parameters) -> batch`, the batch that a loss is given.
        expected: `expected(x, y, parameters) -> scalar`, the loss's exact expectation, if known.
            Without it, the losses over all data and exact F cannot be measured.
        samples: the number of samples that one draw counts for.
        noiseless: use the expectation instead of drawing.
        label: what error messages call the data.

    Example:
        >>> import hobnob as hb
        >>> import jax
        >>> import numpy as np
        >>> def draw(key, centre):
        ...     return centre + jax.random.normal(key, (5, 2))
        >>> hb.Simulator([np.zeros(2), np.ones(2)], draw, samples=5).size
        2
    """

    records = 0  # every sample is new, so none can be remembered

    def __init__(
        self,
        parameters: Sequence[Any],
        draw: Callable[[jax.Array, Any], Any],
        expected: Loss | None = None,
        samples: int = 1,
        noiseless: bool = False,
        label: str = "simulator",
    ):
        parameters = checked_shards(parameters, label, records=False)
        if noiseless and expected is None:
            raise ProblemError(
                f"{label}: a noiseless simulator needs `expected`, the exact mean of its loss."
            )
        self.label = label
        self.size = len(parameters)
        self.arrays = jax.tree.map(lambda *leaves: np.stack(leaves), *parameters)
        self.noiseless = noiseless
        self.expected = expected
        self._draw = draw
        self._samples = samples

    def samples_per_draw(self) -> np.ndarray:
        return np.full(self.size, self._samples)

    def place(self) -> Place:
        none = jnp.zeros(self.size, jnp.int32)
        return Place(jax.tree.map(jnp.asarray, self.arrays), none, none)

    @property
    def per_agent(self) -> Place:
        return Place(0, 0, 0)

    def draw(self, key: jax.Array, place: Place, count: int | None = None) -> Any:
        """The batch itself, so that everything computed from it uses one draw."""
        if self.noiseless:
            return jnp.zeros(() if count is None else (count,), jnp.int32)
        if count is None:
            return self._draw(key, place.arrays)
        return jax.vmap(lambda key: self._draw(key, place.arrays))(split(key, count))

    def singles(self, place: Place, handle: Any) -> tuple[jax.Array, jax.Array]:
        raise ProblemError(f"{self.label}: a simulator's samples have no numbers to know them by.")

    def evaluate(self, loss: Loss, x: Any, y: Any, place: Place, handle: Any) -> jax.Array:
        if self.noiseless:
            assert self.expected is not None
            return self.expected(x, y, place.arrays)
        return loss(x, y, handle)

    def own_mean(self, loss: Loss, x: Any, y: Any, place: Place) -> jax.Array:
        if self.expected is None:
            raise ProblemError(
                f"{self.label}: the mean loss of a simulator is not known. Give "
                f"hb.Simulator(..., expected=...) to measure it."
            )
        return self.expected(x, y, place.arrays)

    def pooled(self, loss: Loss, x: Any, y: Any, place: Place) -> jax.Array:
        each = jax.vmap(lambda place: self.own_mean(loss, x, y, place), in_axes=(self.per_agent,))
        return jnp.mean(each(place))

    def traceables(self, loss: Loss, whole: int | None = None) -> list[tuple[Loss, Any]]:
        first = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), self.arrays)
        key = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
        sampled = (lambda x, y, given: loss(x, y, self._draw(*given)), (key, first))
        return [sampled, (self.expected, first)] if self.expected else [sampled]

    def hosted(self, agents: Sequence[int]) -> Simulator:
        """The parameters of some agents only."""
        other, chosen = copy(self), np.asarray(agents)
        other.size = len(chosen)
        other.arrays = jax.tree.map(lambda a: a[chosen], self.arrays)
        return other

    def digests(self) -> list[str]:
        leaves = jax.tree.leaves(self.arrays)
        return [_digest([leaf[k] for leaf in leaves]) for k in range(self.size)]

    def fingerprint(self, digests: Sequence[str] | None = None) -> str:
        return fingerprint(digests or self.digests(), repr((self._samples, self.noiseless)))


class Unread:
    """Records that a function of the agent's number reads where they are needed.

    Only `hosted` works: it reads the shards of the agents that live here.
    """

    def __init__(self, read: Callable[[int], Any], size: int, batch_size: int | None, label: str):
        self.read, self.size, self.label = read, size, label
        self.batch_size = checked_batch_size(batch_size)

    def hosted(self, agents: Sequence[int]) -> Records:
        return Records([self._read(int(k)) for k in agents], self.batch_size, self.label, agents)

    def _read(self, agent: int) -> Any:
        try:
            return self.read(agent)
        except HobnobError:  # it says what is wrong and where
            raise
        except Exception as error:
            raise ProblemError(
                f"{self.label}: the shard of agent {agent} could not be read: "
                f"{type(error).__name__}: {error}"
            ) from error


Source = Records | Simulator


def _single(loss: Loss, x: Any, y: Any, arrays: Any, row: jax.Array) -> jax.Array:
    """The loss of one record, as a batch of one."""
    return loss(x, y, jax.tree.map(lambda a: a[row][None], arrays))


def in_precision(source: Source, dtype: Any) -> Source:
    """The same source with its floats in `dtype`; integers and booleans stay."""

    def cast(array: np.ndarray) -> np.ndarray:
        floating = jnp.issubdtype(array.dtype, jnp.floating)
        if not floating:
            return array
        with np.errstate(over="ignore"):
            narrowed = array.astype(dtype, copy=False)
        if not np.isfinite(narrowed).all():
            raise ProblemError(
                f"{source.label}: values up to {np.abs(array).max():.3g} do not fit into {dtype}, "
                f"the dtype of x0 and y0. Scale the data, or give x0 and y0 as float64."
            )
        return narrowed

    other = copy(source)
    other.arrays = jax.tree.map(cast, source.arrays)
    return other


def fingerprint(digests: Sequence[str], settings: str) -> str:
    return sha256("\n".join([settings, *digests]).encode()).hexdigest()


def _digest(arrays: Sequence[np.ndarray]) -> str:
    digest = sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
