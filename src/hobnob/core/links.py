"""Failing links: each with a probability, one over a span of steps, or all of a silent agent.

Both ends of a failed link add its weight to their own, so W stays symmetric and doubly stochastic.
Which links fail depends only on the seed, the step and the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

from hobnob.core.ledger import ROUNDS_AT_ONCE
from hobnob.core.network import Network
from hobnob.ground import keys
from hobnob.ground.errors import NetworkError, SettingError

FOREVER = 2**31 - 1


@dataclass(frozen=True)
class Drop:
    """Every link is down with this probability, independently in every round.

    Args:
        probability: in [0, 1).

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> dsoba = hb.DSOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2)
        >>> hb.solve(problem, hb.ring(4), dsoba, steps=20, links=hb.Drop(0.1)).status
        'finished'
    """

    probability: float

    def __post_init__(self) -> None:
        number = isinstance(self.probability, int | float | np.number)
        if not number or not 0 <= self.probability < 1:
            raise SettingError(
                f"Drop({self.probability!r}): a link must be down with a probability in [0, 1). "
                f"At 1 nobody would ever hear anybody."
            )
        object.__setattr__(self, "probability", float(self.probability))

    def down(self, key: jax.Array, step: Any, ends: np.ndarray) -> Any:
        # Always float32, so that the same links fail in both precisions.
        return jax.random.uniform(key, (len(ends),), jnp.float32) < np.float32(self.probability)

    def lost_for_good(self, network: Network, steps: int) -> list[tuple[int, int]]:
        return []


@dataclass(frozen=True)
class Cut:
    """The link between two agents is down from step `start` until before step `stop`.

    Args:
        first, second: the two agents.
        start, stop: the span, in steps; without `stop` it has no end.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> dsoba = hb.DSOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2)
        >>> cut = hb.Cut(2, 3, start=5, stop=10)
        >>> hb.solve(problem, hb.ring(4), dsoba, steps=20, links=cut).status
        'finished'
    """

    first: int
    second: int
    start: int = 0
    stop: int = FOREVER

    def __post_init__(self) -> None:
        _check_span(self)

    def down(self, key: jax.Array, step: Any, ends: np.ndarray) -> Any:
        this = (ends == sorted((self.first, self.second))).all(axis=1)
        return jnp.asarray(this) & (self.start <= step) & (step < self.stop)

    def lost_for_good(self, network: Network, steps: int) -> list[tuple[int, int]]:
        if self.second not in network.neighbours(self.first):
            raise NetworkError(
                f"Cut({self.first}, {self.second}): there is no such link. Agent {self.first} has "
                f"the neighbours {network.neighbours(self.first)}."
            )
        return [(self.first, self.second)] if self.start < steps <= self.stop else []


@dataclass(frozen=True)
class Silent:
    """An agent neither sends nor receives from step `start` until before step `stop`.

    Args:
        agent: the silent agent.
        start, stop: the span, in steps; without `stop` it has no end.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> dsoba = hb.DSOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2)
        >>> both = [hb.Silent(0, stop=5), hb.Drop(0.1)]
        >>> hb.solve(problem, hb.ring(4), dsoba, steps=20, links=both).status
        'finished'
    """

    agent: int
    start: int = 0
    stop: int = FOREVER

    def __post_init__(self) -> None:
        _check_span(self)

    def down(self, key: jax.Array, step: Any, ends: np.ndarray) -> Any:
        its = (ends == self.agent).any(axis=1)
        return jnp.asarray(its) & (self.start <= step) & (step < self.stop)

    def lost_for_good(self, network: Network, steps: int) -> list[tuple[int, int]]:
        if not 0 <= self.agent < network.size:
            raise NetworkError(f"Silent({self.agent}): there are agents 0 to {network.size - 1}.")
        gone = self.start < steps <= self.stop
        return [(self.agent, j) for j in network.neighbours(self.agent)] if gone else []


Failure = Drop | Cut | Silent


def _check_span(failure: Cut | Silent) -> None:
    for name, value in vars(failure).items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise SettingError(f"{failure}: {name} must be a whole number.")
        object.__setattr__(failure, name, int(value))  # np.int64(1) is the same link as 1
    if not 0 <= failure.start < failure.stop <= FOREVER:
        raise SettingError(
            f"{failure}: a span goes from step `start`, 0 or more, until before a later `stop`. "
            f"Leave `stop` out where there is no end."
        )


class Links:
    """All the failures of a run."""

    def __init__(self, failures: Failure | Sequence[Failure], network: Network, steps: int):
        given: Any = failures
        several = isinstance(given, Sequence) and not isinstance(given, str)
        self.failures: tuple[Any, ...] = (*given,) if several else (given,)
        for failure in self.failures:
            if not isinstance(failure, Drop | Cut | Silent):
                raise SettingError(f"links: {failure!r} must be a Drop, a Cut or a Silent.")
        self.ends = network.ends
        self.warning = self._parts_for_good(network, steps)

    def down(self, key: jax.Array, step: Any) -> jax.Array:
        """True for each link that is down in a round, in the order of `ends`."""
        down = jnp.zeros(len(self.ends), bool)
        for number, failure in enumerate(self.failures):
            down |= failure.down(jax.random.fold_in(key, number), step, self.ends)
        return down

    def counter(self, key: jax.Array) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Counts how often each link was up in given rounds, by repeating the loop's draws.

        `key` is the key for links, or one key per seed. It compiles once for any number of rounds
        and holds one round at a time.
        """

        def in_round(key: jax.Array, step: jax.Array, path: jax.Array) -> jax.Array:
            up = ~self.down(keys.of_round(key, step, tuple(path)), step)
            return up.astype(jnp.int32)

        of_seed = jax.vmap(in_round, in_axes=(0, None, None)) if key.ndim else in_round

        @jax.jit
        def of_rounds(key: jax.Array, count: Any, steps: jax.Array, paths: jax.Array) -> jax.Array:
            none = jnp.zeros((*key.shape, len(self.ends)), jnp.int32)
            return jax.lax.fori_loop(
                0, count, lambda i, total: total + of_seed(key, steps[i], paths[i]), none
            )

        def live(steps: np.ndarray, paths: np.ndarray) -> np.ndarray:
            padded = np.zeros((ROUNDS_AT_ONCE, 1 + paths.shape[1]), np.int32)
            padded[: len(steps)] = np.column_stack([steps, paths])
            found = of_rounds(key, np.int32(len(steps)), padded[:, 0], padded[:, 1:])
            return np.asarray(found, np.int64)

        return live

    def __str__(self) -> str:
        return ", ".join(str(failure) for failure in self.failures)

    def _parts_for_good(self, network: Network, steps: int) -> str:
        """A warning if the links that stay down to the end of the run split the network."""
        lost = {edge for f in self.failures for edge in f.lost_for_good(network, steps)}
        if not lost:
            return ""
        left = nx.Graph(network.graph)
        left.remove_edges_from(lost)
        parts = sorted((sorted(part) for part in nx.connected_components(left)), key=lambda p: p[0])
        if len(parts) == 1:
            return ""
        words = " and ".join("{" + ", ".join(map(str, part)) + "}" for part in parts[:4])
        return (
            f"The live graph never reconnects: links stay down to the end of the run, which leaves "
            f"{len(parts)} parts, {words}. They can't agree any more."
        )
