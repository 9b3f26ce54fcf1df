"""Halo: what the agents of one process hear from agents elsewhere, and how it gets there.

A round is one packed message to each neighbouring process, with the row of every agent that
somebody there is linked to. A row is a whole message of an agent: all arrays that `mix` or
`flow` was given, and nothing else.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from scipy.sparse import csr_array

from hobnob.core.links import Links
from hobnob.core.network import Network
from hobnob.fast import HostCall
from hobnob.runtimes.apart.wiring import Round, RoundPlan, Wire, together
from hobnob.runtimes.simulate.mixing import failing_tables, mixed, mixing_tables, without
from hobnob.runtimes.simulate.neighbours import Neighbours, neighbours_of, symmetric

_MOST_UNROLLED = 64  # terms of all sums here: beyond, rows are gathered from one stack
TOKEN = jax.ShapeDtypeStruct((), np.int32)


class Halo:
    """One network seen from one process.

    here, heard   the agents of this process, and those elsewhere that they are linked to
    outgoing      (agent, process) for every row that goes out, neighbour by neighbour
    tables        W for the agents here, over the agents here and then those heard
    neighbours    the same link by link, where the algorithm keeps what flows over them
    """

    def __init__(
        self,
        network: Network,
        parts: list[np.ndarray],
        wire: Wire,
        links: Links | None,
        dtype: Any,
        call: HostCall,
        flows: bool = False,
    ):
        self._wire, self._links, self._call = wire, links, call
        rank, here, home = wire.rank, parts[wire.rank], _homes(parts)
        pairs = _crossing(network, home)
        self._alike = _alike(pairs, home, parts)
        outgoing = pairs[home[pairs[:, 0]] == rank]
        incoming = pairs[pairs[:, 1] == rank]
        self.outgoing = outgoing[np.lexsort((outgoing[:, 0], outgoing[:, 1]))]
        incoming = incoming[np.lexsort((incoming[:, 0], home[incoming[:, 0]]))]
        self.here, self.heard = here, incoming[:, 0]
        self._rows = np.searchsorted(here, self.outgoing[:, 0])
        self._neighbours = np.unique(self.outgoing[:, 1])
        self._neighbourhood = wire.neighbourhood(self._neighbours)
        self._from = home[self.heard]
        numbers = np.concatenate([here, self.heard])
        W = _rows_of(network.sparse, here, numbers)
        self.tables = mixing_tables(W, dtype)
        self._columns: np.ndarray | None = None
        table = self.tables.get("table")
        if table is not None and "long" not in self.tables and table.size <= _MOST_UNROLLED:
            self._columns = np.asarray(table)
        self.failing: dict[str, Any] = {}
        self._ends = network.ends
        if links is not None or wire.loses:
            self.failing = failing_tables(self.tables, W, self._ends, numbers)
        self.neighbours: Neighbours | None = None
        if flows:
            linked = _rows_of(symmetric(network.sparse), here, numbers)
            most = network.most_links
            self.neighbours = neighbours_of(linked, most, self._ends, dtype, numbers)
        self._served = None
        if links is not None:
            self._served = (
                _links_of(self.outgoing, home, self._ends),
                _links_of(incoming, home, self._ends),
            )
        far = np.where(home[self._ends] == rank, -1, home[self._ends])
        mine = (home[self._ends] == rank).any(axis=1)
        self._crossing = (far[None] == self._neighbours[:, None, None]).any(axis=-1) & mine
        self._rounds: dict[Any, Round] = {}
        self._exchange = self._made_exchange()

    def mix(self, tables: Any, down: Any, token: Any, tree: Any) -> tuple[Any, Any]:
        """The weighted sums of all agents here, and the token for the next round.

        `tables` are W's and those to take failing links out of it.
        """
        weights, failing = tables
        far, down, token = self._hear(down, token, tree)
        if down is not None:
            weights = without(weights, failing, down)
        return jax.tree.map(lambda near, far: self._sum(weights, near, far), tree, far), token

    def hear(self, neighbours: Neighbours, down: Any, token: Any, tree: Any) -> tuple[Any, Any]:
        """What all agents here hear from each neighbour, and the token for the next round."""
        far, down, token = self._hear(down, token, tree)
        if down is not None:
            neighbours = neighbours.without(down)
        stack = jax.tree.map(lambda near, far: jnp.concatenate([near, far]), tree, far)
        return neighbours.heard(stack), token

    def _hear(self, down: Any, token: Any, tree: Any) -> tuple[Any, Any, Any]:
        """The tree of all agents elsewhere, the links that are down, and the next token."""
        leaves, structure = jax.tree.flatten(tree)
        block, unpack = _packed(leaves)
        planned = jnp.zeros(0, bool) if down is None else down
        received, gone, token = self._exchange(block, planned, token)
        if self._wire.loses:
            down = gone if down is None else down | gone
        return jax.tree.unflatten(structure, unpack(received)), down, token

    def _sum(self, tables: Any, near: jax.Array, far: jax.Array) -> jax.Array:
        count, columns = len(self.here), self._columns
        if columns is None:
            return mixed(tables, jnp.concatenate([near, far]))[:count]
        # Few terms: each is read where it lies.
        weights = tables["weights"]

        def term(i: int, k: int) -> jax.Array:
            j = columns[i, k]
            return weights[i, k] * (near[j] if j < count else far[j - count])

        sums = []
        for k in range(count):
            total = term(0, k)
            for i in range(1, len(columns)):
                total = total + term(i, k)
            sums.append(total)
        return jnp.stack(sums)

    def _made_exchange(self) -> Any:
        """`exchange(block, down, token)`: sends one row an agent, returns the rows heard.

        It returns too which links went down by themselves, and the next token. Several seeds are
        one more axis in front, and travel together.
        """

        @custom_vmap
        def exchange(block: jax.Array, down: jax.Array, token: jax.Array) -> Any:
            received, gone, token = self._of_seeds(block[None], down[None], token)
            return received[0], gone, token

        @exchange.def_vmap
        def _(size: int, batched: Any, block: Any, down: Any, token: Any) -> Any:
            block, down = (
                leaf if stacked else jnp.broadcast_to(leaf, (size, *leaf.shape))
                for leaf, stacked in ((block, batched[0]), (down, batched[1]))
            )
            token = token[0] if batched[2] else token
            return self._of_seeds(block, down, token), (True, False, False)

        return exchange

    def _of_seeds(self, block: jax.Array, down: jax.Array, token: jax.Array) -> Any:
        seeds, _, width = block.shape
        none_gone = jnp.zeros(len(self._ends), bool)
        if not len(self.heard):
            return jnp.zeros((seeds, 0, width), block.dtype), none_gone, token
        key = seeds, width, block.dtype
        if key not in self._rounds:
            self._rounds[key] = self._round(seeds, width * block.dtype.itemsize, block.dtype)
        rows = jnp.moveaxis(block, 0, 1)
        if self._rounds[key].gathered:
            rows = rows[self._rows]
        received = jax.ShapeDtypeStruct((len(self.heard), seeds, width), block.dtype)
        gone = jax.ShapeDtypeStruct((len(self._ends),), np.bool_)
        asked = (rows,) if self._links is None else (rows, down)
        results = (received, gone, TOKEN) if self._wire.loses else (received, TOKEN)
        rows, *gone, token = self._call(self._rounds[key], results, token, *asked)
        return jnp.moveaxis(rows, 1, 0), gone[0] if gone else none_gone, token

    def _round(self, seeds: int, row_bytes: int, dtype: Any) -> Round:
        plan = RoundPlan(
            neighbours=self._neighbours,
            rows=self._rows,
            to=self.outgoing[:, 1],
            from_=self._from,
            seeds=seeds,
            row_bytes=row_bytes,
            dtype=np.dtype(dtype),
            alike=self._alike,
            links=self._served,
            crossing=self._crossing,
        )
        return self._wire.round(self._neighbourhood, plan)


def _homes(parts: list[np.ndarray]) -> np.ndarray:
    home = np.empty(sum(len(part) for part in parts), np.int64)
    for rank, part in enumerate(parts):
        home[part] = rank
    return home


def _crossing(network: Network, home: np.ndarray) -> np.ndarray:
    """(agent, process) for every process but the agent's own that hosts a neighbour of it."""
    rows = np.repeat(np.arange(network.size), np.diff(network.sparse.indptr))
    heard_on = home[network.sparse.indices]
    cross = home[rows] != heard_on
    return np.unique(np.stack([rows[cross], heard_on[cross]], axis=1), axis=0)


