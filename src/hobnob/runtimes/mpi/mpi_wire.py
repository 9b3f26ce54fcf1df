"""MpiWire: what one rank sends to others through MPI, and the count of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from hobnob.fast import Addresses
from hobnob.ground.cores import cpus
from hobnob.runtimes.apart.wiring import RoundPlan, together
from hobnob.runtimes.mpi.lifeline import Lifeline


class MpiWire:
    """Calls MPI for one rank. `sent` counts the messages and bytes of its agents."""

    loses = False  # all ranks live, or all end

    def __init__(self, comm: Any, lifeline: Lifeline, sent: dict[str, int]):
        self._comm, self.lifeline = comm, lifeline
        self.rank, self.sent = comm.rank, sent
        self.sent |= {"messages": 0, "bytes": 0}
        self._reductions: dict[Any, Reduction] = {}
        with lifeline.waiting("the ranks to find who shares their machine"):
            here = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.crowded = here.size >= len(cpus()) > 1
        here.Free()

    def neighbourhood(self, neighbours: np.ndarray) -> Any:
        """A communicator in which a rank has these neighbours."""
        ranks = neighbours.tolist()
        with self.lifeline.waiting("the ranks to find their neighbours"):
            return self._comm.Create_dist_graph_adjacent(ranks, ranks, reorder=False)

    def round(self, neighbourhood: Any, plan: RoundPlan) -> MpiRound:
        return MpiRound(self, neighbourhood, plan)

    def reduction(self, width: int, dtype: Any) -> Reduction:
        key = width, np.dtype(dtype)
        if key not in self._reductions:
            self._reductions[key] = Reduction(self, self._comm, width, dtype)
        return self._reductions[key]

    def count(self, messages: int, size: int) -> None:
        self.sent["messages"] += messages
        self.sent["bytes"] += size

    # Between chunks of steps: what is measured, saved and agreed on.

    def bcast(self, value: Any) -> Any:
        with self.lifeline.waiting("rank 0"):
            return self._comm.bcast(value)

    def gather(self, value: Any) -> Any:
        with self.lifeline.waiting("all ranks to tell rank 0"):
            return self._comm.gather(value)

    def allgather(self, value: Any) -> list[Any]:
        with self.lifeline.waiting("all ranks to tell each other"):
            return self._comm.allgather(value)

    def scatter(self, values: Any) -> Any:
        with self.lifeline.waiting("rank 0 to deal out a checkpoint"):
            return self._comm.scatter(values)


class MpiRound:
    """One exchange with the neighbouring ranks."""

    def __init__(self, wire: MpiWire, graph: Any, plan: RoundPlan):
        neighbours, rows, to, from_ = plan.neighbours, plan.rows, plan.to, plan.from_
        self._wire, self._graph, self._links = wire, graph, plan.links
        self._seeds, self._row_bytes = plan.seeds, plan.row_bytes
        self._rows, self._to, self._from, self._neighbours = rows, to, from_, neighbours
        sent = [rows[to == rank] for rank in neighbours]
        # Rows that lie together are sent from where they are.
        self.gathered = plan.links is None and not all(together(part) for part in sent)
        size = plan.seeds * plan.row_bytes
        counts = np.array([len(part) for part in sent])
        first = np.array([part[0] for part in sent])
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if self.gathered else first
        expected = np.array([(from_ == rank).sum() for rank in neighbours])
        self._send = (size * counts).tolist(), (size * starts).tolist()
        self._receive = (
            (size * expected).tolist(),
            (size * np.concatenate([[0], np.cumsum(expected)[:-1]])).tolist(),
        )
        self._reach = max(n + at for n, at in zip(*self._send, strict=True))
        self._total, self._incoming = int(sum(self._send[0])), int(sum(self._receive[0]))
        alike = plan.alike
        self._collective = graph.Neighbor_allgather if alike else graph.Neighbor_alltoallv
        self._how = (
            (self._send[0][0], self._receive[0][0]) if alike else (self._send, self._receive)
        )
        self._first = self._send[1][0] if alike else 0  # where the rows to send begin
        self._last: tuple[int, int] = 0, 0
        self._messages: tuple[Any, Any] = [], []

    def called(self, inputs: Addresses, outputs: Addresses) -> None:
        wire = self._wire
        wire.lifeline.wait_began("its neighbours")
        try:
            if self._links is None:
                self._exchange(inputs[1], outputs[0])
            else:
                self._exchange_live(inputs[1], inputs[2], outputs[0])
        except MPI.Exception as error:
            wire.lifeline.despair(str(error))
        wire.lifeline.wait_ended()

    def _exchange(self, block: int, into: int) -> None:
        if self._last != (block, into):  # a loop's buffers stay where they are
            self._last, (send, receive) = (block, into), self._how
            self._messages = (
                [_memory(block + self._first, self._reach - self._first), send, MPI.BYTE],
                [_memory(into, self._incoming), receive, MPI.BYTE],
            )
        self._collective(*self._messages)
        self._wire.count(len(self._neighbours), self._total)

    def _exchange_live(self, block: int, down: int, into: int) -> None:
        assert self._links is not None
        out_links, in_links = self._links
        up = ~_array(down, (self._seeds, out_links.shape[1]), bool)
        goes, comes = ((up @ links.T).T for links in (out_links, in_links))  # [rows, seeds]
        size, agents = self._row_bytes, int(self._rows.max()) + 1
        held = _array(block, (agents, self._seeds, size), np.uint8)
        packed = held[self._rows][goes]
        arrived = np.empty((int(comes.sum()), size), np.uint8)
        sizes = [size * _per_rank(goes, self._to, rank) for rank in self._neighbours]
        expected = [size * _per_rank(comes, self._from, rank) for rank in self._neighbours]
        self._graph.Neighbor_alltoallv([packed, sizes, MPI.BYTE], [arrived, expected, MPI.BYTE])
        # What did not come has no weight, and must be a number all the same.
        heard = _array(into, (len(self._from), self._seeds, size), np.uint8)
        heard[...] = 0
        heard[comes] = arrived
        self._wire.count(sum(n > 0 for n in sizes), packed.nbytes)


class Reduction:
    """The sum over all ranks, of so many numbers."""

    def __init__(self, wire: MpiWire, comm: Any, width: int, dtype: Any):
        self._wire, self._comm = wire, comm
        self._bytes = width * np.dtype(dtype).itemsize
        self._type = MPI.DOUBLE if np.dtype(dtype) == np.float64 else MPI.FLOAT

    def called(self, inputs: Addresses, outputs: Addresses) -> None:
        self._wire.lifeline.wait_began("all ranks to add up")
        try:
            self._comm.Allreduce(
                [_memory(inputs[1], self._bytes), self._type],
                [_memory(outputs[0], self._bytes), self._type],
            )
        except MPI.Exception as error:
            self._wire.lifeline.despair(str(error))
        self._wire.lifeline.wait_ended()
        self._wire.count(1, self._bytes)


def _per_rank(live: np.ndarray, ranks: np.ndarray, rank: int) -> int:
    return int(live[ranks == rank].sum())


def _memory(address: int, size: int) -> Any:
    return MPI.memory.fromaddress(address, size)


def _array(address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(_memory(address, size), dtype).reshape(shape)
