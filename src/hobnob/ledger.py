"""The ledger: what an agent's steps cost it, counted from what they really do.

Every service of `Agent` writes an entry while the step is traced. An amount may be per link or per
draw: how many links an agent has, or how many records a draw of its takes, is known to the runtime.
An entry inside a loop counts as often as the loop runs, which may depend on the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

COLUMNS = ("samples", "gradients", "products", "matrices", "rounds", "messages", "bytes")

Times = int | Callable[[Any], Any]
ROUNDS_AT_ONCE = 4096  # at most, that live links are asked for


def link_of(level: str | None) -> str:
    """What an entry is per where a message goes to every neighbour on the network of a level."""
    return "link" if level is None else f"link of {level}"


class Entry(NamedTuple):
    """`amount` of a column, per what, inside which loops."""

    column: str
    amount: int
    per: str
    loops: tuple[Times, ...]
    site: int = 0  # which of a step's exchanges it belongs to

    def counts(self, step: int) -> tuple[int, ...]:
        """How often each of the loops runs in a step."""
        return tuple(int(loop(step)) if callable(loop) else loop for loop in self.loops)


@dataclass
class Ledger:
    """The entries of one step of one agent.

    - samples: records, or simulated samples, that were drawn;
    - gradients: gradients of f or g, by x, by y or by both at once; values and Jacobians of a
      compositional problem's mapping count here too;
    - products: Hessian-vector and Jacobian-vector products;
    - matrices: whole Hessians and cross-derivative matrices;
    - rounds: exchanges with the neighbours or with a server; messages and bytes: what the agent
      sent in them, and what a server sent to it.
    """

    entries: list[Entry] = field(default_factory=list)
    message_parts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _loops: tuple[Times, ...] = ()

    def add(self, column: str, amount: int, per: str = "step", site: int = 0) -> None:
        self.entries.append(Entry(column, amount, per, self._loops, site))

    def add_message(self, sizes: Mapping[str, int], per: str = "link", site: int = 0) -> None:
        """One round: the same message, of parts with these sizes in bytes, to every neighbour.

        With per="step" there is one message, to or from a server.
        """
        self.add("rounds", 1)
        self.add("messages", 1, per, site)
        self.add("bytes", sum(sizes.values()), per, site)
        for part, size in sizes.items():
            self.message_parts[part] += size

    @contextmanager
    def repeated(self, times: Times) -> Iterator[None]:
        """Within it, what is added counts `times`: a number, or a function of the step."""
        outside = self._loops
        self._loops = (*outside, times)
        try:
            yield
        finally:
            self._loops = outside


class Costs:
    """What all steps up to one have cost each agent.

    `units` says, for each "per" of an entry, how many there are at each agent. Where links fail,
    `live_links(steps, paths)` says how many each agent had in all those rounds: [..., agents].
    """

    def __init__(
        self,
        ledger: Ledger,
        units: Mapping[str, np.ndarray],
        live_links: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    ):
        self._entries, self._units, self._live_links = ledger.entries, units, live_links
        varies = any(callable(loop) for entry in self._entries for loop in entry.loops)
        self._steady = live_links is None and not varies
        self._at, self._totals = 0, self._nothing()

    def until(self, step: int) -> dict[str, np.ndarray]:
        """Column -> [..., agents]: the costs of steps 0 .. step - 1."""
        if self._steady:
            return {name: step * cost for name, cost in self._of_one_step.items()}
        if step < self._at:
            self._at, self._totals = 0, self._nothing()
        more = self._between(self._at, step)
        self._totals = {name: total + more[name] for name, total in self._totals.items()}
        self._at = step
        return self._totals

    def mean_until(self, step: int) -> dict[str, np.ndarray]:
        """Column -> [...]: the same, the mean over agents."""
        if self._steady:
            means = step * self._sums_of_one_step / len(self._units["step"])
            return dict(zip(COLUMNS, means, strict=True))
        return {name: cost.mean(axis=-1) for name, cost in self.until(step).items()}

    @cached_property
    def _sums_of_one_step(self) -> np.ndarray:
        return np.array([cost.sum() for cost in self._of_one_step.values()])

    @cached_property
    def _of_one_step(self) -> dict[str, np.ndarray]:
        return self._between(0, 1)

    def _between(self, start: int, stop: int) -> dict[str, np.ndarray]:
        totals = self._nothing()
        lived: dict[int, np.ndarray] = {}  # by exchange: its messages and bytes share them
        for entry in self._entries:
            if entry.site and self._live_links is not None:
                if entry.site not in lived:
                    lived[entry.site] = self._links_that_lived(entry, start, stop)
                units = lived[entry.site]
            else:
                times = sum(prod(entry.counts(t)) for t in range(start, stop))
                units = times * self._units[entry.per]
            totals[entry.column] = totals[entry.column] + entry.amount * units
        return totals

    def _links_that_lived(self, entry: Entry, start: int, stop: int) -> np.ndarray:
        """The live links of each agent, added up over all rounds of one exchange."""
        assert self._live_links is not None
        rounds = [
            (t, (entry.site, *loop))
            for t in range(start, stop)
            for loop in product(*(range(count) for count in entry.counts(t)))
        ]
        total = np.zeros_like(self._units["link"])
        for block in batched(rounds, ROUNDS_AT_ONCE):
            steps, paths = (np.array(part) for part in zip(*block, strict=True))
            total = total + self._live_links(steps, paths)
        return total

    def _nothing(self) -> dict[str, np.ndarray]:
        return {column: np.zeros_like(self._units["step"]) for column in COLUMNS}


def batched(items: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
