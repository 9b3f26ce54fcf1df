"""Step sizes: a number, or any callable `step -> number`, such as an optax schedule.

Steps are counted from 0. The paper's rules count from t = 1, so they use t = step + 1.

A rule that depends on the number of agents (K) or of steps (T) has a method `bind(agents, steps)`
that returns the bound rule; `solve` calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, log
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.ground.errors import SettingError

Schedule = float | Callable[[Any], Any]


@dataclass(frozen=True)
class RootRule:
    """scale * sqrt(K / T), constant over a run: the paper's rule for nonconvex F."""

    scale: float
    agents: int | None = None
    steps: int | None = None

    def bind(self, agents: int, steps: int) -> RootRule:
        return replace(self, agents=agents, steps=steps)

    def __call__(self, step: Any) -> float:
        if self.agents is None or self.steps is None:
            raise SettingError(f"The rule {self} needs K and T: hb.solve binds them.")
        return self.scale * (self.agents / self.steps) ** 0.5

    def __str__(self) -> str:
        return f"{self.scale:g} sqrt(K/T)"

    def advice(self, most: float) -> str:
        """Say which T keeps the rule within `most`."""
        assert self.agents is not None
        return f"The rule {self} needs T >= {ceil(self.agents * (self.scale / most) ** 2)}."


@dataclass(frozen=True)
class InverseRule:
    """min(most, scale / (offset + t)^exponent) with t = 1, 2, ..."""

    scale: float
    offset: float = 0.0
    most: float = float("inf")
    exponent: float = 1.0

    def __call__(self, step: Any) -> Any:
        xp = np if isinstance(step, int | np.integer) else jnp
        return xp.minimum(self.most, self.scale / (self.offset + step + 1) ** self.exponent)

    def __str__(self) -> str:
        time = f"({self.offset:g} + t)" if self.offset else "t"
        power = "" if self.exponent == 1 else f"^{self.exponent:g}"
        rule = f"{self.scale:g} / {time}{power}"
        return rule if self.most == float("inf") else f"min({self.most:g}, {rule})"


@dataclass(frozen=True)
class SettlingRule:
    """`first` for half of a run, then linearly down to `last * first`."""

    first: float
    last: float = 0.01
    steps: int | None = None

    def bind(self, agents: int, steps: int) -> SettlingRule:
        return replace(self, steps=steps)

    def __call__(self, step: Any) -> Any:
        if self.steps is None:
            raise SettingError(f"The rule {self} needs T: hb.solve binds it.")
        xp = np if isinstance(step, int | np.integer) else jnp
        done = xp.maximum(0.0, 2 * (step + 1) / self.steps - 1)
        return self.first * (1 - (1 - self.last) * done)

    def __str__(self) -> str:
        return f"{self.first:g} until T/2, then down to {self.first * self.last:g}"


def nonconvex(scale: float = 1.0) -> RootRule:
    """The paper's rule for nonconvex F: scale * sqrt(K/T). Use C0 for alpha, 1 for beta, gamma.

    Its hyper-parameter experiment takes 0.1 for alpha and 10 for beta and gamma.
    """
    return RootRule(scale)


def pl_outer(mu: float, offset: float) -> InverseRule:
    """The paper's alpha under the mu-PL condition: 2 / (mu (C1 + t)), with C1 = offset."""
    return InverseRule(2 / mu, offset)


def pl_average(offset: float) -> InverseRule:
    """The paper's beta and gamma under the mu-PL condition: C1 / (C1 + t), with C1 = offset."""
    return InverseRule(offset, offset)


def capped(most: float, scale: float) -> InverseRule:
    """min(most, scale / t), as in the paper's policy evaluation.

    There alpha is `capped(0.01, 2 / regulariser)`, beta and gamma are `capped(0.5, 50)`.
    """
    return InverseRule(scale, most=most)


def settling(first: float, last: float = 0.01) -> SettlingRule:
    """Constant at first, then falling, so that noise averages out.

    It stays `first` until T/2 and then falls linearly to `last * first` at T.
    """
    return SettlingRule(first, last)


def power(scale: float, exponent: float, most: float = float("inf")) -> InverseRule:
    """min(most, scale / t^exponent), for methods whose analysis needs it.

    TTSA takes 3/5 for alpha and 2/5 for beta.
    """
    return InverseRule(scale, most=most, exponent=exponent)


def neumann_terms(steps: int, smoothness: float, strong_convexity: float) -> int:
    """The paper's b = 3 ceil(log T / log(1 / (1 - kappa))), kappa = strong_convexity / smoothness.

    It makes the truncation error of the series, (1 - kappa)^b, at most 1 / T^3.
    """
    if not 0 < strong_convexity <= smoothness:
        raise SettingError(
            f"strong_convexity = {strong_convexity} must be above 0 and at most smoothness = "
            f"{smoothness}."
        )
    if strong_convexity == smoothness:
        return 1
    return 3 * ceil(log(max(steps, 2)) / -log(1 - strong_convexity / smoothness))


def all_values(schedule: Callable[[Any], Any], steps: int) -> np.ndarray:
    """A schedule's values at all steps, traced as in the compiled loop."""
    try:
        values = np.asarray(jax.vmap(schedule)(jnp.arange(steps, dtype=jnp.int32)), float)
    except jax.errors.ConcretizationTypeError as error:
        raise SettingError(
            f"The schedule {schedule} asks in Python for the value of its step, which is not known "
            f"while the loop is compiled. Use jnp.where(step < 5, 0.1, 0.01) and the like."
        ) from error
    except SettingError:
        raise
    except Exception as error:
        raise SettingError(
            f"The schedule {schedule} failed: {type(error).__name__}: {error}"
        ) from error
    if values.shape != (steps,):
        raise SettingError(
            f"The schedule {schedule} must return one number a step, not an array of shape "
            f"{values.shape[1:]}."
        )
    return values


def value_at(schedule: Schedule, step: Any) -> Any:
    return schedule(step) if callable(schedule) else schedule


def bound(schedule: Any, agents: int, steps: int) -> Any:
    """The schedule with K and T bound, if it depends on them."""
    return schedule.bind(agents, steps) if hasattr(schedule, "bind") else schedule