def _alike(pairs: np.ndarray, home: np.ndarray, parts: list[np.ndarray]) -> bool:
    """True if on every process all neighbours get the same rows and send equally many.

    Then MPI's simplest collective does. All ranks must take the same one, so all look at all.
    """
    for rank, here in enumerate(parts):
        out, into = pairs[home[pairs[:, 0]] == rank], pairs[pairs[:, 1] == rank]
        sent = {tuple(out[out[:, 1] == other, 0].tolist()) for other in np.unique(out[:, 1])}
        heard = np.unique(home[into[:, 0]], return_counts=True)[1]
        if len(sent) > 1 or len(set(heard.tolist())) > 1:
            return False
        rows = [np.searchsorted(here, list(agents)) for agents in sent]
        if len(np.unique(out[:, 1])) > 1 and not all(together(row) for row in rows):
            return False
    return True


def _rows_of(W: Any, here: np.ndarray, numbers: np.ndarray) -> csr_array:
    """W's rows for the agents here, with columns renumbered; entries keep the order of agents."""
    column = np.full(W.shape[0], -1, np.int64)
    column[numbers] = np.arange(len(numbers))
    kept = [np.arange(W.indptr[k], W.indptr[k + 1]) for k in here]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in kept])])
    entries = np.concatenate(kept)
    shape = len(here), len(numbers)
    return csr_array((W.data[entries], column[W.indices[entries]], indptr), shape=shape)


