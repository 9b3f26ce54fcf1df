"""What the C library does with memory that XLA frees between two chunks of steps."""

from __future__ import annotations

import ctypes
import os
from functools import cache

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # as mallopt calls them
_LARGEST_KEPT = 2**25  # bytes of an array; glibc allows no more
_MOST_KEPT = 2**26  # bytes that are free, a thread


@cache
def keep_freed_memory() -> None:
    """Where the library is glibc: keep it for the next chunk.

    Otherwise it goes back to the system, and every page of it is asked for and cleared anew. That
    took 2 ms a chunk where a state has 4 MB. Who has set glibc up in the environment is left alone.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
    mallopt(_TRIM_THRESHOLD, _MOST_KEPT)
