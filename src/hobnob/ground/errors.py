"""All errors that a user can see.

A message says what is wrong, where, with the number, what follows and what to do. Every error is a
`HobnobError`, which is a `ValueError`; the subclass says where to look.
"""

from __future__ import annotations

from typing import Any


class HobnobError(ValueError):
    """The base of all errors: something in the input or the options cannot work."""


class NetworkError(HobnobError):
    """The graph or its mixing matrix is unusable."""


class ProblemError(HobnobError):
    """The losses, their starting point or the agents' data are unusable."""


class SettingError(HobnobError):
    """A hyper-parameter, a schedule or an option is out of range."""


class ConfigError(HobnobError):
    """A configuration file or a command line asks for something that does not exist."""


class CheckpointError(HobnobError):
    """A checkpoint is damaged, belongs to another run or was written by another version."""


class PeerError(HobnobError):
    """What other owners' processes do, or an identity, is unusable."""


class DivergenceError(HobnobError):
    """The iterates are no longer finite.

    `history` holds what was recorded before, `best` the mean x and y at the row with the lowest F,
    if one was measured, `ledger` and `traffic` what all of it cost.
    """

    def __init__(
        self,
        message: str,
        *,
        step: int,
        agent: int,
        variable: str,
        history: dict[str, Any],
        best: tuple[Any, Any] | None = None,
        ledger: dict[str, Any] | None = None,
        traffic: Any = None,
    ):
        super().__init__(message)
        self.step = step
        self.agent = agent
        self.variable = variable
        self.history = history
        self.best = best
        self.ledger = ledger or {}
        self.traffic = traffic
