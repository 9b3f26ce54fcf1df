"""A second way to run an algorithm: agents that are really apart, and a post office.

One agent's step is compiled once and called for every agent, each with its own state and key and
only its own records: everything else that it could index is NaN. The program keeps a *tape*: it
writes down every message and reads what was heard in answer. A step depends only on what it has
heard so far, so the post office runs it once more for each round, delivers the next message of
each agent over the network's links, and counts. No threads, no calls out of a compiled program.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.core.agent import Agent
from hobnob.core.algorithm import Algorithm
from hobnob.core.data import Place
from hobnob.core.ledger import Ledger, link_of
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.ground import keys
from hobnob.testing.check import check, expect
from hobnob.testing.services import Unheard
from hobnob.testing.trial import State, Trial
from hobnob.testing.worlds import SEED

_STEPS = 2
_SPARE = 8  # rounds on a tape, for a step that sends more than was counted


@check(
    why="the simulation must give what agents on machines of their own would compute, send and "
    "pay for."
)
def mailboxes(trial: Trial) -> None:
    """Agents that are really apart find the same, with the messages and bytes that were counted."""
    program = trial.sampled
    network = program.network
    with program.problem.precision():
        counted = program.run.costs.until(_STEPS)
        rounds = int(counted["rounds"].max()) + _SPARE
        found, office = run(program.problem, network, program.algorithm, _STEPS, rounds)
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
            f"in {_STEPS} steps agent {off} sent {sent[off]} {column}, and {counted[column][off]} "
            f"were counted",
        )
    lifted = program.end(_STEPS)
    for variable, value in found.items():
        off = (
            np.abs(np.subtract(value, lifted[variable], dtype=float))
            .reshape(network.size, -1)
            .max(axis=1, initial=0)
        )
        expect(
            off.max() <= 1e-12,
            f"after {_STEPS} steps {variable} of agent {off.argmax()} is {off.max():.1e} away from "
            f"what the simulation of all agents gives",
        )


class Tape(NamedTuple):
    """What one agent said in a step, round by round."""

    round: jax.Array
    said: jax.Array  # [rounds, numbers]
    sizes: jax.Array  # [rounds], in bytes
    ways: jax.Array  # [rounds], by number in a list of names


class TapeExchange:
    """What an agent speaks through: it writes to the tape, and reads what was heard."""

    def __init__(self, tape: Tape, heard: jax.Array, ways: list[str]):
        self.tape, self._heard, self._ways = tape, heard, ways

    def mix(self, tree: Any, path: tuple[Any, ...], level: str | None) -> Any:
        return self._speak(tree, link_of(level))

    def to_server(self, tree: Any) -> Any:
        return self._speak(tree, "up")

    def from_server(self, tree: Any) -> Any:
        return self._speak(tree, "down")

    def loop(self, count: Any, body: Callable[[Any, Any, Any], Any], start: Any) -> Any:
        def turn(i: Any, carry: tuple[Any, Tape]) -> tuple[Any, Tape]:
            inside = copy(self)
            value, inside.tape = carry
            return body(inside, i, value), inside.tape

        value, self.tape = jax.lax.fori_loop(0, count, turn, (start, self.tape))
        return value

    def _speak(self, tree: Any, way: str) -> Any:
        leaves, structure = jax.tree.flatten(tree)
        leaves = [jnp.asarray(leaf) for leaf in leaves]
        if way not in self._ways:
            self._ways.append(way)
        at, said, sizes, ways = self.tape
        numbers = jnp.concatenate([leaf.ravel().astype(said.dtype) for leaf in leaves])
        said = said.at[at, : numbers.size].set(numbers)  # no place is left: it is dropped
        sizes = sizes.at[at].set(sum(leaf.size * leaf.dtype.itemsize for leaf in leaves))
        ways = ways.at[at].set(self._ways.index(way))
        self.tape = Tape(at + 1, said, sizes, ways)
        ends = np.cumsum([leaf.size for leaf in leaves])
        parts = jnp.split(self._heard[at][: numbers.size], ends[:-1])
        return jax.tree.unflatten(
            structure,
            [
                part.reshape(leaf.shape).astype(leaf.dtype)
                for part, leaf in zip(parts, leaves, strict=True)
            ],
        )


class OneAgent:
    """The step of one agent, compiled once for all of them."""

    def __init__(self, problem: Problem, algorithm: Algorithm, rounds: int):
        self._problem, self._algorithm, self._rounds = _blank(problem), algorithm, rounds
        self.ways: list[str] = []
        self.init = jax.jit(self._init)
        self.step = jax.jit(self._step)

    def shape_of_heard(self, places: Any, key: jax.Array, state: State) -> tuple[int, int]:
        """(rounds, numbers of the longest message)."""
        widest = Widest()
        jax.eval_shape(
            lambda *given: self._act(self._algorithm.step, widest, *given),
            places,
            key,
            jnp.int32(0),
            state,
        )
        return self._rounds, widest.numbers[0]

    def _init(self, places: Any, key: jax.Array) -> State:
        return self._act(self._algorithm.init, Unheard(), places, key, jnp.int32(0))

    def _step(
        self, places: Any, key: jax.Array, number: jax.Array, state: State, heard: jax.Array
    ) -> tuple[State, Tape]:
        none = jnp.zeros(len(heard), jnp.int32)
        tape = Tape(jnp.int32(0), jnp.zeros_like(heard), none, none)
        exchange = TapeExchange(tape, heard, self.ways)
        after = self._act(self._algorithm.step, exchange, places, key, number, state)
        return after, exchange.tape

    def _act(self, act: Any, exchange: Any, places: Any, key: Any, number: Any, *state: Any) -> Any:
        agent = Agent(self._problem, places, key, number, exchange, Ledger())
        return act(agent, *state)


class Widest(Unheard):
    """It only looks how long messages are."""

    def __init__(self) -> None:
        self.numbers = [0]  # in a list, which copies share

    def mix(self, tree: Any, path: tuple[Any, ...], level: str | None) -> Any:
        return self._seen(tree)

    def to_server(self, tree: Any) -> Any:
        return self._seen(tree)

    def from_server(self, tree: Any) -> Any:
        return self._seen(tree)

    def _seen(self, tree: Any) -> Any:
        size = sum(jnp.size(leaf) for leaf in jax.tree.leaves(tree))
        self.numbers[0] = max(self.numbers[0], size)
        return tree


class PostOffice:
    """It delivers over the network's links, and counts what passes through it."""

    def __init__(self, network: Network):
        self.network = network
        self.messages = np.zeros(network.size, int)
        self.bytes = np.zeros(network.size, int)

    def deliver(self, way: str, parcels: list[np.ndarray], size: int) -> list[np.ndarray]:
        """What each agent hears, where agent k sends parcels[k] of `size` bytes."""
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
        level = way.removeprefix("link").removeprefix(" of ") or None
        network = self.network.at_level(level)
        boxes: list[dict[int, np.ndarray]] = [{k: parcels[k]} for k in agents]
        for k in agents:
            for j in network.neighbours(k):
                boxes[j][k] = parcels[k]
                self._count([k], 1, size)
        return [
            sum((network.matrix[k, j] * box[j] for j in sorted(box)), np.zeros_like(parcels[k]))
            for k, box in enumerate(boxes)
        ]

    def _count(self, agents: Any, messages: int, size: int) -> None:
        self.messages[list(agents)] += messages
        self.bytes[list(agents)] += messages * size


