"""AmongOwners: between the steps of one owner's run, what its neighbours change.

Links come up and go down there, what flowed over them is made to agree, and recorded steps are
told.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from hobnob.core.owners import Company, Report
from hobnob.core.setup import Setup, Tree
from hobnob.runtimes.peers.frames import Kind
from hobnob.runtimes.peers.rounds import Parcel, Rounds
from hobnob.runtimes.peers.wire import PeerWire

_DOUBLE = np.dtype(np.float64)


class Crossing:
    """The links between the agents here and those of one neighbouring member.

    Both ends list them in the same order.

    own, theirs   the agents at the two ends of each link, by number
    places, rows  where a memory of flows has the link: the agent's place here, its row
    """

    def __init__(self, ends: np.ndarray, here: np.ndarray, neighbours: dict[int, list[int]]):
        mine = np.isin(ends, here)
        self.own, self.theirs = ends[mine], ends[~mine]
        self.places = np.searchsorted(here, self.own)
        self.rows = np.array(
            [neighbours[k].index(j) for k, j in zip(self.own, self.theirs, strict=True)], np.int64
        )
        self.senders = np.unique(self.places)  # who of here is heard there
        self.heard = np.unique(self.theirs)  # who of there is heard here


class AmongOwners:
    """The other owners, for the loop of this one."""

    def __init__(self, rounds: Rounds, wire: PeerWire, setup: Setup):
        self._rounds, self._wire, self._talk = rounds, wire, rounds.talk
        federation, network = self._talk.federation, setup.network
        self._here = federation.parts[self._talk.me]
        self._W, self._flows = network.sparse, setup.algorithm.flows
        self._many_seeds = setup.many_seeds
        neighbours = {int(k): sorted(network.neighbours(int(k))) for k in self._here}
        self._neighbours = neighbours
        self._crossing = {}
        for number in self._talk.links:
            there = federation.parts[number]
            joins = np.isin(network.ends, self._here).any(axis=1)
            joins &= np.isin(network.ends, there).any(axis=1)
            self._crossing[number] = Crossing(network.ends[joins], self._here, neighbours)
        self._up: set[int] = set()

    @property
    def company(self) -> Company:
        return self._talk.company

    @property
    def up(self) -> list[int]:
        return self._rounds.up

    @property
    def sent(self) -> tuple[int, int]:
        links = self._talk.links.values()
        return sum(link.messages for link in links), sum(link.sent for link in links)

    def begin(self, step: int) -> int:
        return self._rounds.begin(step)

    def next_step(self, step: int) -> int:
        self._raise_fault()
        return self._rounds.next_step(step)

    def stays(self, step: int) -> bool:
        return self._wire.fault is None and self._rounds.stays(step)

    def over(self, step: int) -> bool:
        return self._rounds.over(step)

    def ask_to_stop(self) -> None:
        self._rounds.ask_to_stop()

    def end(self, finished: bool) -> None:
        self._rounds.end(finished)
        self._raise_fault()

    def _raise_fault(self) -> None:
        if self._wire.fault is not None:
            raise self._wire.fault

    # --- what flowed over links ----------------------------------------------------------------

    def enter(self, step: int, state: Tree) -> Tree:
        new = {link.number for link in self._rounds.enter(step)}
        before, self._up = self._up, set(self._rounds.up)
        if not self._flows or (step == 0 and new == self._up and not before):
            return state  # nothing has flowed yet
        if self._talk.rules.duals == "dropped":
            return self._reset(state, (before - self._up) | new)
        return self._agree(state, new) if new else state

    def _reset(self, state: Tree, numbers: set[int]) -> Tree:
        """Forget what flowed to these members."""
        for number in sorted(numbers):
            nothing = [np.zeros_like(rows) for rows in self._memories(state, number)]
            state = self._with_memories(state, number, nothing)
        return state

    def _agree(self, state: Tree, numbers: set[int]) -> Tree:
        """Make what flowed equal and opposite at both ends again: half of what they differ by.

        If it was so already, this changes nothing, to the last bit. If one of the two missed the
        last message, or comes from an old checkpoint, no sum over agents stays wrong.
        """
        own = {number: self._memories(state, number) for number in sorted(numbers)}
        parcels = {}
        for number, rows in own.items():
            size = sum(piece.nbytes for piece in rows)
            self._talk.allow(size)
            parcels[number] = Parcel(rows, size)
        dtype = next(iter(own.values()))[0].dtype
        for number, theirs in self._rounds.exchange(Kind.FLOWS, dtype, parcels).items():
            at, settled = 0, []
            for mine in own[number]:
                other = theirs[at : at + mine.size].reshape(mine.shape)
                settled.append((mine - other) / 2)
                at += mine.size
            state = self._with_memories(state, number, settled)
        return state

    def _memories(self, state: Tree, number: int) -> list[np.ndarray]:
        """Of every memory of flows, its rows for the links to one member."""
        return [np.asarray(getattr(state, f))[self._where(number)] for f in self._flows]

    def _with_memories(self, state: Tree, number: int, rows: list[np.ndarray]) -> Tree:
        changed = {}
        for name, new in zip(self._flows, rows, strict=True):
            leaf = np.array(getattr(state, name))
            leaf[self._where(number)] = new
            changed[name] = jnp.asarray(leaf)
        return state._replace(**changed)

    def _where(self, number: int) -> Any:
        crossing = self._crossing[number]
        where = crossing.places, crossing.rows
        return (slice(None), *where) if self._many_seeds else where

    # --- what recorded steps tell --------------------------------------------------------------

    def report(self, rows: np.ndarray) -> list[Report]:
        rows = np.ascontiguousarray(rows, _DOUBLE)
        parcels = {}
        for number, crossing in self._crossing.items():
            size = rows[0].nbytes * len(crossing.heard)
            self._talk.allow(size)
            parcels[number] = Parcel([rows[crossing.senders]], size)
        found = self._rounds.exchange(Kind.REPORT, _DOUBLE, parcels)
        heard = {int(k): (0, rows[place]) for place, k in enumerate(self._here)}
        for number, numbers in found.items():
            theirs = self._crossing[number].heard.tolist()
            epoch = self._talk.links[number].epoch
            heard |= {
                j: (epoch, row)
                for j, row in zip(theirs, numbers.reshape(len(theirs), -1), strict=True)
            }
        return [
            Report(place, j, heard[j][0], float(self._W[k, j]), heard[j][1])
            for place, k in enumerate(self._here.tolist())
            for j in self._neighbours[k]
            if j in heard
        ]
