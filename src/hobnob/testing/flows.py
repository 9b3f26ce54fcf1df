"""What an algorithm keeps of its links: both ends of each keep equal and opposite rows."""

from __future__ import annotations

import numpy as np

from hobnob.core.algorithm import Algorithm
from hobnob.core.network import Network
from hobnob.testing.check import check, expect
from hobnob.testing.trial import Trial

_STEPS = 30


def keeps_flows(cls: type[Algorithm]) -> bool:
    return bool(cls.flows)


@check(
    why="where agents leave and return, the rows of their links are dropped or made to agree. That "
    "is right only if all such memories are named, and if the two ends of a link cancel.",
    applies=keeps_flows,
)
def flows(trial: Trial) -> None:
    """`flows` names what `agent.flow` keeps; ends of a link keep opposite rows, padding is 0."""
    program = trial.sampled
    network, end = program.network, program.end(_STEPS)
    most = network.most_links
    for name in trial.cls.flows:
        expect(name in end, f"its `flows` names {name}, and its state has {', '.join(end)}")
        shape = list(end[name].shape[1:])
        expect(
            shape and shape[0] == most,
            f"{name} of one agent has the shape {shape}: agent.flow keeps one row for each of "
            f"{most} links",
        )
        padding = _padding(network, end[name])
        expect(
            not padding.any(),
            f"after {_STEPS} steps rows of {name} that belong to no link are up to "
            f"{np.abs(padding).max(initial=0):.1e}: padding must stay 0",
        )
        off = _left_over(network, end[name])
        expect(
            off == 0,
            f"after {_STEPS} steps what two ends of a link keep in {name} adds up to {off:.1e}: it "
            f"must cancel exactly",
        )
        expect(end[name].any(), f"in {_STEPS} steps nothing flowed into {name}")
    for name in set(end) - set(trial.cls.flows):
        rows = end[name]
        alike = rows.ndim > 1 and rows.shape[1] == most and rows.any()
        kept = alike and not _padding(network, rows).any() and _left_over(network, rows) == 0
        expect(not kept, f"{name} is a memory of agent.flow, and `flows` does not name it")


def by_link(network: Network, rows: np.ndarray) -> np.ndarray:
    """[agents, links, ...] -> [agents, agents, ...]: what agent k keeps of its link to agent j."""
    found = np.zeros((network.size, network.size, *rows.shape[2:]), rows.dtype)
    for k in range(network.size):
        near = network.neighbours(k)
        found[k, near] = rows[k, : len(near)]
    return found


def _left_over(network: Network, rows: np.ndarray) -> float:
    """The largest sum of what the two ends of a link keep."""
    kept = by_link(network, rows)
    return float(np.abs(kept + kept.swapaxes(0, 1)).max(initial=0))


def _padding(network: Network, rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows[k, degree:].ravel() for k, degree in enumerate(network.degrees)])
