"""Every error that a user can meet.

A message says what is wrong, where, with the number, what follows from it and what to do. All of
them are `HobnobError`, which is a `ValueError`; the subclasses tell where to look.
"""

from __future__ import annotations

from typing import Any


class HobnobError(ValueError):
    """Something in the input, or in what a run was asked to do, cannot work."""


class NetworkError(HobnobError):
    """The graph or its mixing matrix cannot carry a run."""


class ProblemError(HobnobError):
    """The losses, their starting point or the agents' data are unusable."""


class SettingError(HobnobError):
    """A hyper-parameter, a schedule or an option is out of range."""


class ConfigError(HobnobError):
    """A configuration file or a command line asks for something that does not exist."""


class CheckpointError(HobnobError):
    """A checkpoint is torn, belongs to another run or was written by another version."""


class DivergenceError(HobnobError):
    """The iterates stopped being finite numbers. `history` holds what was recorded before."""

    def __init__(
        self, message: str, *, step: int, agent: int, variable: str, history: dict[str, Any]
    ):
        super().__init__(message)
        self.step = step
        self.agent = agent
        self.variable = variable
        self.history = history
