"""A second way to run an algorithm: one thread an agent, messages through real mailboxes.

Nothing is vectorised and nothing is shared: each agent is given only its own records (everything
else in the arrays that it could index is NaN), and hears of others only what was put into its
mailbox. It is slow, and it is here to check what the fast runtime must equal.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hobnob as hb
from hobnob import keys
from hobnob.data import Place
from hobnob.ledger import Ledger


class Mailboxes:
    """The post office: it counts what passes through it."""

    def __init__(self, network: hb.Network):
        self.network = network
        self.messages = np.zeros(network.size, int)
        self.bytes = np.zeros(network.size, int)
        self._boxes: dict[tuple[int, int, int], Any] = {}
        self._rounds: dict[int, int] = defaultdict(int)
        self._delivered = threading.Barrier(network.size, timeout=60)

    def exchange(self, k: int, tree: Any) -> Any:
        round_ = self._rounds[k]
        self._rounds[k] += 1
        leaves, structure = jax.tree.flatten(tree)
        parcel = [np.asarray(leaf) for leaf in leaves]
        for j in self.network.neighbours(k):
            self._boxes[round_, k, j] = parcel
            self.messages[k] += 1
            self.bytes[k] += sum(part.nbytes for part in parcel)
        self._delivered.wait()
        weights = self.network.matrix[k]
        heard = {j: self._boxes[round_, j, k] for j in self.network.neighbours(k)} | {k: parcel}
        return jax.tree.unflatten(
            structure,
            [
                jnp.asarray(sum(weights[j] * heard[j][i] for j in sorted(heard)))
                for i in range(len(leaves))
            ],
        )


def run(
    problem: hb.Problem, network: hb.Network, algorithm: hb.Algorithm, seed: int, steps: int
) -> tuple[dict[str, np.ndarray], Mailboxes]:
    """Every variable of every agent after so many steps, and the post office."""
    mail = Mailboxes(network)

    def live(k: int) -> Any:
        with problem.precision():  # a JAX context belongs to its thread
            places = _own(problem.outer_data, k), _own(problem.inner_data, k)
            key = keys.of_agent(seed, k)

            def agent(step: int) -> hb.Agent:
                return hb.Agent(
                    problem, places, key, step, lambda tree: mail.exchange(k, tree), Ledger()
                )

            state = algorithm.init(agent(0))
            for step in range(steps):
                state = algorithm.step(agent(step), state)
            return jax.tree.map(np.asarray, state)

    with ThreadPoolExecutor(network.size) as threads:
        states = list(threads.map(live, range(network.size)))
    return {name: np.stack([getattr(s, name) for s in states]) for name in states[0]._fields}, mail


def _own(source: Any, k: int) -> Place:
    """The agent's own place, with everybody else's records made useless."""
    whole = source.place()
    if source.per_agent.arrays == 0:
        return Place(*jax.tree.map(lambda a: a[k], tuple(whole)))
    mine = np.zeros(int(source.lengths.sum()), bool)
    mine[source.starts[k] : source.starts[k] + source.lengths[k]] = True

    def blank(a: jax.Array) -> jax.Array:
        keep = mine.reshape(-1, *(1,) * (a.ndim - 1))
        return jnp.where(keep, a, jnp.nan)

    return Place(jax.tree.map(blank, whole.arrays), whole.start[k], whole.length[k])
