"""Long y in strips, so that what neighbours send is in the processor's cache when it is mixed.

Row by row, the y of one agent has left the cache before its neighbour's is mixed: every number
comes from memory once for each agent that hears it. In strips a piece of everyone's y lies
together, then the next piece, and all of it comes from memory once.

The step of one agent is written for whole vectors. It is traced, and what was traced is folded.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout as InMemory
from jax.experimental.layout import with_layout_constraint
from jax.extend.core import Primitive
from jax.interpreters import batching

from hobnob.agent import Agent
from hobnob.algorithm import Algorithm
from hobnob.folding import CannotFold, Fold, evaluate_folded
from hobnob.problem import Problem
from hobnob.runtimes.kernel import Kernel, Lift
from hobnob.runtimes.layout import Layout

_LONG = 2**18  # bytes of an agent's vector: shorter ones are still in the cache for its neighbours
_STRIP = 2**17  # bytes of all agents' strips, about: several arrays of them fit into a core's cache
_SHORTEST = 256  # numbers of one agent's
_AROUND = 4  # times shorter or longer, where the length has no better divisor


def is_long(problem: Problem) -> bool:
    return problem.dim_y * problem.dtype.itemsize >= _LONG


def fold_for(length: int, agents: int, itemsize: int) -> Fold | None:
    """How to cut vectors of this length into equal strips, if there is a way."""
    wanted = max(_STRIP // (agents * itemsize), 1)
    least, most = max(_SHORTEST, wanted // _AROUND), min(wanted * _AROUND, length // 2)
    fitting = [strip for strip in range(least, most + 1) if length % strip == 0]
    if not fitting:
        return None
    return Fold(length, min(fitting, key=lambda strip: max(strip / wanted, wanted / strip)))


@dataclass(frozen=True)
class InStrips(Layout):
    """Variables whose last axis is long as ([seeds,] strips, agents, ..., numbers)."""

    fold: Fold
    long: tuple[bool, ...]  # which of the variables are
    agents: int  # the axis of agents, where agents come first

    def packed(self, state: Any) -> Any:
        strip = self.fold.strip
        return self.strips_first(
            self.each(lambda leaf: leaf.reshape(*leaf.shape[:-1], -1, strip), state)
        )

    def opened(self, held: Any) -> Any:
        return self.each(lambda leaf: leaf.reshape(*leaf.shape[:-2], -1), self.agents_first(held))

    def answer(self, held: Any) -> tuple[Any, Any]:
        return _answer(self, held)

    def agents_first(self, held: Any) -> Any:
        """([seeds,] agents, ..., strips, numbers). XLA reads it where it is, and moves nothing."""
        return self.each(lambda leaf: jnp.moveaxis(leaf, self.agents, -2), held)

    def strips_first(self, cut: Any) -> Any:
        return self.each(lambda leaf: _laid_out(jnp.moveaxis(leaf, -2, self.agents)), cut)

    def each(self, act: Callable[[Any], Any], state: Any) -> Any:
        """`act` on the variables that are long."""
        leaves, structure = jax.tree.flatten(state)
        pairs = zip(leaves, self.long, strict=True)
        return structure.unflatten(act(leaf) if long else leaf for leaf, long in pairs)


@partial(jax.jit, static_argnums=0)
def _answer(layout: InStrips, held: Any) -> tuple[Any, Any]:
    opened = layout.opened(held)
    return opened.x, opened.y


def _laid_out(array: jax.Array) -> jax.Array:
    """The array in memory as its axes say; XLA would leave it as it was computed, by agents."""
    return with_layout_constraint(array, InMemory(tuple(range(array.ndim))))


class Strips(Kernel):
    """The step of any algorithm, where losses treat the numbers of y alike."""

    layout: InStrips

    def step(self, lift: Lift, state: Any) -> Any:
        cut = self.layout.agents_first(state)
        return self.layout.strips_first(lift(self._of_one_agent, cut))

    def fits(self, lift: Lift, shapes: Any) -> bool:
        """Whether the step can be folded at all."""
        try:
            jax.eval_shape(lambda state: self.step(lift, self.layout.packed(state)), shapes)
        except CannotFold:
            return False
        return True

    def _of_one_agent(self, agent: Agent, state: Any) -> Any:
        layout, exchange = self.layout, agent._exchange
        flat = jax.eval_shape(
            lambda state: layout.each(lambda a: a.reshape(*a.shape[:-2], -1), state), state
        )
        quiet = copy(agent)
        quiet._exchange = _Noting()
        closed, shape = jax.make_jaxpr(
            lambda state: self._algorithm.step(quiet, state), return_shape=True
        )(flat)

        def say(equation: Any, inputs: list[Any]) -> list[Any]:
            return jax.tree.leaves(equation.params["said"].through(exchange, inputs))

        found = evaluate_folded(layout.fold, closed, jax.tree.leaves(state), {_said.name: say})
        return jax.tree.unflatten(jax.tree.structure(shape), found)


def strips_for(algorithm: Algorithm, tables: Any, shapes: Any, lift: Lift) -> Strips | None:
    """The kernel of a run with a long y, or None where it would not help or cannot be.

    `shapes` are those of a state, and `tables` what it is mixed with.
    """
    *lead, agents, length = shapes.y.shape
    fold = fold_for(length, agents, shapes.y.dtype.itemsize)
    few_neighbours = all("table" in table and "long" not in table for table in tables.values())
    if fold is None or agents == 1 or not few_neighbours or jax.default_backend() != "cpu":
        return None
    of_agent = [leaf.shape[len(lead) + 1 :] for leaf in jax.tree.leaves(shapes)]
    if any(length in shape[:-1] for shape in of_agent):  # matrices
        return None
    long = tuple(shape[-1:] == (length,) for shape in of_agent)
    kernel = Strips(algorithm, InStrips(fold, long, len(lead)))
    return kernel if kernel.fits(lift, shapes) else None


class _Said(NamedTuple):
    """A message that was only written down, outside of loops."""

    structure: Any
    site: int | None  # to neighbours; None: to a server
    level: str | None = None

    def through(self, exchange: Any, leaves: list[Any]) -> Any:
        tree = self.structure.unflatten(leaves)
        if self.site is None:
            return exchange.to_server(tree)
        return exchange.mix(tree, (self.site,), self.level)


def _in_an_axis_of_its_own(*_: Any, **__: Any) -> Any:
    raise CannotFold("vmap")


_said = Primitive("said")
_said.multiple_results = True
_said.def_abstract_eval(lambda *kinds, said: kinds)
batching.primitive_batchers[_said] = _in_an_axis_of_its_own


class _Noting:
    """An exchange that writes down what is said, for it to be said in strips."""

    def mix(self, tree: Any, path: tuple[Any, ...], level: str | None) -> Any:
        leaves, structure = jax.tree.flatten(tree)
        said = _Said(structure, path[0], level)
        return structure.unflatten(_said.bind(*leaves, said=said))

    def to_server(self, tree: Any) -> Any:
        leaves, structure = jax.tree.flatten(tree)
        return structure.unflatten(_said.bind(*leaves, said=_Said(structure, None)))

    def from_server(self, tree: Any) -> Any:
        return tree

    def loop(self, count: Any, body: Callable[[Any, Any, Any], Any], start: Any) -> Any:
        return jax.lax.fori_loop(0, count, lambda i, value: body(self, i, value), start)
