"""Faster ways to do what the library does anyway, behind one door.

`enter` is the door, and `HOBNOB_PLAIN=1` closes it: then every algorithm runs its own step, W is
mixed by tables, XLA gets no options, and compiled programs reach Python through `io_callback`. The
answers are the same.
"""

from __future__ import annotations

import os
from typing import Any

from hobnob.core.mixing_matrix import CSR
from hobnob.core.setup import Setup
from hobnob.fast.host import Addresses, HostCall, HostFunction
from hobnob.fast.step import FastMixing, FastStep, StateLayout

__all__ = [
    "Addresses",
    "FastMixing",
    "FastStep",
    "Faster",
    "HostCall",
    "HostFunction",
    "StateLayout",
    "enter",
]


class Faster:
    """What is behind the door."""

    def step(self, setup: Setup) -> FastStep | None:
        """A faster form of the algorithm's step for all agents at once, if there is one."""
        from hobnob.fast.dsbo_step import dsbo_step

        return dsbo_step(setup)

    def mixing(self, W: CSR, dtype: Any) -> FastMixing | None:
        """A faster form of W, if there is one."""
        from hobnob.fast.circulant import circulant

        return circulant(W, dtype)

    def compiler_options(self, dtype: Any, crowded: bool = False) -> dict[str, Any]:
        """What XLA is told when it compiles a run."""
        from hobnob.fast.xla import compiler_options

        return compiler_options(dtype, crowded)

    def host_call(self) -> HostCall | None:
        """A call from a compiled program into Python that copies nothing, if jaxlib allows it."""
        from hobnob.fast.ffi import direct_call

        return direct_call()


def enter() -> Faster | None:
    """The faster ways, or None if they are closed."""
    return None if os.environ.get("HOBNOB_PLAIN", "") not in ("", "0") else Faster()
