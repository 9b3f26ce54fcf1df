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
from jax.core import Tracer

import hobnob as hb
from hobnob.core.data import Place
from hobnob.core.ledger import Ledger
from hobnob.ground import keys


class Mailboxes:
    """The post office: it counts what passes through it."""

    def __init__(self, network: hb.Network):
        self.network = network
        self.messages = np.zeros(network.size, int)
        self.bytes = np.zeros(network.size, int)
        self._boxes: dict[tuple[int, int, int], Any] = {}
        self._rounds: dict[int, int] = defaultdict(int)
        self._delivered = threading.Barrier(network.size, timeout=600)

    def close(self) -> None:
        """Nobody waits any longer for somebody who has failed."""
        self._delivered.abort()

    def round(self, k: int, tree: Any, to: list[int], combine: Any) -> Any:
        """Post the same parcel to several boxes, wait for everybody, and open one's own."""
        leaves, structure = jax.tree.flatten(tree)
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return tree  # somebody only looks at shapes
        number = self._rounds[k]
        self._rounds[k] += 1
        parcel = [np.asarray(leaf) for leaf in leaves]
        for j in to:
            self._boxes[number, k, j] = parcel
            self.messages[k] += 1
            self.bytes[k] += sum(part.nbytes for part in parcel)
        self._delivered.wait()
        heard = {
            j: self._boxes[number, j, at]
            for (n, j, at) in list(self._boxes)
            if n == number and at in (k, SERVER)
        } | {k: parcel}
        return jax.tree.unflatten(structure, [jnp.asarray(part) for part in combine(heard)])


SERVER = -1


class Letterbox:
    """How one agent reaches the post office."""

    def __init__(self, mail: Mailboxes, k: int):
        self._mail, self._k = mail, k

    def mix(self, tree: Any, path: Any, level: str | None) -> Any:
        network = self._mail.network.at_level(level)
        weights, links = network.matrix[self._k], network.neighbours(self._k)

        def combine(heard: dict[int, list[np.ndarray]]) -> list[Any]:
            parts = range(len(heard[self._k]))
            return [sum(weights[j] * heard[j][i] for j in sorted(heard)) for i in parts]

        return self._mail.round(self._k, tree, links, combine)

    def to_server(self, tree: Any) -> Any:
        def combine(heard: dict[int, list[np.ndarray]]) -> list[Any]:
            parts = range(len(heard[self._k]))
            return [sum(heard[j][i] for j in sorted(heard)) / len(heard) for i in parts]

        return self._mail.round(self._k, tree, [SERVER], combine)

    def from_server(self, tree: Any) -> Any:
        leaves = jax.tree.leaves(tree)
        if not any(isinstance(leaf, Tracer) for leaf in leaves):
            self._mail.messages[self._k] += 1
            self._mail.bytes[self._k] += sum(np.asarray(leaf).nbytes for leaf in leaves)
        return tree

    def loop(self, count: Any, body: Any, start: Any) -> Any:
        value = start  # in Python, round by round: nobody posts from within a compiled loop
        for i in range(int(count)):
            value = body(self, jnp.asarray(i), value)
        return value


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
                return hb.Agent(problem, places, key, step, Letterbox(mail, k), Ledger())

            state = algorithm.init(agent(0))
            for step in range(steps):
                state = algorithm.step(agent(step), state)
            return jax.tree.map(np.asarray, state)

    def live_or_tell(k: int) -> Any:
        try:
            return live(k)
        except BaseException:
            mail.close()
            raise

    with ThreadPoolExecutor(network.size) as threads:
        lives = [threads.submit(live_or_tell, k) for k in range(network.size)]
    # Those who waited in vain for somebody who failed come after the one who did.
    lives.sort(key=lambda life: isinstance(life.exception(), threading.BrokenBarrierError))
    states = [life.result() for life in lives]
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
