"""Algorithm, the base class: hyper-parameters with `init` and `step`, written for one agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from hobnob.core.schedules import all_values, bound
from hobnob.ground.errors import SettingError

if TYPE_CHECKING:
    from hobnob.core.agent import Agent


class Scale(NamedTuple):
    """What `Algorithm.suggest` needs to know about a problem.

    Args:
        smoothness: L, the largest curvature of the inner problem.
        strong_convexity: mu, its smallest curvature.

    Example:
        >>> import hobnob as hb
        >>> hb.DSBO.suggest(hb.Scale(smoothness=10.0, strong_convexity=1.0)).terms
        40
    """

    smoothness: float
    strong_convexity: float


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """The base of every algorithm: it checks hyper-parameters and binds schedules.

    A subclass is a frozen dataclass in its own file. Its state is a NamedTuple with at least the
    flat vectors `x` and `y`.

    `single_agent`, `server`, `compositional`, `finite_sum` and `personal` say what it is for.
    `levels` names the parts whose messages may use separate networks. `flows` names the fields of
    the state that `agent.flow` keeps, with one row a neighbour. `exact` says where constant
    step sizes end when agents differ and nothing is random: at the solution if True; if False, at
    a point whose distance from it shrinks with the step sizes. A `biased` algorithm ends at a wrong
    point for any step sizes. One with `chance` makes random draws of its own and is right only in
    the mean. `needs_strong_convexity` is True unless its settings let it cope with many inner
    solutions.

    Example:
        >>> from dataclasses import dataclass
        >>> from typing import Any, NamedTuple
        >>> import hobnob as hb
        >>> class State(NamedTuple):
        ...     x: Any
        ...     y: Any
        >>> @dataclass(frozen=True, kw_only=True)
        ... class OnlyInner(hb.Algorithm):
        ...     gamma: Any = hb.fields.positive()
        ...     def init(self, agent):
        ...         return State(agent.x0, agent.y0)
        ...     def step(self, agent, state):
        ...         (gamma,) = agent.rates(self.gamma)
        ...         gradient = agent.inner_gradient(state.x, state.y, agent.draw_inner("xi"))
        ...         return State(state.x, agent.mix(state.y) - gamma * gradient)
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> hb.solve(problem, hb.ring(4), OnlyInner(gamma=0.05), steps=20).status
        'finished'
    """

    exact: ClassVar[bool]
    biased: ClassVar[bool] = False
    chance: ClassVar[bool] = False
    single_agent: ClassVar[bool] = False  # uses no network
    server: ClassVar[bool] = False  # its agents talk to a server, not to each other
    compositional: ClassVar[bool] = False  # needs g = 1/2 |y - h(x)|^2
    finite_sum: ClassVar[bool] = False  # remembers every record
    personal: ClassVar[bool] = False  # for problems in which every agent has its own y
    levels: ClassVar[tuple[str, ...]] = ()  # what it passes to `agent.mix` as `level`
    flows: ClassVar[tuple[str, ...]] = ()  # fields of its state that `agent.flow` keeps

    @property
    def needs_strong_convexity(self) -> bool:
        """False if, with its settings, an inner problem with many solutions is welcome, too."""
        return True

    def init(self, agent: Agent) -> Any:
        """An agent's first state."""
        raise NotImplementedError

    def step(self, agent: Agent, state: Any) -> Any:
        """The state after one iteration."""
        raise NotImplementedError

    @classmethod
    def suggest(cls, scale: Scale) -> Self:
        """Safe constant step sizes for a problem of this curvature."""
        raise NotImplementedError

    def check_fits(self, problem: Any, network: Any, links: Any = None) -> None:
        """Refuse a problem, a network or failures that the algorithm cannot handle."""
        name = type(self).__name__
        if self.server and links is not None:
            raise SettingError(
                f"{name} speaks through a server, not over the network's links, so links can't "
                f"fail. Use a method for gossip, such as DSBO."
            )
        if self.single_agent and network.size != 1:
            raise SettingError(
                f"{name} is a method for one agent, and the network has {network.size}. Put the "
                f"records of all into one shard and use hb.complete(1)."
            )
        unknown = [level for level in network.levels if level not in self.levels]
        if unknown:
            has = f"its levels are {', '.join(self.levels)}" if self.levels else "it has no levels"
            raise SettingError(
                f"The network has links of their own for level {unknown[0]}, which {name} does not "
                f"know: {has}. SPARKLE has x, y and z."
            )
        if network.levels and links is not None:
            raise SettingError(
                "Links can't fail where levels have networks of their own: which of them would it "
                "be? Leave out links, or with_levels."
            )
        if self.personal and not problem.personal:
            raise SettingError(
                f"{name} is a method for personal problems, in which every agent has a y of its "
                f"own, and the agents of this one have a common y. Use SPARKLE, or describe the "
                f"problem with hb.Problem(..., personal=True)."
            )
        if problem.personal and not self.personal:
            raise SettingError(
                f"{name} looks for one y that all agents have in common, and in this problem "
                f"every agent has its own (personal=True): it would solve another problem. Use "
                f"LoPA, or leave personal out."
            )
        if self.compositional and not problem.compositional:
            raise SettingError(
                f"{name} is a method for compositional problems, whose inner loss is "
                f"1/2 |y - h(x)|^2. Describe yours with hb.Compositional, or use a bilevel method."
            )

        if self.finite_sum:
            for label in ("outer_data", "inner_data"):
                if not getattr(problem, label).records:
                    raise SettingError(
                        f"{name} remembers something of every record, and {label} is a simulator, "
                        f"which has none: each of its samples is new. Use SOBA, which remembers "
                        f"nothing, or give {label} as records."
                    )

    def explain_divergence(self, step: int, largest_curvature: float) -> str:
        """Say which setting may have caused it, given the curvature just before."""
        return f"The largest curvature of the inner problem was {largest_curvature:.3g}."

    def __post_init__(self) -> None:
        for name, value in self._settings():
            metadata = self._metadata(name)
            words = metadata.get("words")
            if words and value not in words:
                quoted = [f'"{word}"' for word in words]
                allowed = f"{', '.join(quoted[:-1])} or {quoted[-1]}"
                raise SettingError(f"{name} = {value!r} must be {allowed}.")
            if metadata.get("fixed") or not callable(value):
                self._check(name, value)
            if metadata.get("whole"):  # np.ceil gives 20.0, which is accepted as 20
                number: Any = value
                object.__setattr__(self, name, int(number))
        known = dict(self._settings())
        if known.get("strong_convexity", 0) > known.get("smoothness", float("inf")):
            raise SettingError(
                f"strong_convexity = {known['strong_convexity']:g} is above smoothness = "
                f"{known['smoothness']:g}: the smallest curvature can't be above the largest."
            )

    def bind(self, agents: int, steps: int) -> Self:
        """The same algorithm with K and T bound in its schedules, and their values checked."""
        changes = {name: bound(v, agents, steps) for name, v in self._settings() if callable(v)}
        for name, schedule in changes.items():
            values = self._values(name, schedule, (agents, steps))
            if self._metadata(name).get("may_vanish"):
                values = values[values != 0]  # a warm-up or a decay may touch 0
            for value in (values.min(), values.max()) if values.size else ():
                self._check(name, value, schedule, (agents, steps))
        return replace(self, **changes) if changes else self

    def step_sizes(self) -> dict[str, Any]:
        """The hyper-parameters that are constant step sizes or weights, by name."""
        return {
            name: value
            for name, value in self._settings()
            if "range" in (known := self._metadata(name))
            and not known.get("fixed")
            and not callable(value)
        }

    def with_traced(self, step_sizes: Mapping[str, Any]) -> Self:
        """The same with other step sizes. They are traced values, so they cannot be checked."""
        if not step_sizes:
            return self
        other = copy(self)
        for name, value in step_sizes.items():
            object.__setattr__(other, name, value)
        return other

    def describe(self) -> dict[str, str]:
        """Each hyper-parameter in words."""
        return {name: _in_words(value) for name, value in self._settings()}

    def _settings(self) -> list[tuple[str, Any]]:
        return [(f.name, getattr(self, f.name)) for f in fields(self)]

    def _check(
        self,
        name: str,
        value: Any,
        schedule: Callable[[Any], Any] | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        metadata = self._metadata(name)
        if "range" not in metadata:
            return
        where = f" at K = {size[0]}, T = {size[1]}" if size else ""
        whole, allowed = metadata.get("whole"), metadata["range"]
        if not _is_number(value):
            kind = "a number" if metadata.get("fixed") else "a number or a callable step -> number"
            kind = "a whole number" if whole else kind
            raise SettingError(f"{name} = {value!r}{where} must be {kind}.")
        number = float(value)
        if whole and isfinite(number) and number != int(number):
            raise SettingError(f"{name} = {value!r} must be a whole number.")
        complaint = allowed.refuses(number)
        if complaint:
            too_large = isfinite(number) and number > allowed.most
            advise = getattr(schedule, "advice", None) if too_large else None
            advice = f" {advise(allowed.most)}" if advise else ""
            raise SettingError(f"{name} = {number:.3g}{where} {complaint}.{advice}")

    def _values(self, name: str, schedule: Any, size: tuple[int, int]) -> np.ndarray:
        """All values of a schedule, after a check that the first is a number."""
        try:
            first = schedule(0)
            if _is_number(first):
                return all_values(schedule, size[1])
        except Exception as error:
            raise SettingError(f"{name}: {error or type(error).__name__}") from error
        self._check(name, first, schedule, size)
        raise AssertionError("what is not a number is refused")

    def _metadata(self, name: str) -> Mapping[str, Any]:
        return type(self).__dataclass_fields__[name].metadata


def _is_number(value: Any) -> bool:
    single = getattr(value, "ndim", 0) == 0 and not isinstance(value, bool)
    return single and hasattr(value, "__float__")


def _in_words(value: Any) -> str:
    if callable(value):
        own = (
            type(value).__str__ is not object.__str__ or type(value).__repr__ is not object.__repr__
        )
        return str(value) if own and "<function" not in repr(value) else "a function of the step"
    return repr(value)
