"""Wire: what a runtime brings so that agents in several processes hear each other."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from hobnob.fast import HostFunction


class RoundPlan(NamedTuple):
    """One exchange between neighbouring processes.

    A row is a whole message of an agent, of `row_bytes` for each of `seeds`. Rows go out neighbour
    by neighbour and come in neighbour by neighbour, in the order of the agents' numbers.

    neighbours   the processes to talk to
    rows, to     for every row that goes out: which agent of this process, to which neighbour
    from_        for every row that comes in: from which neighbour
    alike        in every process the same rows go to all neighbours, and equally many come from
                 each
    links        [rows out, links] and [rows in, links]: the links that a row serves, where links
                 fail on purpose; a row none of whose links is up is not sent
    crossing     [neighbours, links]: the links that end at each neighbour
    """

    neighbours: np.ndarray
    rows: np.ndarray
    to: np.ndarray
    from_: np.ndarray
    seeds: int
    row_bytes: int
    dtype: np.dtype[Any]
    alike: bool
    links: tuple[np.ndarray, np.ndarray] | None
    crossing: np.ndarray


class Round(HostFunction, Protocol):
    """Takes (token, rows[, down]) and fills (rows heard[, gone], token).

    `gathered`: the rows to take are those that go out, in their order; otherwise those of all
    agents here.
    """

    gathered: bool


class Wire(Protocol):
    """Carries rows between processes.

    rank        which process this is
    loses       True if a neighbour may go away while a run goes on. A round then says which links
                that took down: it has one more result, a flag a link.
    """

    rank: int
    loses: bool

    def neighbourhood(self, neighbours: np.ndarray) -> Any:
        """What `round` needs to know of these neighbours. All processes call it."""
        ...

    def round(self, neighbourhood: Any, plan: RoundPlan) -> Round: ...

    def reduction(self, width: int, dtype: Any) -> HostFunction:
        """Takes (token, numbers) and fills (their sum over all processes, token)."""
        ...


def together(rows: np.ndarray) -> bool:
    """True if rows lie one after the other, so that they can be sent from where they are."""
    return bool((np.diff(rows) == 1).all())
