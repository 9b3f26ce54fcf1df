"""The neighbours of each agent one by one, for `agent.flow`, which keeps their words apart."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from hobnob.core.mixing_matrix import row_numbers
from hobnob.runtimes.simulate.mixing import link_numbers


class Neighbours(NamedTuple):
    """Three tables, [links, agents]: one row a neighbour, by number, and then padding.

    from_     the place of the neighbour in a stack of agents; in padding, the agent's own
    weights   of the link; 0 in padding
    link      the number of the link; in padding, one past the last
    """

    from_: jax.Array
    weights: jax.Array
    link: jax.Array

    def without(self, down: jax.Array) -> Neighbours:
        """The links that are down have no weight."""
        gone = jnp.append(down, False)[self.link]
        return self._replace(weights=jnp.where(gone, 0, self.weights))

    def heard(self, stack: Any) -> tuple[jax.Array, Any]:
        """For every agent the weights of its links, and what its neighbours say."""
        return self.weights.T, jax.tree.map(lambda leaf: leaf[self.from_.T], stack)

    def nothing(self, tree: Any) -> tuple[jax.Array, Any]:
        """What one agent hears outside of a network, in the right shapes."""
        links = len(self.weights)
        return jnp.zeros(links, self.weights.dtype), jax.tree.map(
            lambda leaf: jnp.zeros((links, *leaf.shape), leaf.dtype), tree
        )


def neighbours_of(
    W: csr_array,
    links: int,
    ends: np.ndarray,
    dtype: Any,
    numbers: np.ndarray | None = None,
) -> Neighbours:
    """The tables of the agents in W's rows, padded to so many links.

    `numbers` are the agents behind W's columns; those of its rows come first.
    """
    agents = len(W.indptr) - 1
    numbers = np.arange(agents) if numbers is None else numbers
    to, heard = row_numbers(W), W.indices
    linked = to != heard
    to, heard, weights = to[linked], heard[linked], W.data[linked]
    first = np.searchsorted(to, np.arange(agents))
    at = np.arange(len(to)) - first[to], to  # entries keep the order of the agents' numbers
    from_, weight = np.tile(np.arange(agents), (links, 1)), np.zeros((links, agents))
    from_[at], weight[at] = heard, weights
    own = np.broadcast_to(np.arange(agents), from_.shape)
    return Neighbours(
        jnp.asarray(from_, jnp.int32),
        jnp.asarray(weight, dtype),
        link_numbers(numbers[own], numbers[from_], ends),
    )


def symmetric(W: Any) -> Any:
    """W with both directions of a link exactly equal: one given by hand may differ by rounding."""
    mean = csr_array((W + W.T) / 2)
    mean.sort_indices()
    return mean
