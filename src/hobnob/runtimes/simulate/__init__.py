"""Simulate: the whole network in one process, every agent a row of one array."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from hobnob.core.group import OneProcess
from hobnob.core.network import Network
from hobnob.core.setup import Setup
from hobnob.runtimes.simulate.rows import Rows


class Simulate:
    """The default runtime: all agents in this process.

    Args:
        retunable: runs that differ in constant step sizes and seeds alone share one compiled
            program, which takes the step sizes as arguments. Each run is a little slower and its
            numbers are equal to rounding.

    Example:
        >>> import hobnob as hb
        >>> hb.Simulate().leads
        True
    """

    leads = True

    def __init__(self, retunable: bool = False):
        self.programs: dict[Any, Any] | None = {} if retunable else None

    def watched(self, network: Network) -> AbstractContextManager[None]:
        return nullcontext()

    def join(self, setup: Setup) -> tuple[OneProcess, Rows]:
        return OneProcess(np.arange(setup.network.size)), Rows(setup)
