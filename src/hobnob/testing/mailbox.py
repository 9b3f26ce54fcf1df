"""A second way to run an algorithm: agents that are really apart, and a post office.

A step depends only on what it has heard so far. So the post office runs it once more for each
round, delivers the next message of each agent over the network's links, and counts. There are no
threads, and no calls out of a compiled program.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.ground import keys
from hobnob.testing.check import check, expect
from hobnob.testing.one_agent import ONE_BY_ONE, STEPS, OneAgent, places_of, shared
from hobnob.testing.trial import Trial
from hobnob.testing.worlds import SEED


@check(
    why="the simulation must give what agents on machines of their own would compute, send and "
    "pay for."
)
def mailboxes(trial: Trial) -> None:
    """Agents that are really apart find the same, with the messages and bytes that were counted."""
    program = trial.sampled
    network = program.network
    with program.problem.precision():
        counted = program.run.costs.until(STEPS)
        found, office = run(shared(trial), program.problem, network)
    for variable, value in found.items():
        lost = ~np.isfinite(value).reshape(network.size, -1).all(axis=1)
        expect(
            not lost.any(),
            f"{variable} of agent {lost.argmax()} is NaN: it used records that are not its own",
        )
    for column, sent in (("messages", office.messages), ("bytes", office.bytes)):
        off = int(np.abs(sent - counted[column]).argmax())
        expect(
            sent[off] == counted[column][off],
            f"in {STEPS} steps agent {off} sent {sent[off]} {column}, and {counted[column][off]} "
            f"were counted",
        )
    lifted = program.end(STEPS)
    for variable, value in found.items():
        off = (
            np.abs(np.subtract(value, lifted[variable], dtype=float))
            .reshape(network.size, -1)
            .max(axis=1, initial=0)
        )
        expect(
            off.max() <= 1e-12,
            f"after {STEPS} steps {variable} of agent {off.argmax()} is {off.max():.1e} away from "
            f"what the simulation of all agents gives",
        )


class PostOffice:
    """It delivers over the network's links, and counts what passes through it."""

    def __init__(self, network: Network):
        self.network = network
        self.messages = np.zeros(network.size, int)
        self.bytes = np.zeros(network.size, int)

    def deliver(self, way: str, parcels: list[np.ndarray], size: int) -> list[np.ndarray]:
        """What each agent hears, where agent k sends parcels[k] of `size` bytes.

        One row, or several if it hears its neighbours one by one: see `TapeExchange`.
        """
        agents = range(self.network.size)
        if way in ("up", "down"):  # to a server, or from it
            self._count(agents, 1, size)
            if way == "up":
                return [np.stack(parcels).mean(axis=0)] * len(parcels)
            apart = max(np.abs(parcel - parcels[0]).max(initial=0) for parcel in parcels)
            expect(
                apart <= 1e-12,
                f"what the server sends to one agent differs by {apart:.1e} from what it sends to "
                f"another: it can send only what it was sent",
            )
            return parcels
        one_by_one, way = way.startswith(ONE_BY_ONE), way.removeprefix(ONE_BY_ONE)
        level = way.removeprefix("link").removeprefix(" of ") or None
        network = self.network.at_level(level)
        boxes: list[dict[int, np.ndarray]] = [{k: parcels[k]} for k in agents]
        for k in agents:
            for j in network.neighbours(k):
                boxes[j][k] = parcels[k]
                self._count([k], 1, size)
        if one_by_one:
            return [_rows(network, k, box) for k, box in enumerate(boxes)]
        return [
            sum((network.matrix[k, j] * box[j] for j in sorted(box)), np.zeros_like(parcels[k]))
            for k, box in enumerate(boxes)
        ]

    def _count(self, agents: Any, messages: int, size: int) -> None:
        self.messages[list(agents)] += messages
        self.bytes[list(agents)] += messages * size


def _rows(network: Network, k: int, box: dict[int, np.ndarray]) -> np.ndarray:
    """The weights of agent k's links in the first row, and then what each neighbour sent."""
    rows = np.zeros((1 + network.most_links, box[k].size), box[k].dtype)
    for row, j in enumerate(sorted(set(box) - {k})):
        rows[0, row], rows[1 + row] = network.matrix[k, j], box[j]
    return rows


def run(
    agent: OneAgent, problem: Problem, network: Network
) -> tuple[dict[str, np.ndarray], PostOffice]:
    """Every variable of every agent after a few steps, and the post office.

    It ends early where something is NaN.
    """
    office = PostOffice(network)
    everyone = range(network.size)
    places = [places_of(problem, k) for k in everyone]
    own_keys = [keys.of_agent(SEED, k) for k in everyone]
    states = [agent.init(*own) for own in zip(places, own_keys, strict=True)]
    shape = agent.shape_of_heard(places[0], own_keys[0], states[0])
    for step in range(STEPS):
        heard = [np.full(shape, np.nan, problem.dtype) for _ in everyone]
        done = 0
        while True:
            after, tapes = zip(
                *(
                    agent.step(places[k], own_keys[k], jnp.int32(step), states[k], heard[k])
                    for k in everyone
                ),
                strict=True,
            )
            said = int(tapes[0].round)
            expect(
                said <= shape[0],
                f"step {step} has {said} rounds of messages, far more than counted",
            )
            if done == said:
                break
            way = agent.ways[int(tapes[0].ways[done])]
            parcels = [np.asarray(tape.said[done]) for tape in tapes]
            delivered = office.deliver(way, parcels, int(tapes[0].sizes[done]))
            for k in everyone:
                rows = np.atleast_2d(delivered[k])
                heard[k][done, : len(rows)] = rows
            done += 1
        states = list(after)
        if any(np.isnan(leaf).any() for leaf in jax.tree.leaves(states)):
            break
    ends = [jax.tree.map(np.asarray, state) for state in states]
    fields = ends[0]._fields
    return {name: np.stack([getattr(end, name) for end in ends]) for name in fields}, office
