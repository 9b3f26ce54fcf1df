"""hb.testing: the checks that hold the library's own algorithms, for one of yours.

They need no reference: an algorithm is compared with itself on agents that are really apart, with
agents renumbered, after a stop, and with what it says of itself. All settings come from `suggest`.

Example:
    >>> import hobnob as hb
    >>> hb.testing.check_algorithm(hb.SOBA, only="services")
    ['services']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hobnob.core.algorithm import Algorithm
from hobnob.ground.errors import SettingError
from hobnob.testing.bounds import bounds
from hobnob.testing.check import Check, ConformanceError
from hobnob.testing.flows import flows
from hobnob.testing.locality import locality
from hobnob.testing.mailbox import mailboxes
from hobnob.testing.resume import resume
from hobnob.testing.services import services
from hobnob.testing.solution import solution
from hobnob.testing.state import one_compilation, state
from hobnob.testing.symmetry import identical_agents, relabelling

__all__ = ["ConformanceError", "check_algorithm", "checks_for"]

# The simplest first: what breaks one of them breaks many that follow.
_CHECKS: tuple[Check, ...] = (
    state,
    services,
    mailboxes,
    flows,
    locality,
    relabelling,
    identical_agents,
    resume,
    one_compilation,
    bounds,
    solution,
)


def check_algorithm(cls: type[Algorithm], only: str | Sequence[str] | None = None) -> list[str]:
    """Run the checks that apply to an algorithm's class, and return their names.

    The first one that fails raises `ConformanceError`, which says what failed and why it matters.

    Args:
        cls: a subclass of `hb.Algorithm`, such as one in a file of yours.
        only: the name of a check, or several names.
    """
    chosen = checks_for(cls)
    if only is not None:
        names = [only] if isinstance(only, str) else list(only)
        known = dict(chosen)
        for name in names:
            if name not in known:
                raise SettingError(
                    f"There is no check {name!r} for {cls.__name__}. There are: {', '.join(known)}."
                )
        chosen = [(name, known[name]) for name in names]
    for _, function in chosen:
        function(cls)
    return [name for name, _ in chosen]


def checks_for(cls: type[Algorithm]) -> list[tuple[str, Callable[[type[Algorithm]], Any]]]:
    """(name, function) of each check that applies. The function takes the class.

    With pytest:

        @pytest.mark.parametrize(("name", "check"), hb.testing.checks_for(Mine))
        def test_mine(name, check):
            check(Mine)
    """
    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise SettingError(f"{cls!r} is not a class of algorithms: give hb.DSBO, not hb.DSBO(...).")
    return [(check.name, check) for check in _CHECKS if check.applies(cls)]
