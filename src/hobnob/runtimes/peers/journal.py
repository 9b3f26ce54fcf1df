"""Journal: who came, who went and what was refused, for the log and for the result."""

from __future__ import annotations

import time
from collections.abc import Callable

from hobnob.core.owners import Absence
from hobnob.runtimes.peers.link import Link

_HARMLESS = ("late", "doubled", "before a handshake")  # a few, whenever a connection breaks


class Journal:
    """Writes a line whenever something happens that an owner should know."""

    def __init__(self, log: Callable[[str], None]):
        self.absences: list[Absence] = []
        self._log, self._started = log, time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def away(self, link: Link, why: str, step: int) -> None:
        self.absences.append(Absence(link.name, why, step, self.seconds))
        self._log(
            f"step {step:,}: {link.name} is away ({why}). Going on without it; its weight is ours "
            f"until it is back."
        )

    def back(self, link: Link, step: int) -> None:
        """A link came up. If its other end was away before, that is over."""
        for i, absence in enumerate(self.absences):
            if absence.who == link.name and absence.until is None:
                self.absences[i] = absence._replace(until=step, until_seconds=self.seconds)
                waited = self.seconds - absence.seconds
                self._log(f"step {step:,}: {link.name} is back after {waited:.1f} s.")

    def refused(self, link: Link, reason: str, step: int) -> None:
        """Count a frame that is not used; the 1st, 10th, 100th ... of a kind are named."""
        link.refused[reason] += 1
        count = link.refused[reason]
        if str(count).strip("0") == "1" and (count >= 100 or reason not in _HARMLESS):
            again = f" ({count:,} so far)" if count > 1 else ""
            self._log(f"step {step:,}: refused a frame of {link.name}: {reason}{again}.")
