"""A compiled program calls Python with the addresses of its arrays, and nothing is copied.

`jax.experimental.io_callback` takes hundreds of microseconds a call and copies what it is given
and what it returns. XLA's foreign function interface takes a few, and hands out the buffers
themselves, so that MPI sends from them and receives into them. Its binary layout is fixed by
`xla/ffi/api/c_api.h`, which jaxlib ships, and XLA checks its version when a target is registered.
"""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any
from weakref import ref

import jax

_VERSION = 0, 1  # of the interface: what is read below has been there from the start

# Where things lie. A call's frame in words of eight bytes, the rest in bytes.
_EXTENSION, _STAGE, _ARGUMENTS, _RESULTS, _FRAME = 1, 4, 9, 14, 21
_EXECUTE = 3  # the stage in which there are buffers
_DATA = 24  # of a buffer
_METADATA, _MAJOR, _MINOR, _TRAITS = 24, 24, 28, 32  # of the question for metadata

_Word = ctypes.c_uint64
_Frame = _Word * _FRAME
_Answer = ctypes.CFUNCTYPE(_Word, _Word)
_answers: list[Any] = []  # kept for good: XLA may ask as long as the process lives


class Called:
    """What a compiled program calls: `called(arguments, results)`, for `address` to look into."""

    def __init__(self) -> None:
        self.target = f"hobnob_{len(_answers)}"
        answer = _Answer(_answer_for(ref(self)))
        _answers.append(answer)
        jax.ffi.register_ffi_target(self.target, jax.ffi.pycapsule(answer), platform="cpu")

    def called(self, arguments: int, results: int) -> None:
        raise NotImplementedError


def call(what: Called, results: Sequence[jax.ShapeDtypeStruct], *operands: Any) -> Sequence[Any]:
    """Call it from within a compiled program. Order two calls by what one needs of the other."""
    return jax.ffi.ffi_call(what.target, list(results), has_side_effect=True)(*operands)


def address(of: int, number: int) -> int:
    """Where the data of an argument, or of a result, lies."""
    return _Word.from_address(_Word.from_address(of + 8 * number).value + _DATA).value


def _answer_for(what: ref[Called]) -> Any:
    def answer(frame: int) -> int:
        try:
            words = _Frame.from_address(frame)[:]
            if words[_EXTENSION]:
                _tell_version(_Word.from_address(words[_EXTENSION] + _METADATA).value)
            elif words[_STAGE] & 0xFFFFFFFF == _EXECUTE:
                here = what()
                assert here is not None, "a program outlives the run that it belongs to"
                here.called(words[_ARGUMENTS], words[_RESULTS])
        except BaseException:  # nobody above could catch it: XLA is no Python
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        return 0

    return answer


def _tell_version(metadata: int) -> None:
    ctypes.c_int32.from_address(metadata + _MAJOR).value = _VERSION[0]
    ctypes.c_int32.from_address(metadata + _MINOR).value = _VERSION[1]
    ctypes.c_uint32.from_address(metadata + _TRAITS).value = 0
