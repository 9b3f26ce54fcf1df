"""Messages where all agents are rows of one array.

`mix` is a function of one agent. Under `vmap` over agents it becomes W times the stack. `hear`
becomes the rows of each agent's neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from hobnob import fast
from hobnob.core.links import Links
from hobnob.core.setup import Setup, Tree
from hobnob.ground import keys
from hobnob.ground.errors import SettingError
from hobnob.runtimes.simulate.mixing import (
    Weights,
    failing_tables,
    mixed_tree,
    mixing_tables,
    without,
)
from hobnob.runtimes.simulate.neighbours import Neighbours, neighbours_of, symmetric


class Tables(NamedTuple):
    """W by level, "" for the network itself, and what is needed to take failing links out.

    `neighbours` are there, by level, if the algorithm keeps what flows over its links.
    """

    weights: dict[str, Weights]
    failing: dict[str, jax.Array]
    neighbours: dict[str, Neighbours]

    def neighbours_at(self, level: str | None) -> Neighbours:
        if not self.neighbours:
            raise SettingError(
                "An algorithm that uses agent.flow or agent.links says which fields of its state "
                'are memories: flows = ("x_flows", ...). This one names none.'
            )
        return self.neighbours.get(level or "", self.neighbours[""])


class Rows:
    """The carrier of a simulation."""

    def __init__(self, setup: Setup):
        network, dtype, self._links = setup.network, setup.problem.dtype, setup.links
        levels = {"": network, **network.levels}
        neighbours: dict[str, Neighbours] = {}
        if setup.algorithm.flows:
            neighbours = {
                level: neighbours_of(symmetric(W.sparse), W.most_links, W.ends, dtype)
                for level, W in levels.items()
            }
        if self._links is not None:  # and there are no levels
            tables = mixing_tables(network.sparse, dtype)
            failing = failing_tables(tables, network.sparse, self._links.ends)
            self.tables = Tables({"": tables}, failing, neighbours)
            return
        faster = fast.enter()
        weights: dict[str, Weights] = {}
        for level, W in levels.items():
            found = faster and faster.mixing(W.sparse, dtype)
            weights[level] = found or mixing_tables(W.sparse, dtype)
        self.tables = Tables(weights, {}, neighbours)

    def exchange(
        self, me: jax.Array, tables: Tables, link_key: jax.Array, step: jax.Array
    ) -> RowExchange:
        return RowExchange(me, tables, self._links, link_key, step)


class RowExchange(NamedTuple):
    """What one agent, a row of the stack, speaks through."""

    me: jax.Array
    tables: Tables
    failures: Links | None
    link_key: jax.Array
    step: jax.Array

    def mix(self, tree: Tree, path: tuple[Any, ...], level: str | None) -> Tree:
        weights = self.tables.weights.get(level or "", self.tables.weights[""])
        if self.failures is not None:
            assert isinstance(weights, dict), "failing links are taken out of tables alone"
            weights = without(weights, self.tables.failing, self._down(path))
        return _across(self.me, weights, tree)

    def links(self, level: str | None) -> int:
        return len(self.tables.neighbours_at(level).weights)

    def hear(self, tree: Tree, path: tuple[Any, ...], level: str | None) -> tuple[jax.Array, Tree]:
        neighbours = self.tables.neighbours_at(level)
        if self.failures is not None:
            neighbours = neighbours.without(self._down(path))
        return _heard(self.me, neighbours, tree)

    def to_server(self, tree: Tree) -> Tree:
        return _across(self.me, {"mean": jnp.zeros(())}, tree)

    def from_server(self, tree: Tree) -> Tree:
        return tree

    def loop(self, count: Any, body: Callable[[Any, Any, Tree], Tree], start: Tree) -> Tree:
        return jax.lax.fori_loop(0, count, lambda i, value: body(self, i, value), start)

    def _down(self, path: tuple[Any, ...]) -> jax.Array:
        assert self.failures is not None
        return self.failures.down(keys.of_round(self.link_key, self.step, path), self.step)


@custom_vmap
def _across(me: jax.Array, weights: Weights, tree: Tree) -> Tree:
    """What one agent hears. Outside of a network, that is itself."""
    return tree


@_across.def_vmap
def _across_all(size: int, batched: Any, me: jax.Array, weights: Any, tree: Tree) -> Any:
    me_batched, _, tree_batched = batched
    if not me_batched:
        # Not the axis of agents, but one of the algorithm's own: exchange each of its entries.
        return _across(me, weights, tree), tree_batched
    stack = stacked(size, tree, tree_batched)
    return mixed_tree(weights, stack), jax.tree.map(lambda _: True, tree)


@custom_vmap
def _heard(me: jax.Array, neighbours: Neighbours, tree: Tree) -> tuple[jax.Array, Tree]:
    """What the neighbours of one agent say to it, one by one."""
    return neighbours.nothing(tree)


@_heard.def_vmap
def _heard_by_all(size: int, batched: Any, me: jax.Array, neighbours: Any, tree: Tree) -> Any:
    me_batched, _, tree_batched = batched
    if not me_batched:
        return of_own_axis(_heard(me, neighbours, tree), tree_batched)
    found = neighbours.heard(stacked(size, tree, tree_batched))
    return found, jax.tree.map(lambda _: True, found)


def of_own_axis(heard: tuple[jax.Array, Tree], batched: Tree) -> Any:
    """What was heard by an agent that speaks for every entry of an axis of the algorithm's own."""
    weights, theirs = heard
    in_front = jax.tree.map(
        lambda leaf, is_stack: jnp.moveaxis(leaf, 1, 0) if is_stack else leaf, theirs, batched
    )
    return (weights, in_front), (False, batched)


def stacked(size: int, tree: Tree, batched: Tree) -> Tree:
    """The tree with one row an agent; what all agents share is repeated."""
    return jax.tree.map(
        lambda leaf, is_stack: leaf if is_stack else jnp.broadcast_to(leaf, (size, *leaf.shape)),
        tree,
        batched,
    )
