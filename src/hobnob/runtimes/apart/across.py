"""Messages between agents of different processes.

Rows of agents that live elsewhere come through a wire, called from within the compiled loop.
Neighbours are added up in the order of their numbers, so the numbers are the simulation's.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from hobnob.core.setup import Setup, Tree
from hobnob.fast import HostCall
from hobnob.ground import keys
from hobnob.runtimes.apart.halo import TOKEN, Halo
from hobnob.runtimes.apart.wiring import Wire
from hobnob.runtimes.simulate.rows import Tables, of_own_axis, stacked


class Across:
    """The carrier of a run in several processes, in one of them."""

    def __init__(self, setup: Setup, wire: Wire, parts: list[np.ndarray], call: HostCall):
        network, links = setup.network, setup.links
        halos = {
            level: Halo(
                W, parts, wire, links, setup.problem.dtype, call, bool(setup.algorithm.flows)
            )
            for level, W in {"": network, **network.levels}.items()
        }
        self.links = links
        self.tables = Tables(
            {level: halo.tables for level, halo in halos.items()},
            halos[""].failing,
            {level: halo.neighbours for level, halo in halos.items() if halo.neighbours},
        )
        self.mix = {level: _made_mix(halo) for level, halo in halos.items()}
        self.hear = {level: _made_hear(halo) for level, halo in halos.items()}
        self.mean = _made_mean(wire, network.size, call)

    def exchange(
        self, me: jax.Array, tables: Tables, link_key: jax.Array, step: jax.Array
    ) -> AcrossExchange:
        return AcrossExchange(self, me, tables, link_key, step)


class AcrossExchange:
    """What one agent speaks through. A token orders exchanges: each needs the one before."""

    def __init__(
        self, carrier: Across, me: jax.Array, tables: Tables, link_key: jax.Array, step: jax.Array
    ):
        self._carrier, self._me, self._tables = carrier, me, tables
        self._link_key, self._step = link_key, step
        self._token = jnp.zeros((), jnp.int32)

    def mix(self, tree: Tree, path: tuple[Any, ...], level: str | None) -> Tree:
        on = level if level in self._tables.weights else ""
        tables = self._tables.weights[on], self._tables.failing
        mix, down = self._carrier.mix[on], self._down(path)
        tree, self._token = mix(self._me, tables, down, self._token, tree)
        return tree

    def links(self, level: str | None) -> int:
        return len(self._tables.neighbours_at(level).weights)

    def hear(self, tree: Tree, path: tuple[Any, ...], level: str | None) -> tuple[jax.Array, Tree]:
        neighbours = self._tables.neighbours_at(level)
        hear = self._carrier.hear[level if level in self._tables.weights else ""]
        heard, self._token = hear(self._me, neighbours, self._down(path), self._token, tree)
        return heard

    def to_server(self, tree: Tree) -> Tree:
        tree, self._token = self._carrier.mean(self._me, self._token, tree)
        return tree

    def from_server(self, tree: Tree) -> Tree:
        return tree

    def loop(self, count: Any, body: Callable[[Any, Any, Tree], Tree], start: Tree) -> Tree:
        def turn(i: Any, carry: Any) -> Any:
            value, token = carry
            inside = copy(self)
            inside._token = token
            return body(inside, i, value), inside._token

        end, self._token = jax.lax.fori_loop(0, count, turn, (start, self._token))
        return end

    def _down(self, path: tuple[Any, ...]) -> jax.Array | None:
        links = self._carrier.links
        if links is None:
            return None
        return links.down(keys.of_round(self._link_key, self._step, path), self._step)


def _made_mix(halo: Halo) -> Any:
    """`mix(me, tables, down, token, tree)` of one agent; under `vmap`, agents mix."""

    @custom_vmap
    def mix(me: Any, tables: Any, down: Any, token: Any, tree: Any) -> Any:
        return tree, token

    @mix.def_vmap
    def _(size: int, batched: Any, me: Any, tables: Any, down: Any, token: Any, tree: Any) -> Any:
        me_batched, *_, token_batched, tree_batched = batched
        if not me_batched:
            return mix(me, tables, down, token, tree), (tree_batched, token_batched)
        tree, flags = _stacked(size, tree, tree_batched)
        token = token[0] if token_batched else token
        return halo.mix(tables, down, token, tree), (flags, False)

    return mix


def _made_hear(halo: Halo) -> Any:
    """`hear(me, neighbours, down, token, tree)` of one agent; under `vmap`, agents hear others."""

    @custom_vmap
    def hear(me: Any, neighbours: Any, down: Any, token: Any, tree: Any) -> Any:
        return neighbours.nothing(tree), token

    @hear.def_vmap
    def _(size: int, batched: Any, me: Any, tables: Any, down: Any, token: Any, tree: Any) -> Any:
        me_batched, *_, token_batched, tree_batched = batched
        if not me_batched:
            heard, token = hear(me, tables, down, token, tree)
            heard, flags = of_own_axis(heard, tree_batched)
            return (heard, token), (flags, token_batched)
        tree, _ = _stacked(size, tree, tree_batched)
        heard, token = halo.hear(tables, down, token[0] if token_batched else token, tree)
        return (heard, token), (jax.tree.map(lambda _: True, heard), False)

    return hear


def _made_mean(wire: Wire, agents: int, call: HostCall) -> Any:
    """`mean(me, token, tree)`: the mean over all agents of all processes."""

    @custom_vmap
    def total(flat: jax.Array, token: jax.Array) -> Any:
        summing = wire.reduction(flat.size, flat.dtype)
        shapes = jax.ShapeDtypeStruct(flat.shape, flat.dtype), TOKEN
        return tuple(call(summing, shapes, token, flat))

    @total.def_vmap
    def _(size: int, batched: Any, flat: jax.Array, token: jax.Array) -> Any:
        flat = flat if batched[0] else jnp.broadcast_to(flat, (size, *flat.shape))
        return total(flat, token[0] if batched[1] else token), (True, False)

    @custom_vmap
    def mean(me: Any, token: Any, tree: Any) -> Any:
        return tree, token

    @mean.def_vmap
    def _(size: int, batched: Any, me: Any, token: Any, tree: Any) -> Any:
        me_batched, token_batched, tree_batched = batched
        if not me_batched:
            return mean(me, token, tree), (tree_batched, token_batched)
        tree, flags = _stacked(size, tree, tree_batched)
        token = token[0] if token_batched else token
        leaves, structure = jax.tree.flatten(tree)
        sums = [leaf.sum(axis=0) for leaf in leaves]
        flat, token = total(jnp.concatenate([s.reshape(-1) for s in sums]), token)
        stops = np.cumsum([s.size for s in sums])
        means = [
            jnp.broadcast_to(flat[stop - s.size : stop].reshape(s.shape) / agents, leaf.shape)
            for leaf, s, stop in zip(leaves, sums, stops, strict=True)
        ]
        return (jax.tree.unflatten(structure, means), token), (flags, False)

    return mean


def _stacked(size: int, tree: Tree, batched: Tree) -> tuple[Tree, Tree]:
    return stacked(size, tree, batched), jax.tree.map(lambda _: True, tree)
