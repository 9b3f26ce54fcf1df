"""What agents say to each other where all of them are rows of one array.

`mix` is a function of one agent. Under `vmap` over agents it becomes W times the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from hobnob import keys
from hobnob.links import Links
from hobnob.runtimes.mixing import mixed_tree, without


class Rows(NamedTuple):
    """What one agent's messages become. `tables` are by level, and "" for those without one."""

    me: jax.Array
    tables: dict[str, dict[str, jax.Array]]
    failing: dict[str, jax.Array]
    links: Links | None
    link_key: jax.Array
    step: Any

    def mix(self, tree: Any, path: tuple[Any, ...], level: str | None) -> Any:
        tables = self.tables.get(level or "", self.tables[""])
        if self.links is not None:
            down = self.links.down(keys.of_round(self.link_key, self.step, path), self.step)
            tables = without(tables, self.failing, down)
        return _across(self.me, tables, tree)

    def to_server(self, tree: Any) -> Any:
        return _across(self.me, {"mean": jnp.zeros(())}, tree)

    def from_server(self, tree: Any) -> Any:
        return tree

    def loop(self, count: Any, body: Callable[[Any, Any, Any], Any], start: Any) -> Any:
        return jax.lax.fori_loop(0, count, lambda i, value: body(self, i, value), start)


@custom_vmap
def _across(index: jax.Array, tables: dict[str, jax.Array], tree: Any) -> Any:
    """What one agent hears. Alone, outside of a network, that is itself."""
    return tree


@_across.def_vmap
def _across_all(size: int, batched: Any, index: jax.Array, tables: Any, tree: Any) -> Any:
    index_batched, _, tree_batched = batched
    if not index_batched:
        # An axis of the algorithm's own, such as a vmap over several vectors: each is exchanged.
        return _across(index, tables, tree), tree_batched
    whole = jax.tree.map(
        lambda leaf, stacked: leaf if stacked else jnp.broadcast_to(leaf, (size, *leaf.shape)),
        tree,
        tree_batched,
    )
    return mixed_tree(tables, whole), jax.tree.map(lambda _: True, tree)
