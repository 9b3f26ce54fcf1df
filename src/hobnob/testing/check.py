"""Check: one promise that an algorithm is held to, and the error that says it was broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hobnob.core.algorithm import Algorithm
from hobnob.testing.trial import Trial, trial_of
from hobnob.testing.watched import Unmet


class ConformanceError(AssertionError):
    """A check failed. `check` is its name; the message says what failed and why it matters."""

    def __init__(self, message: str, check: str = ""):
        super().__init__(message)
        self.check = check


def expect(holds: Any, found: str) -> None:
    if not holds:
        raise Unmet(found)


class Check:
    """A function of a class that returns if the class keeps the promise, and raises if not."""

    def __init__(
        self,
        name: str,
        why: str,
        applies: Callable[[type[Algorithm]], bool],
        body: Callable[[Trial], None],
    ):
        self.name, self.why, self.applies, self._body = name, why, applies, body
        self.__doc__ = body.__doc__

    def __call__(self, cls: type[Algorithm]) -> None:
        try:
            self._body(trial_of(cls))
        except Unmet as error:
            raise self._failure(cls, str(error)) from None
        except Exception as error:
            raised = f"it raised {type(error).__name__}: {error}"
            raise self._failure(cls, raised) from error

    def __repr__(self) -> str:
        return f"<check {self.name}>"

    def _failure(self, cls: type[Algorithm], found: str) -> ConformanceError:
        found = found if found.endswith((".", "!", "?")) else f"{found}."
        fails = f"{cls.__name__} fails the check {self.name!r}: {found}"
        return ConformanceError(f"{fails}\nWhy it matters: {self.why}", self.name)


def any_algorithm(cls: type[Algorithm]) -> bool:
    return True


def many_agents(cls: type[Algorithm]) -> bool:
    return not cls.single_agent


def gossip(cls: type[Algorithm]) -> bool:
    return not cls.single_agent and not cls.server


def check(
    why: str, applies: Callable[[type[Algorithm]], bool] = any_algorithm
) -> Callable[[Callable[[Trial], None]], Check]:
    """A check that is named like the function."""
    return lambda body: Check(body.__name__, why, applies, body)
