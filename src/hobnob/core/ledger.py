"""The ledger: what an agent's steps cost it, counted from what they really do.

Every service of `Agent` writes an entry while the step is traced. An amount may be per link or per
draw: how many links an agent has, or how many records a draw of its takes, is known to the runtime.
An entry inside a loop counts as often as the loop runs, which may depend on the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hobnob.core.network import Network

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
    part: str = ""  # of bytes: which part of a message

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
    _loops: tuple[Times, ...] = ()

    def add(
        self, column: str, amount: int, per: str = "step", site: int = 0, part: str = ""
    ) -> None:
        self.entries.append(Entry(column, amount, per, self._loops, site, part))

    def add_message(self, sizes: Mapping[str, int], per: str = "link", site: int = 0) -> None:
        """One round: the same message, of parts with these sizes in bytes, to every neighbour.

        With per="step" there is one message, to or from a server.
        """
        self.add("rounds", 1)
        self.add("messages", 1, per, site)
        for part, size in sizes.items():
            self.add("bytes", size, per, site, part)

    @property
    def message_parts(self) -> dict[str, int]:
        """The bytes of each part of a step's messages; in a loop, of one round of it."""
        parts: dict[str, int] = {}
        for entry in self.entries:
            if entry.column == "bytes":
                parts[entry.part] = parts.get(entry.part, 0) + entry.amount
        return parts

    @contextmanager
    def repeated(self, times: Times) -> Iterator[None]:
        """Within it, what is added counts `times`: a number, or a function of the step."""
        outside = self._loops
        self._loops = (*outside, times)
        try:
            yield
        finally:
            self._loops = outside


class Traffic(NamedTuple):
    """What a run sent.

    links   [links, 2], the agents at the ends of every link that its messages travel on
    bytes   [links], or [seeds, links]: what each link carried, both directions together
    parts   name -> bytes that an agent sent of this part of its messages, the mean over agents;
            names that begin with "up" and "down" went to and came from a server
    """

    links: np.ndarray
    bytes: np.ndarray
    parts: dict[str, np.ndarray]

    def and_then(self, later: Traffic) -> Traffic:
        """What two runs sent, one after the other."""
        links, amounts = _added_up(
            np.concatenate([self.links, later.links]),
            np.concatenate([self.bytes, later.bytes], axis=-1),
        )
        names = [*self.parts, *(name for name in later.parts if name not in self.parts)]
        parts = {name: self.parts.get(name, 0) + later.parts.get(name, 0) for name in names}
        return Traffic(links, amounts, {name: np.asarray(part) for name, part in parts.items()})


