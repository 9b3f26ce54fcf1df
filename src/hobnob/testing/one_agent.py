"""OneAgent: the step of one agent, compiled once and called for every agent.

Each call has an agent's own state, key and records: everything else that it could index is NaN. The
program keeps a *tape*: it writes down every message and reads what was heard in answer.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.core.algorithm import Algorithm
from hobnob.core.data import Place
from hobnob.core.ledger import Ledger, link_of
from hobnob.core.network import Network
from hobnob.core.problem import Problem
from hobnob.testing.trial import State, Trial
from hobnob.testing.watched import Unheard, Use, Watched

STEPS = 2  # that checks run it for
ONE_BY_ONE = "one by one over a "  # before the name of a link: neighbours are not added up
_SPARE = 8  # rounds on a tape, for a step that sends more than was counted


class Tape(NamedTuple):
    """What one agent said in a step, round by round."""

    round: jax.Array
    said: jax.Array  # [rounds, numbers]
    sizes: jax.Array  # [rounds], in bytes
    ways: jax.Array  # [rounds], by number in a list of names


class TapeExchange(Unheard):
    """What an agent speaks through: it writes to the tape, and reads what was heard.

    What was heard in a round has several rows. The first is the answer. If an agent hears its
    neighbours one by one, the first has the weights of the links and each other is a neighbour's.
    """

    def __init__(self, network: Network, tape: Tape, heard: jax.Array, ways: list[str]):
        super().__init__(network)
        self.tape, self._heard, self._ways = tape, heard, ways

    def mix(self, tree: Any, path: tuple[Any, ...], level: str | None) -> Any:
        return self._speak(tree, link_of(level))(0)

    def hear(self, tree: Any, path: tuple[Any, ...], level: str | None) -> tuple[jax.Array, Any]:
        links, at = self.links(level), self.tape.round
        row = self._speak(tree, f"{ONE_BY_ONE}{link_of(level)}")
        each = [row(1 + i) for i in range(links)]
        theirs = jax.tree.map(lambda _, *rows: jnp.stack(rows), tree, *each)
        return self._heard[at, 0, :links], theirs

    def to_server(self, tree: Any) -> Any:
        return self._speak(tree, "up")(0)

    def from_server(self, tree: Any) -> Any:
        return self._speak(tree, "down")(0)

    def loop(self, count: Any, body: Callable[[Any, Any, Any], Any], start: Any) -> Any:
        def turn(i: Any, carry: tuple[Any, Tape]) -> tuple[Any, Tape]:
            inside = copy(self)
            value, inside.tape = carry
            return body(inside, i, value), inside.tape

        value, self.tape = jax.lax.fori_loop(0, count, turn, (start, self.tape))
        return value

    def _speak(self, tree: Any, way: str) -> Callable[[int], Any]:
        """Say it, and return what each row of the answer is as a tree."""
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

        def row(i: int) -> Any:
            parts = jnp.split(self._heard[at, i, : numbers.size], ends[:-1])
            return jax.tree.unflatten(
                structure,
                [
                    part.reshape(leaf.shape).astype(leaf.dtype)
                    for part, leaf in zip(parts, leaves, strict=True)
                ],
            )

        return row


class OneAgent:
    """The step of one agent, compiled once for all of them."""

    def __init__(
        self,
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        rounds: int,
        watch: int | None = None,
    ):
        self._problem, self._algorithm, self._rounds = _blank(problem), algorithm, rounds
        self._network = network
        self.use = Use(watch)
        self._shape: tuple[int, int, int] | None = None
        self.ways: list[str] = []
        self.init = jax.jit(self._init)
        self.step = jax.jit(self._step)

    def shape_of_heard(self, places: Any, key: jax.Array, state: State) -> tuple[int, int, int]:
        """(rounds, rows of an answer, numbers of the longest row)."""
        if self._shape is not None:
            return self._shape
        widest = Widest(self._network)
        jax.eval_shape(
            lambda *given: self._act(self._algorithm.step, widest, *given),
            places,
            key,
            jnp.int32(0),
            state,
        )
        rows, numbers = widest.shape
        self._shape = self._rounds, rows, numbers
        return self._shape

    def _init(self, places: Any, key: jax.Array) -> State:
        return self._act(self._algorithm.init, Unheard(self._network), places, key, jnp.int32(0))

    def _step(
        self, places: Any, key: jax.Array, number: jax.Array, state: State, heard: jax.Array
    ) -> tuple[State, Tape]:
        none = jnp.zeros(len(heard), jnp.int32)
        tape = Tape(jnp.int32(0), jnp.zeros_like(heard[:, 0]), none, none)
        exchange = TapeExchange(self._network, tape, heard, self.ways)
        after = self._act(self._algorithm.step, exchange, places, key, number, state)
        return after, exchange.tape

    def _act(self, act: Any, exchange: Any, places: Any, key: Any, number: Any, *state: Any) -> Any:
        self.use.names.clear()
        agent = Watched(self.use, self._problem, places, key, number, exchange, Ledger())
        return agent.held(act(agent, *state))


class Widest(Unheard):
    """It only looks how long messages are."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.shape = [1, 0]  # rows and numbers, in a list, which copies share

    def mix(self, tree: Any, path: tuple[Any, ...], level: str | None) -> Any:
        return self._seen(tree)

    def hear(self, tree: Any, path: tuple[Any, ...], level: str | None) -> tuple[jax.Array, Any]:
        links = self.links(level)
        self.shape[:] = max(self.shape[0], 1 + links), max(self.shape[1], links)
        return super().hear(self._seen(tree), path, level)

    def to_server(self, tree: Any) -> Any:
        return self._seen(tree)

    def from_server(self, tree: Any) -> Any:
        return self._seen(tree)

    def _seen(self, tree: Any) -> Any:
        size = sum(jnp.size(leaf) for leaf in jax.tree.leaves(tree))
        self.shape[1] = max(self.shape[1], size)
        return tree


def made_for(trial: Trial, watch: int | None = None) -> OneAgent:
    program = trial.sampled
    with program.problem.precision():
        rounds = int(program.run.costs.until(STEPS)["rounds"].max()) + _SPARE
    return OneAgent(program.problem, program.network, program.algorithm, rounds, watch)


# Several checks call it: it is compiled once.
shared = lru_cache(maxsize=4)(made_for)


def places_of(problem: Problem, k: int) -> tuple[Place, Place]:
    """What agent k has, with everybody else's records made useless."""
    return _own(problem.outer_data, k), _own(problem.inner_data, k)


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
