"""Rounds per second through hb.Mpi against the same exchange in bare mpi4py, and weak scaling.

A round is one `agent.mix` of every agent: on a ring of five ranks with one agent each, every agent
sends its vector to two neighbours and adds up three. The bare round does the same with
`Neighbor_allgather` and NumPy; "exchange" is the collective alone. The three are measured in turn,
in the same processes, many times. The best of each counts, since other load on the machine can only
slow them down.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import hobnob as hb
from benchmarks.table import Row
from hobnob.core.setup import Setup
from hobnob.run.run import Run

SIZES = {"112 B": 14, "313 kB": 39_125, "8 MB": 1_000_000}  # numbers in float64
ROUNDS = {"112 B": 2000, "313 kB": 200, "8 MB": 6}  # in a turn of one second
GOALS = {"112 B": 0.5, "313 kB": 0.7, "8 MB": 0.9}
RANKS, TURNS = 5, 25


class State(NamedTuple):
    x: jax.Array
    y: jax.Array


@dataclass(frozen=True, kw_only=True)
class Gossip(hb.Algorithm):
    """x+ = W x."""

    exact: ClassVar[bool] = False

    def init(self, agent: hb.Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: hb.Agent, state: State) -> State:
        return State(agent.mix(state.x), state.y)


def problem_of(agents: int, numbers: int) -> hb.Problem:
    def loss(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean((y - batch) ** 2) + 0 * x[0]

    shards = [np.ones(1)] * agents
    return hb.Problem(loss, loss, np.ones(numbers), np.ones(()), shards, shards)


def timed(comm: Any, act: Callable[[int], Any], rounds: int) -> float:
    """Rounds per second."""
    comm.Barrier()
    clock = time.perf_counter()
    act(rounds)
    comm.Barrier()
    return rounds / (time.perf_counter() - clock)


def bare(comm: Any, numbers: int) -> tuple[Callable[[int], None], Callable[[int], None]]:
    neighbours = sorted({(comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size})
    graph = comm.Create_dist_graph_adjacent(neighbours, neighbours)
    x, total, term = np.ones(numbers), np.empty(numbers), np.empty(numbers)
    heard = np.empty((len(neighbours), numbers))

    def exchange(rounds: int) -> None:
        for _ in range(rounds):
            graph.Neighbor_allgather(x, heard)

    def mix(rounds: int) -> None:
        nonlocal x, total
        for _ in range(rounds):
            graph.Neighbor_allgather(x, heard)
            np.multiply(x, 1 / 3, out=total)
            for row in heard:
                np.multiply(row, 1 / 3, out=term)
                np.add(total, term, out=total)
            x, total = total, x

    return exchange, mix


def rounds_table(out: Path, seconds: float) -> None:
    from mpi4py import MPI

    comm, found = MPI.COMM_WORLD, {}
    for size, numbers in SIZES.items():
        runtime, network = hb.Mpi(), hb.ring(comm.size)
        problem = problem_of(comm.size, numbers)
        with problem.precision(), runtime.watched(network):
            run = Run.start(runtime, Setup(problem, network, Gossip()))
            state = run.initial_state()

            def through(rounds: int, run: Any = run, state: Any = state) -> None:
                bool(run.advance(state, 0, rounds).finite)  # waits for the device

            exchange, mix = bare(comm, numbers)
            acts = {"hobnob": through, "bare round": mix, "exchange": exchange}
            for act in acts.values():
                act(3)
            rounds = max(3, int(seconds * ROUNDS[size]))
            turns = [{n: timed(comm, act, rounds) for n, act in acts.items()} for _ in range(TURNS)]
            found[size] = {n: max(turn[n] for turn in turns) for n in acts}
    if comm.rank == 0:
        out.write_text(json.dumps(found))


def scaling(out: Path, seconds: float) -> None:
    """DSBO with four agents per rank: steps per second."""
    from mpi4py import MPI

    comm, agents = MPI.COMM_WORLD, 4 * MPI.COMM_WORLD.size
    problem = hb.problems.get("quadratic")(agents=agents, records=50, noise=0.1, batch_size=4)
    dsbo = hb.DSBO.suggest(hb.Scale(12.0, 1.0))
    network, runtime = hb.ring(agents), hb.Mpi()
    with problem.precision(), runtime.watched(network):
        run = Run.start(runtime, Setup(problem, network, dsbo.bind(agents, 1000)))
        state = run.initial_state()
        run.advance(state, 0, 3)
        steps = max(20, int(200 * seconds))
        rates = [
            timed(comm, lambda n: bool(run.advance(state, 0, n).finite), steps)
            for _ in range(TURNS)
        ]
    if comm.rank == 0:
        out.write_text(json.dumps({"agents": agents, "steps/s": max(rates)}))


def launched(ranks: int, what: str, seconds: float) -> dict[str, Any]:
    out = Path(f".mpi_rounds.{os.getpid()}.json")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    root["OMPI_MCA_mpi_yield_when_idle"] = "1"  # as in `hobnob run --ranks`
    mpirun = [str(Path(sys.executable).parent / "mpirun"), "-n", str(ranks), "--oversubscribe"]
    worker = [sys.executable, "-m", "benchmarks.mpi_rounds", what, str(out), str(seconds)]
    try:
        subprocess.run([*mpirun, *worker], env={**os.environ, **root}, check=True)
        return json.loads(out.read_text())
    finally:
        out.unlink(missing_ok=True)


def rows(quick: bool) -> Iterator[Row]:
    seconds = 0.1 if quick else 0.5
    for size, found in launched(RANKS, "rounds", seconds).items():
        rates = ", ".join(f"{who} {rate:,.0f}" for who, rate in found.items())
        yield Row(f"hb.Mpi, {RANKS} ranks, rounds of {size}", "the same in mpi4py and NumPy",
                  found["hobnob"] / found["bare round"], GOALS[size],
                  detail=f"rounds/s: {rates}")  # fmt: skip
    one = 0.0
    for ranks in (1, 2, 4):
        found = launched(ranks, "scaling", seconds)
        rate = found["steps/s"] * found["agents"]
        one = one or rate
        yield Row(f"DSBO, hb.Mpi, four agents a rank, {ranks} ranks", "agent steps/s of one rank",
                  rate / one, None, detail=f"{rate:,.0f} agent steps/s")  # fmt: skip


def worker() -> None:
    what, out, seconds = sys.argv[1:]
    {"rounds": rounds_table, "scaling": scaling}[what](Path(out), float(seconds))


if __name__ == "__main__":
    worker()