def _added_up(links: np.ndarray, amounts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each link once, with the sum of all that was listed for it."""
    once, which = np.unique(links, axis=0, return_inverse=True)
    together = np.zeros((*amounts.shape[:-1], len(once)), np.int64)
    where: Any = (..., which.ravel())
    np.add.at(together, where, amounts)
    return once, together


class Costs:
    """What all steps up to one have cost each agent.

    Args:
        ledger: the entries of one step.
        networks: which network an entry "per link" is about; "link" is the run's own.
        draws: for each kind of draw, how many samples it takes at each agent.
        live_links: `(steps, paths) -> [..., links]`, how often each link was up in all those
            rounds, where links fail.
        agents: whose costs to count, if not all agents'; traffic is then that of their links.
    """

    def __init__(
        self,
        ledger: Ledger,
        networks: Mapping[str, Network],
        draws: Mapping[str, np.ndarray],
        live_links: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
        agents: np.ndarray | None = None,
    ):
        agents = np.arange(networks["link"].size) if agents is None else agents
        self._agents = agents
        self._entries, self._networks, self._live_links = ledger.entries, networks, live_links
        self._units = {
            "step": np.ones(len(agents), np.int64),
            **{per: np.asarray(net.degrees, np.int64)[agents] for per, net in networks.items()},
            **draws,
        }
        varies = any(callable(loop) for entry in self._entries for loop in entry.loops)
        self._steady = live_links is None and not varies
        self._start_over()

    def until(self, step: int) -> dict[str, np.ndarray]:
        """Column -> [..., agents]: the costs of steps 0 .. step - 1."""
        totals = self._totals_until(step)
        return {column: totals[column] for column in COLUMNS}

    def mean_until(self, step: int) -> dict[str, np.ndarray]:
        """Column -> [...]: the same, the mean over agents."""
        if self._steady:
            means = step * self._sums_of_one_step / len(self._units["step"])
            return dict(zip(COLUMNS, means, strict=True))
        return {name: cost.mean(axis=-1) for name, cost in self.until(step).items()}

    def traffic_until(self, step: int) -> Traffic:
        """What each link carried, and what each part of the messages took."""
        totals = self._totals_until(step)
        carried: dict[str, Any] = {}
        for entry in self._entries:
            if entry.column == "bytes" and entry.per in self._networks:
                if self._live_links is None:
                    rounds = self._times(entry, 0, step) * np.ones(
                        len(self._networks[entry.per].ends), np.int64
                    )
                else:
                    rounds = self._rounds_up[entry.site]
                carried[entry.per] = carried.get(entry.per, 0) + 2 * entry.amount * rounds
        parts = {
            key[1]: cost.mean(axis=-1) for key, cost in totals.items() if isinstance(key, tuple)
        }
        if not carried:
            return Traffic(np.zeros((0, 2), np.int64), np.zeros(0, np.int64), parts)
        links, amounts = self._networks["link"].ends, carried.get("link")
        if len(carried) > 1 or amounts is None:  # levels may share a link
            every = np.concatenate([self._networks[per].ends for per in carried])
            links, amounts = _added_up(every, np.concatenate(list(carried.values()), axis=-1))
        theirs = np.isin(links, self._agents).any(axis=1)
        return Traffic(links[theirs], amounts[..., theirs], parts)

    def _totals_until(self, step: int) -> dict[str | tuple[str, str], np.ndarray]:
        if self._steady:
            return {name: step * cost for name, cost in self._of_one_step.items()}
        if step < self._at:
            self._start_over()
        more = self._between(self._at, step)
        self._totals = {name: self._totals.get(name, 0) + cost for name, cost in more.items()}
        self._at = step
        return self._totals

    def _start_over(self) -> None:
        self._at = 0
        self._totals: dict[str | tuple[str, str], Any] = {}
        self._rounds_up: dict[int, Any] = {}  # by exchange: in how many rounds each link was up

    @cached_property
    def _sums_of_one_step(self) -> np.ndarray:
        return np.array([self._of_one_step[column].sum() for column in COLUMNS])

    @cached_property
    def _of_one_step(self) -> dict[str | tuple[str, str], np.ndarray]:
        return self._between(0, 1)

    def _between(self, start: int, stop: int) -> dict[str | tuple[str, str], np.ndarray]:
        """Costs by column, and those of bytes also by ("bytes", part)."""
        totals: dict[str | tuple[str, str], Any] = {
            c: np.zeros_like(self._units["step"]) for c in COLUMNS
        }
        lived: dict[int, np.ndarray] = {}  # by exchange: its messages and bytes share them
        for entry in self._entries:
            if entry.site and self._live_links is not None:
                if entry.site not in lived:
                    lived[entry.site] = self._links_that_lived(entry, start, stop)
                units = lived[entry.site]
            else:
                units = self._times(entry, start, stop) * self._units[entry.per]
            cost = entry.amount * units
            totals[entry.column] = totals[entry.column] + cost
            if entry.part:
                part = entry.column, entry.part
                totals[part] = totals.get(part, 0) + cost
        return totals

    def _times(self, entry: Entry, start: int, stop: int) -> int:
        if not any(callable(loop) for loop in entry.loops):
            return (stop - start) * prod(entry.counts(start))
        return sum(prod(entry.counts(t)) for t in range(start, stop))

    def _links_that_lived(self, entry: Entry, start: int, stop: int) -> np.ndarray:
        """The live links of each agent, added up over all rounds of one exchange."""
        assert self._live_links is not None
        rounds = [
            (t, (entry.site, *loop))
            for t in range(start, stop)
            for loop in product(*(range(count) for count in entry.counts(t)))
        ]
        ends = self._networks["link"].ends
        up: Any = np.zeros(len(ends), np.int64)
        for block in in_blocks(rounds, ROUNDS_AT_ONCE):
            steps, paths = (np.array(part) for part in zip(*block, strict=True))
            up = up + self._live_links(steps, paths)
        self._rounds_up[entry.site] = self._rounds_up.get(entry.site, 0) + up
        agents = np.zeros((*up.shape[:-1], self._networks["link"].size), np.int64)
        for end in ends.T:
            where: Any = (..., end)
            np.add.at(agents, where, up)
        return agents[..., self._agents]


def in_blocks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
