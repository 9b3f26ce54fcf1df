"""Setup: what a run is about. Carrier and Runtime: what a runtime brings to it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax

from hobnob.core.agent import Exchange
from hobnob.core.algorithm import Algorithm
from hobnob.core.group import Group
from hobnob.core.links import Links
from hobnob.core.network import Network
from hobnob.core.problem import Problem

Tree = Any  # a pytree of arrays
Seeds = int | tuple[int, ...]


@dataclass(frozen=True)
class Setup:
    """All that decides a run's numbers.

    `algorithm` knows K and T. `rates` are the step sizes that the compiled program takes as
    arguments; the others are constants in it.
    """

    problem: Problem
    network: Network
    algorithm: Algorithm
    seeds: Seeds = 0
    links: Links | None = None
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def many_seeds(self) -> bool:
        return not isinstance(self.seeds, int)

    @property
    def seed_count(self) -> int:
        return 1 if isinstance(self.seeds, int) else len(self.seeds)


class Carrier(Protocol):
    """How messages travel between the agents of a run.

    `tables` are the arrays that this takes; the compiled step gets them as an argument.
    """

    @property
    def tables(self) -> Tree: ...

    def exchange(
        self, me: jax.Array, tables: Tree, link_key: jax.Array, step: jax.Array
    ) -> Exchange:
        """What agent `me` speaks through in one step."""
        ...


class Runtime(Protocol):
    """Where agents live: `Simulate` and `Mpi`.

    leads      True if this process measures, writes and prints
    programs   compiled loops that runs share if they differ in step sizes and seeds alone; None
               if every run compiles its own
    """

    @property
    def leads(self) -> bool: ...

    @property
    def programs(self) -> dict[Any, Any] | None: ...

    def watched(self, network: Network) -> AbstractContextManager[None]:
        """Inside it, all processes of a run live, or all end."""
        ...

    def join(self, setup: Setup) -> tuple[Group, Carrier]: ...
