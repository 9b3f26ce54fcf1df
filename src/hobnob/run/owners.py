"""What a run among owners does differently at its start and when it is interrupted."""

from __future__ import annotations

from hobnob.analysis.choose import across_owners
from hobnob.analysis.estimates import inner_curvatures
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.owners import Owners
from hobnob.core.problem import Problem
from hobnob.core.setup import Runtime
from hobnob.run.interrupt import Interrupt
from hobnob.runtimes.peers import Peers


def agreed_algorithm(runtime: Peers, problem: Problem, algorithm: Algorithm | None) -> Algorithm:
    """Wait for all members. Where no algorithm is given, take the one that survives losses.

    Its step sizes then come from the curvature of all members' losses: each tells two numbers.
    """
    own = Scale(0.0, 0.0)
    if algorithm is None:
        smallest, largest = inner_curvatures(problem.hosting(runtime.here().tolist()))
        own = Scale(largest, smallest)
    scale = runtime.agree(own)
    return algorithm or across_owners(scale)


def asked_to_stop(interrupt: Interrupt, runtime: Runtime, owners: Owners | None) -> bool:
    """Whether Ctrl-C ends this process's run now. It may also ask all owners to stop together."""
    asks_all = isinstance(runtime, Peers) and runtime.on_interrupt == "stop"
    if interrupt.requested and asks_all and owners is not None:
        owners.ask_to_stop()
        return False
    return interrupt.requested
