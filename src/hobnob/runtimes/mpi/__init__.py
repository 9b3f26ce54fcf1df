"""Mpi: agents spread over the processes of an MPI job, several to a process."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hobnob.core.network import Network
from hobnob.core.setup import Setup
from hobnob.ground.errors import CheckpointError, HobnobError, SettingError
from hobnob.runtimes.mpi.lifeline import Lifeline
from hobnob.runtimes.mpi.spread import spread

if TYPE_CHECKING:
    from hobnob.runtimes.apart.across import Across
    from hobnob.runtimes.mpi.ranks import MpiGroup


class Mpi:
    """Runs the same call under `mpirun -n R python script.py`, with R <= K.

    Every rank makes the same call and gets the same result. Rank 0 measures, writes and prints.

    Args:
        silence: seconds after which a rank that shows no sign of life counts as lost: all end.
        patience: seconds that a rank may wait for others that do live.

    Of the last run, `parts` are the agents of each rank, and `sent` is what this rank handed to MPI
    for its agents: {"messages", "bytes"}.

    Example:
        >>> import hobnob as hb
        >>> mpi = hb.Mpi(silence=30.0)  # then hb.solve(..., runtime=mpi), under mpirun
        >>> mpi.silence, mpi.patience
        (30.0, 600.0)
    """

    programs = None

    def __init__(self, silence: float = 15.0, patience: float = 600.0):
        for name, value in (("silence", silence), ("patience", patience)):
            if not isinstance(value, int | float) or not 2 <= value < float("inf"):
                raise SettingError(f"{name} = {value!r} must be a number of seconds, at least 2.")
        self.silence, self.patience = float(silence), float(patience)
        self.sent = {"messages": 0, "bytes": 0}
        self.parts: list[np.ndarray] = []

    @property
    def rank(self) -> int:
        return _world().rank

    @property
    def leads(self) -> bool:
        """True at rank 0, which measures, writes and prints."""
        return self.rank == 0

    @contextmanager
    def watched(self, network: Network) -> Iterator[None]:
        """Inside it, all ranks live, or all end."""
        comm = _world()
        if network.size < comm.size:
            raise _quiet(
                comm.rank,
                SettingError(
                    f"There are {network.size} agents for {comm.size} ranks: rank {network.size} "
                    f"would host none. Start at most {network.size} ranks, or use a larger network."
                ),
            )
        self.parts = comm.bcast(spread(network, comm.size) if comm.rank == 0 else None)
        who = [f"rank {rank} ({_agents(part)})" for rank, part in enumerate(self.parts)]
        self._line = Lifeline(comm, who, self.silence, self.patience)
        try:
            yield
        except BaseException as error:
            if isinstance(error, CheckpointError):
                error.args = (f"{who[0].capitalize()}, which writes for all: {error}",)
            known = isinstance(error, HobnobError)
            words = str(error) if known else f"{type(error).__name__}: {error}"
            self._line.fail(words, "" if known else traceback.format_exc())
            _quiet(comm.rank, error)
            raise
        with self._line.waiting("all ranks to finish"):
            comm.Barrier()
        self._line.hang_up()

    def join(self, setup: Setup) -> tuple[MpiGroup, Across]:
        # These import mpi4py, which may be missing and which starts MPI.
        from hobnob.runtimes.apart.across import Across
        from hobnob.runtimes.apart.host_call import host_call
        from hobnob.runtimes.mpi.mpi_wire import MpiWire
        from hobnob.runtimes.mpi.ranks import MpiGroup

        wire = MpiWire(_world(), self._line, self.sent)
        return MpiGroup(wire, self.parts), Across(setup, wire, self.parts, host_call())


def _world() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise SettingError(
            f"hb.Mpi needs mpi4py and an MPI library ({error}): pip install 'hobnob[mpi]' brings "
            f"both."
        ) from error
    return MPI.COMM_WORLD


def _agents(part: np.ndarray) -> str:
    numbers = part.tolist()
    if len(numbers) == 1:
        return f"agent {numbers[0]}"
    few = ", ".join(map(str, numbers[:6]))
    return f"agents {few}" + (f", ... {numbers[-1]}" if len(numbers) > 6 else "")


def _quiet(rank: int, error: BaseException) -> BaseException:
    """Mark an error that all ranks have, so that only rank 0 prints it."""
    if rank:
        error.quiet = True  # type: ignore[attr-defined]
        shown = sys.excepthook
        if not getattr(shown, "of_hobnob", False):

            def hook(kind: Any, value: Any, trace: Any) -> None:
                if not getattr(value, "quiet", False):
                    shown(kind, value, trace)

            hook.of_hobnob = True  # type: ignore[attr-defined]
            sys.excepthook = hook
    return error
