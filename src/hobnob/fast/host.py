"""What it takes for a compiled program to call Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax


class Addresses(Protocol):
    """Where the data of several arrays lies in memory."""

    def __getitem__(self, number: int, /) -> int: ...


class HostFunction(Protocol):
    """What is called: it reads the arrays at `inputs` and fills those at `outputs`."""

    def called(self, inputs: Addresses, outputs: Addresses) -> None: ...


class HostCall(Protocol):
    """Calls a host function inside a compiled program.

    Two calls are ordered by what one needs of the other.
    """

    def __call__(
        self, function: HostFunction, results: Sequence[jax.ShapeDtypeStruct], *operands: Any
    ) -> Sequence[Any]: ...
