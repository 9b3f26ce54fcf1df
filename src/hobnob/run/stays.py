"""Stays: a compiled loop asks after every step whether the next one may follow at once."""

from __future__ import annotations

import ctypes
from typing import Any

import jax
import numpy as np

from hobnob.core.owners import Owners
from hobnob.fast import Addresses
from hobnob.runtimes.apart.host_call import host_call


class Stays:
    """Asks the other owners from within the loop, which ends where the answer is no.

    To leave the loop after every step would take longer than a round over loopback.
    """

    def __init__(self, owners: Owners):
        self._owners, self._call = owners, host_call()

    def ask(self, step: Any, after: Any) -> jax.Array:
        yes = jax.ShapeDtypeStruct((), np.bool_)
        return self._call(self, [yes], jax.numpy.asarray(step, np.int32), after)[0]

    def called(self, inputs: Addresses, outputs: Addresses) -> None:
        step = ctypes.c_int32.from_address(inputs[0]).value
        ctypes.c_bool.from_address(outputs[0]).value = self._owners.stays(step)
