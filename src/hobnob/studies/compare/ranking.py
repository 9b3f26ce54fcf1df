"""What each method needed to reach the target, and which one to take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hobnob.report.style import amount
from hobnob.studies.cell import Found
from hobnob.studies.compare.contest import COSTS, at_end
from hobnob.studies.statistics import Interval, median_interval


class Standing(NamedTuple):
    """What a contestant needed to reach the target.

    needs      cost -> median over seeds; infinite if most seeds never reached it
    reached    how many of `seeds` seeds reached it
    end        the value at the end of the runs
    lost       why there is nothing to show, else ""
    server     whether the method needs a server
    """

    name: str
    needs: Mapping[str, Interval]
    reached: int
    seeds: int
    end: Interval
    settings: str
    lost: str
    server: bool

    @property
    def there(self) -> bool:
        """Whether its median seed reached the target."""
        return bool(np.isfinite(self.needs["samples"].value))


def standing(name: str, found: Found, target: float, server: bool) -> Standing:
    values = found["value"]
    there = values <= target
    first = there.argmax(axis=1)
    ever = there.any(axis=1)
    needs = {cost: median_interval(np.where(ever, found[cost][first], np.inf)) for cost in COSTS}
    lost = ""
    if not str(found["settings"]):
        some = np.isfinite(found["tries"][:, 2]).any()
        lost = "diverged with the whole budget" if some else "diverged in every try"
    elif np.isinf(values[:, -1]).any():
        lost = "diverged when measured"
    settings, end = str(found["settings"]), median_interval(at_end(values))
    return Standing(name, needs, int(ever.sum()), len(values), end, settings, lost, server)


def ranked(standings: list[Standing]) -> list[Standing]:
    """First those that reached the target, by samples; then the others, by their end value."""
    return sorted(standings, key=lambda s: (s.needs["samples"].value, s.end.value, s.name))


def target_without_optimum(found: Mapping[str, Found]) -> float:
    """1 % above the lowest end value of all methods, each the median over seeds."""
    best = min(float(np.median(at_end(f["value"]))) for f in found.values())
    return best + 0.01 * abs(best)


def recommendation(standings: list[Standing], goal: str, what: str) -> str:
    """One sentence. `goal` is the target in words, `what` the name of what is measured."""
    order = ranked(standings)
    # The network in question has no server, so prefer methods that need none.
    there = [s for s in order if s.there and not s.server] or [s for s in order if s.there]
    if not there:
        nearest = min(order, key=lambda s: s.end.value)
        if not np.isfinite(nearest.end.value):
            return "Every method diverged: this problem needs smaller step sizes than were tried."
        return (
            f"No method reached {goal} within the budget: {_titled(nearest)} came nearest, with "
            f"{what} = {nearest.end.value:.4g} at the end, so give them more."
        )
    by_samples, by_bytes = (_least(there, cost) for cost in ("samples", "bytes"))
    if by_samples is by_bytes:
        alike = _alike(there, by_samples, "samples", "bytes")
        also = f"; these seeds can't distinguish it from {_listed(alike)}" if alike else ""
        only = "alone reached it" if len(there) == 1 else "needed the fewest of both"
        return f"Take {_titled(by_samples)}: {_took(by_samples, goal)}, and {only}{also}."
    for best, other, first, second in (
        (by_samples, by_bytes, "samples", "bytes"),
        (by_bytes, by_samples, "bytes", "samples"),
    ):
        if best in _alike(there, other, second):
            return (
                f"Take {_titled(best)}: {_took(best, goal)}, the fewest {first}. These seeds can't "
                f"distinguish its {second} from the fewest, those of {_titled(other)}."
            )
    return (
        f"Take {_titled(by_samples)} if samples are expensive and {_titled(by_bytes)} if bytes "
        f"are: to reach {goal} the first took {_both(by_samples)}, the second {_both(by_bytes)}."
    )


def _least(there: list[Standing], cost: str) -> Standing:
    return min(there, key=lambda s: s.needs[cost].value)


def _alike(there: list[Standing], best: Standing, *costs: str) -> list[Standing]:
    """Others whose intervals overlap the best one's in all of these costs."""
    return [
        s
        for s in there
        if s is not best and all(s.needs[c].low <= best.needs[c].high for c in costs)
    ]


def _listed(standings: list[Standing]) -> str:
    names = [_titled(s) for s in standings]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _titled(standing: Standing) -> str:
    return f"{standing.name} (with a server)" if standing.server else standing.name


def _took(standing: Standing, goal: str) -> str:
    return f"to reach {goal} it took {_both(standing)}"


def _both(standing: Standing) -> str:
    samples, size = (standing.needs[cost].value for cost in ("samples", "bytes"))
    return f"{samples:,.0f} samples and {amount(size)} an agent"
