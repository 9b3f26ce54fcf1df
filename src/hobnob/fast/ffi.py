"""Compiled programs call Python with the addresses of their arrays, and nothing is copied.

`jax.experimental.io_callback` takes hundreds of microseconds a call and copies what goes in and
out. XLA's foreign function interface takes a few, and hands out the buffers themselves, so that
MPI sends from them and receives into them. Its binary layout is that of `xla/ffi/api/c_api.h`,
which jaxlib ships. `direct_call` compares the sizes of its structures and makes a trial call; if
either is not as expected, there is no direct call.
"""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any
from weakref import WeakKeyDictionary, ref

import jax
import jax.numpy as jnp

from hobnob.fast.host import HostFunction

_MAJOR_VERSION = 0  # of the interface: another one may lay out its structures differently
_EXECUTE = 3  # the stage in which there are buffers
_Word = ctypes.c_uint64


def _structure(*fields: tuple[str, Any]) -> type[ctypes.Structure]:
    """Every structure of the interface begins with its size and a pointer to extensions."""
    head = ("size", _Word), ("extension", _Word)
    return type("Structure", (ctypes.Structure,), {"_fields_": [*head, *fields]})


_Buffers = _structure(("count", _Word), ("types", _Word), ("buffers", _Word))
_Buffer = _structure(("dtype", _Word), ("data", _Word), ("rank", _Word), ("dims", _Word))
_Attributes = _structure(*((name, _Word) for name in ("count", "types", "names", "values")))
_Frame = _structure(
    ("api", _Word),
    ("context", _Word),
    ("stage", ctypes.c_int32),
    ("arguments", _Buffers),
    ("results", _Buffers),
    ("attributes", _Attributes),
)
_ARGUMENTS, _RESULTS = (
    getattr(_Frame, part).offset + _Buffers.buffers.offset  # type: ignore[attr-defined]
    for part in ("arguments", "results")
)
_EXTENSION, _STAGE = _Frame.extension.offset, _Frame.stage.offset  # type: ignore[attr-defined]
_DATA = _Buffer.data.offset  # type: ignore[attr-defined]
# Where versions lie: those of XLA in its table of functions, ours in what it asks for.
_API, _XLA_MAJOR, _XLA_MINOR = _Frame.api.offset, 32, 36  # type: ignore[attr-defined]
_METADATA, _MAJOR, _MINOR, _TRAITS = 24, 24, 28, 32

_Handler = ctypes.CFUNCTYPE(_Word, _Word)
_handlers: list[Any] = []  # kept for good: XLA may call them as long as the process lives


class _AddressesAt:
    """The data addresses of the buffers that a table of pointers names."""

    __slots__ = ("_table",)

    def __init__(self, table: int):
        self._table = table

    def __getitem__(self, number: int) -> int:
        buffer = _Word.from_address(self._table + 8 * number).value
        return _Word.from_address(buffer + _DATA).value


class DirectCall:
    """A `HostCall` that copies nothing."""

    def __init__(self) -> None:
        self._targets: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    def __call__(
        self, function: HostFunction, results: Sequence[jax.ShapeDtypeStruct], *operands: Any
    ) -> Sequence[Any]:
        if function not in self._targets:
            self._targets[function] = _registered(_answer_for(ref(function)))
        target = self._targets[function]
        return jax.ffi.ffi_call(target, list(results), has_side_effect=True)(*operands)


@cache
def direct_call() -> DirectCall | None:
    """The direct call, or None with one warning if this jaxlib is not as expected."""
    try:
        reason = _trial()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    if reason:
        warnings.warn(
            f"Compiled programs can't call Python directly with jaxlib "
            f"{version('jaxlib')}: {reason} They use io_callback, which is slower.",
            stacklevel=2,
        )
        return None
    return DirectCall()


def _registered(answer: Callable[[int], int]) -> str:
    handler = _Handler(answer)
    _handlers.append(handler)
    target = f"hobnob_{len(_handlers)}"
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
    return target


def _answer_for(function: ref[HostFunction]) -> Callable[[int], int]:
    def answer(frame: int) -> int:
        try:
            if extension := _Word.from_address(frame + _EXTENSION).value:
                _answer_version(frame, extension)
            elif ctypes.c_int32.from_address(frame + _STAGE).value == _EXECUTE:
                here = function()
                assert here is not None, "a program outlives the run that it belongs to"
                arguments = _Word.from_address(frame + _ARGUMENTS).value
                results = _Word.from_address(frame + _RESULTS).value
                here.called(_AddressesAt(arguments), _AddressesAt(results))
        except BaseException:  # nobody above could catch it: XLA is no Python
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        return 0

    return answer


def _answer_version(frame: int, extension: int) -> None:
    """XLA asks which version a target is for: the one that it has itself, of our major version.

    It accepts older ones for a year only. The trial call sees whether structures are the same.
    """
    api = _Word.from_address(frame + _API).value
    major, minor = (ctypes.c_int32.from_address(api + at).value for at in (_XLA_MAJOR, _XLA_MINOR))
    metadata = _Word.from_address(extension + _METADATA).value
    ctypes.c_int32.from_address(metadata + _MAJOR).value = _MAJOR_VERSION
    ctypes.c_int32.from_address(metadata + _MINOR).value = minor if major == _MAJOR_VERSION else 0
    ctypes.c_uint32.from_address(metadata + _TRAITS).value = 0


def _trial() -> str:
    """Call back once, and look at every structure before anything in it is used. "": all well."""
    found: list[str] = []

    def check(frame: int) -> None:
        call: Any = _Frame.from_address(frame)
        if call.size < ctypes.sizeof(_Frame):
            found.append(f"a call's frame has {call.size} bytes.")
            return
        for name, part in (("arguments", call.arguments), ("results", call.results)):
            if (part.size, part.count) != (ctypes.sizeof(_Buffers), 1):
                found.append(f"its {name} have {part.size} bytes for {part.count} buffers.")
                return
        buffers = [_Word.from_address(p.buffers).value for p in (call.arguments, call.results)]
        for buffer in map(_Buffer.from_address, buffers):
            if buffer.size != ctypes.sizeof(_Buffer):  # type: ignore[attr-defined]
                found.append(f"a buffer has {buffer.size} bytes.")  # type: ignore[attr-defined]
                return
        three = ctypes.c_float * 3
        source, into = (
            three.from_address(_AddressesAt(p.buffers)[0]) for p in (call.arguments, call.results)
        )
        for i, number in enumerate(source):
            into[i] = 2 * number

    def answer(frame: int) -> int:
        try:
            if extension := _Word.from_address(frame + _EXTENSION).value:
                _answer_version(frame, extension)
            elif ctypes.c_int32.from_address(frame + _STAGE).value == _EXECUTE:
                check(frame)
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}.")
        return 0

    target, shape = _registered(answer), jax.ShapeDtypeStruct((3,), jnp.float32)
    doubled = jax.jit(lambda a: jax.ffi.ffi_call(target, shape, has_side_effect=True)(a))
    end = doubled(jnp.array([1, 2, 3], jnp.float32)).tolist()
    if not found and end != [2, 4, 6]:
        found.append(f"a trial call returned {end} in place of [2, 4, 6].")
    return found[0] if found else ""