def run(
    problem: Problem, network: Network, algorithm: Algorithm, steps: int, rounds: int
) -> tuple[dict[str, np.ndarray], PostOffice]:
    """Every variable of every agent after so many steps, and the post office.

    It ends early where something is NaN. `rounds` is the most that a step may have.
    """
    office = PostOffice(network)
    agent = OneAgent(problem, algorithm, rounds)
    everyone = range(network.size)
    places = [(_own(problem.outer_data, k), _own(problem.inner_data, k)) for k in everyone]
    own_keys = [keys.of_agent(SEED, k) for k in everyone]
    states = [agent.init(*own) for own in zip(places, own_keys, strict=True)]
    shape = agent.shape_of_heard(places[0], own_keys[0], states[0])
    for step in range(steps):
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
                said <= rounds, f"step {step} has {said} rounds of messages, far more than counted"
            )
            if done == said:
                break
            way = agent.ways[int(tapes[0].ways[done])]
            parcels = [np.asarray(tape.said[done]) for tape in tapes]
            delivered = office.deliver(way, parcels, int(tapes[0].sizes[done]))
            for k in everyone:
                heard[k][done] = delivered[k]
            done += 1
        states = list(after)
        if any(np.isnan(leaf).any() for leaf in jax.tree.leaves(states)):
            break
    ends = [jax.tree.map(np.asarray, state) for state in states]
    fields = ends[0]._fields
    return {name: np.stack([getattr(end, name) for end in ends]) for name in fields}, office


def _own(source: Any, k: int) -> Place:
    """The agent's own place, with everybody else's records made useless."""
    start, length = source.starts[k], source.lengths[k]

    def blank(a: np.ndarray) -> np.ndarray:
        own = np.full_like(a, np.nan)
        own[start : start + length] = a[start : start + length]
        return own

    return Place(jax.tree.map(blank, source.arrays), start, length)


def _blank(problem: Problem) -> Problem:
    """The problem without any records: an agent has those in its own place."""
    other = copy(problem)
    for name in ("outer_data", "inner_data"):
        source = copy(getattr(problem, name))
        source.arrays = jax.tree.map(lambda a: np.full_like(a, np.nan), source.arrays)
        setattr(other, name, source)
    return other
