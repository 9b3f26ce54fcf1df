"""FastStep: a faster form of an algorithm's step, with a layout of its own for the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, Self

import jax

from hobnob.core.algorithm import Algorithm

State = Any  # an algorithm's NamedTuple of arrays, with a leading axis of agents


class FastMixing(Protocol):
    """A faster form of W, which is a pytree of arrays."""

    def mixed(self, stack: jax.Array) -> jax.Array:
        """W times a stack whose first axis is the agents."""
        ...


class Lift(Protocol):
    """`lift(act, *trees)` is `act(agent, *trees)` for every agent of every seed."""

    def __call__(self, act: Callable[..., Any], /, *trees: Any) -> Any: ...


@dataclass(frozen=True)
class StateLayout:
    """The form in which a run holds its state between chunks. This one: as it is.

    Equal layouts do the same, so that what was compiled for one serves the other.
    """

    def pack(self, state: State) -> State:
        return state

    def unpack(self, packed: State) -> State:
        return packed

    def answer(self, packed: State) -> tuple[jax.Array, jax.Array]:
        """x and y, without unpacking the rest."""
        return packed.x, packed.y

    def disagreements(self, packed: State) -> dict[str, jax.Array]:
        """mean_k |w_k - mean w|^2 of the variables where that needs no unpacking.

        One number each, or one for each of several seeds.
        """
        return {}


class FastStep:
    """The same numbers as the algorithm's own step, to 1e-12, on packed states."""

    #: True if a step takes one seed at a time. Packed states then have a leading axis of seeds.
    one_seed: bool = False

    def __init__(self, algorithm: Algorithm, layout: StateLayout):
        self._algorithm, self.layout = algorithm, layout

    def retuned(self, rates: Mapping[str, jax.Array]) -> Self:
        """The same with other step sizes."""
        other = copy(self)
        other._algorithm = self._algorithm.with_traced(rates)
        return other

    def step(self, lift: Lift, packed: State) -> State:
        """One iteration."""
        raise NotImplementedError
