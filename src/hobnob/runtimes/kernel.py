"""Kernel: a faster form of an algorithm's step, for all agents at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Self

import jax

from hobnob.algorithm import Algorithm
from hobnob.runtimes.layout import Layout

Lift = Callable[..., Any]  # lift(act, *trees): `act(agent, *trees)` for every agent of every seed


class Kernel:
    """The same numbers as the algorithm's step, to rounding.

    States stay in its layout from chunk to chunk.
    """

    #: Whether a step is to have one seed only. Held states then have a leading axis of seeds.
    alone: bool = False

    def __init__(self, algorithm: Algorithm, layout: Layout):
        self._algorithm, self.layout = algorithm, layout

    def retuned(self, rates: Mapping[str, jax.Array]) -> Self:
        """The same with other step sizes."""
        other = copy(self)
        other._algorithm = self._algorithm.with_traced(rates)
        return other

    def step(self, lift: Lift, state: Any) -> Any:
        """One iteration of a held state."""
        raise NotImplementedError
