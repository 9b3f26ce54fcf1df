"""What a run among owners does differently at its start and when it is interrupted."""

from __future__ import annotations

import numpy as np

from hobnob.analysis.choose import across_owners
from hobnob.analysis.estimates import inner_curvatures
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.owners import Owners
from hobnob.core.problem import Problem
from hobnob.core.setup import Runtime
from hobnob.run.interrupt import Interrupt
from hobnob.runtimes.peers import Peers, combined


def agreed_algorithm(runtime: Peers, problem: Problem, algorithm: Algorithm | None) -> Algorithm:
    """Wait for all members. Where no algorithm is given, take the one that survives losses.

    Its step sizes then come from the curvature of all members' losses: each tells two numbers. In a
    rehearsal all of them are here.
    """

    def scale_of(agents: np.ndarray) -> Scale:
        smallest, largest = inner_curvatures(problem.hosting(agents.tolist()))
        return Scale(largest, smallest)

    if runtime.among_owners:
        scale = runtime.agree(Scale(0.0, 0.0) if algorithm else scale_of(runtime.here()))
        return algorithm or across_owners(scale)
    if algorithm is not None:
        return algorithm
    every = [scale_of(part) for part in runtime.federation.parts]
    return across_owners(combined(every))


def asked_to_stop(interrupt: Interrupt, runtime: Runtime, owners: Owners | None) -> bool:
    """Whether Ctrl-C ends this process's run now. It may also ask all owners to stop together."""
    asks_all = isinstance(runtime, Peers) and runtime.on_interrupt == "stop"
    if interrupt.requested and asks_all and owners is not None:
        owners.ask_to_stop()
        return False
    return interrupt.requested