def _links_of(pairs: np.ndarray, home: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """[pairs, links]: True if the link needs this agent's row on this rank."""
    return np.stack(
        [
            ((ends[:, 0] == agent) & (home[ends[:, 1]] == rank))
            | ((ends[:, 1] == agent) & (home[ends[:, 0]] == rank))
            for agent, rank in pairs
        ]
        or [np.zeros(len(ends), bool)]
    )[: len(pairs)]


def _packed(leaves: list[jax.Array]) -> tuple[jax.Array, Any]:
    """All leaves as one row an agent, and the way back. Leaves of mixed types become bytes."""
    one_type = len({leaf.dtype for leaf in leaves}) == 1

    def flat(leaf: jax.Array) -> jax.Array:
        raw = leaf if one_type else jax.lax.bitcast_convert_type(leaf, jnp.uint8)
        return raw.reshape(leaf.shape[0], -1)

    parts = [flat(leaf) for leaf in leaves]
    stops = np.cumsum([part.shape[1] for part in parts])

    def unpack(block: jax.Array) -> list[jax.Array]:
        found = []
        for leaf, part, stop in zip(leaves, parts, stops, strict=True):
            columns = block[:, stop - part.shape[1] : stop]
            shape = block.shape[0], *leaf.shape[1:]
            if not one_type and leaf.dtype.itemsize > 1:
                columns = columns.reshape(*shape, leaf.dtype.itemsize)
            elif not one_type:
                columns = columns.reshape(shape)
            found.append(
                columns.reshape(shape)
                if one_type
                else jax.lax.bitcast_convert_type(columns, leaf.dtype)
            )
        return found

    return (parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)), unpack
