"""PeerWire: rounds of a compiled step as frames to other owners' processes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from hobnob.fast import Addresses, HostFunction
from hobnob.ground.errors import SettingError
from hobnob.runtimes.apart.wire import RoundPlan
from hobnob.runtimes.peers.frames import Kind
from hobnob.runtimes.peers.rounds import Parcel, Rounds


class PeerWire:
    """Carries rows to neighbouring members. A member that is away takes its links down.

    `fault` is what went wrong inside a compiled step, where nobody could catch it.
    """

    loses = True

    def __init__(self, rounds: Rounds):
        self._rounds, self.rank = rounds, rounds.talk.me
        self.fault: BaseException | None = None

    def neighbourhood(self, neighbours: np.ndarray) -> None:
        return None

    def round(self, neighbourhood: Any, plan: RoundPlan) -> PeerRound:
        return PeerRound(self, self._rounds, plan)

    def reduction(self, width: int, dtype: Any) -> HostFunction:
        raise SettingError(
            "This method speaks through a server, and among owners there is none. Use a method for "
            "gossip, such as EdgeSPARKLE."
        )


class PeerRound:
    """One exchange with the neighbouring members."""

    gathered = False

    def __init__(self, wire: PeerWire, rounds: Rounds, plan: RoundPlan):
        self._wire, self._rounds, self._plan = wire, rounds, plan
        self._agents = int(plan.rows.max()) + 1
        self._out = {int(n): np.flatnonzero(plan.to == n) for n in plan.neighbours}
        self._in = {int(n): np.flatnonzero(plan.from_ == n) for n in plan.neighbours}
        self._crossing = dict(zip(self._out, plan.crossing, strict=True))
        most = max(len(places) for places in self._in.values())
        rounds.talk.allow(most * plan.seeds * plan.row_bytes)

    def called(self, inputs: Addresses, outputs: Addresses) -> None:
        plan = self._plan
        links = plan.crossing.shape[1]
        block = _at(inputs[1], (self._agents, plan.seeds, plan.row_bytes))
        heard = _at(outputs[0], (len(plan.from_), plan.seeds, plan.row_bytes))
        gone = _at(outputs[1], (links,))
        heard[...] = gone[...] = 0
        try:
            down = None if plan.links is None else _at(inputs[2], (plan.seeds, links))
            self._exchange(block, down, heard, gone)
        except BaseException as fault:  # raised again after the step: XLA is no Python
            self._wire.fault = self._wire.fault or fault
            gone[...] = plan.crossing.any(axis=0)

    def _exchange(
        self, block: np.ndarray, down: np.ndarray | None, heard: np.ndarray, gone: np.ndarray
    ) -> None:
        plan = self._plan
        goes = comes = None
        if down is not None:
            assert plan.links is not None
            goes, comes = ((~down.astype(bool) @ served.T).T for served in plan.links)
        parcels = {}
        for number, out in self._out.items():
            rows, places = plan.rows[out], self._in[number]
            if goes is None or comes is None:
                pieces, count = [block[row] for row in rows], len(places) * plan.seeds
            else:
                pieces, count = [block[rows][goes[out]]], int(comes[places].sum())
            parcels[number] = Parcel(pieces, count * plan.row_bytes)
        found = self._rounds.exchange(Kind.ROUND, plan.dtype, parcels)
        for number, places in self._in.items():
            if number not in found:  # its rows have no weight, but must be numbers: they are 0
                gone |= self._crossing[number]
            elif comes is None:
                first = places[0]  # a neighbour's rows lie together
                rows = found[number].view(np.uint8).reshape(len(places), *heard.shape[1:])
                heard[first : first + len(places)] = rows
            else:
                rows = found[number].view(np.uint8).reshape(-1, plan.row_bytes)
                row, seed = np.nonzero(comes[places])
                heard[places[0] + row, seed] = rows


def _at(address: int, shape: tuple[int, ...]) -> np.ndarray:
    """The bytes at an address."""
    size = int(np.prod(shape))
    if not size:
        return np.zeros(shape, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).reshape(shape)
