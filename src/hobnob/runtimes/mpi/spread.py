"""Which rank hosts which agents: equally many on each, and few links between ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.csgraph import reverse_cuthill_mckee

from hobnob.core.network import Network

_ROUNDS = 20  # of exchanging pairs, at most
_LARGEST_REFINED = 2_000  # agents: beyond, the better of the orders is taken as it is


def spread(network: Network, ranks: int) -> list[np.ndarray]:
    """The agents of each rank, in ascending order; rank 0 hosts agent 0.

    Ranks get equally many agents, or one more. Of two orders of the agents, their own and one that
    keeps neighbours close, the one that cuts fewer links into blocks is taken; then agents of
    different ranks change places while that saves links.
    """
    W, size = _all_links(network), network.size
    orders = [np.arange(size), reverse_cuthill_mckee(W, symmetric_mode=True)]
    homes = [_blocks(order, ranks) for order in orders]
    home = min(homes, key=lambda home: cut(W, home))
    if size <= _LARGEST_REFINED:
        _refine(W, home, ranks)
    # Parts are numbered by their smallest agent.
    return sorted((np.flatnonzero(home == part) for part in range(ranks)), key=lambda p: p[0])


def cut(W: Any, home: np.ndarray) -> int:
    """How many links join agents of different parts."""
    rows = np.repeat(np.arange(len(home)), np.diff(W.indptr))
    return int((home[rows] != home[W.indices]).sum()) // 2


def _all_links(network: Network) -> Any:
    """The links of the network and of all its levels."""
    return sum((level.sparse for level in network.levels.values()), network.sparse)


def _blocks(order: np.ndarray, ranks: int) -> np.ndarray:
    home = np.empty(len(order), np.int64)
    for part, block in enumerate(np.array_split(order, ranks)):
        home[block] = part
    return home


def _refine(W: Any, home: np.ndarray, ranks: int) -> None:
    """Swap the pair of agents that saves most links, until no swap saves any."""
    size = len(home)
    rows = np.repeat(np.arange(size), np.diff(W.indptr))
    links = np.zeros((size, size), np.int32)
    links[rows, W.indices] = 1
    np.fill_diagonal(links, 0)
    for _ in range(_ROUNDS * ranks):
        towards = links @ np.eye(ranks, dtype=np.int32)[home]  # links of each agent into each part
        stays = towards[np.arange(size), home]
        # What i gains in j's part plus what j gains in i's; a link between the two stays cut.
        gain = towards[:, home] - stays[:, None]
        gain = gain + gain.T - 2 * links
        gain[home[:, None] == home[None, :]] = 0
        i, j = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[i, j] <= 0:
            return
        home[i], home[j] = home[j], home[i]
