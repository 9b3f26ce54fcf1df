"""What one agent does reaches others only through messages, one hop a round."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from hobnob.core.network import Network
from hobnob.networks.lines import path
from hobnob.run.run import Run
from hobnob.testing.check import check, expect, gossip
from hobnob.testing.trial import Program, Trial

_CUT = 3  # the path is cut after this agent


@check(
    why="on a real network an agent knows of another only what was passed on, link by link.",
    applies=gossip,
)
def locality(trial: Trial) -> None:
    """A disturbance moves one hop a round along a path, and does not cross a cut."""
    program = trial.sampled
    network = path(program.network.size)
    run = program.elsewhere(network=network)
    with program.problem.precision():
        costs = program.run.costs
        rounds = int(costs.until(3)["rounds"][0] - costs.until(2)["rounds"][0])
    moved = _moved(program, run)
    expect(
        1 in moved,
        "nothing that agent 0 holds reached its neighbour in one step. If the method needs no "
        "network, let it say single_agent = True",
    )
    far = [k for k in moved if k > rounds]
    expect(
        not far,
        f"agent 0 was disturbed, and after {rounds} rounds of messages agent {max(far, default=0)} "
        f"had moved, {max(far, default=0)} hops away",
    )
    if program.takes_any_network:
        beyond = [k for k in _moved(program, _cut(program, network)) if k > _CUT]
        expect(not beyond, f"agents {beyond} moved, and no link leads to them from agent 0")


def _cut(program: Program, network: Network) -> Run:
    """The path with one link taken out: both ends keep its weight."""
    W = network.matrix.copy()
    a, b = _CUT, _CUT + 1
    W[[a, b], [a, b]] += W[a, b]
    W[[a, b], [b, a]] = 0
    return program.elsewhere(network=network, W=csr_array(W))


def _moved(program: Program, run: Run) -> list[int]:
    """The agents whose state after a step is another one if agent 0 is disturbed before."""
    with program.problem.precision():
        calm = run.gather_unpacked(run.advance(program.start(run), 0, 2).state)
        assert calm is not None
        disturbed = type(calm)(
            *(
                leaf.at[0].add(0.01) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
                for leaf in calm
            )
        )
        after = [
            run.gather_unpacked(run.advance(run.pack(start), 2, 3).state)
            for start in (calm, disturbed)
        ]
    size = run.network.size
    same = [np.asarray(a == b).reshape(size, -1).all(axis=1) for a, b in zip(*after, strict=True)]
    return np.flatnonzero(~np.all(same, axis=0)).tolist()
