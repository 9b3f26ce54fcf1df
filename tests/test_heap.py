"""Memory that is freed stays with the process, up to a limit, unless the user decided otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource
from hobnob.heap import keep_freed_memory

keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def faults(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    place = libc.malloc(size)
    ctypes.memset(place, 1, size)
    libc.free(place)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

for size in (4 * 2**20, 4 * 2**20, 96 * 2**20, 96 * 2**20):
    print(faults(size))
"""


def faults(**environment: str) -> list[int]:
    """Pages that had to be asked for: 4 MB and once more, 96 MB and once more."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return [int(line) for line in ran.stdout.split()]


pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc is meant")


def test_what_is_freed_is_used_again() -> None:
    first, again, large, large_again = faults()
    assert again < first / 10
    assert large_again > large / 2  # goes back to the system


def test_who_has_set_glibc_up_is_left_alone() -> None:
    _, again, _, _ = faults(MALLOC_MMAP_THRESHOLD_="65536")
    assert again > 500
