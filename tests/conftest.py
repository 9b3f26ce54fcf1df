"""What all tests share."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest

# Most of a test's time is compilation, and tests, their workers and the processes that they start
# compile the same programs again and again. Set before JAX is imported, and inherited.
_CACHE = Path(__file__).parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Without LLVM's optimisation tests take a third less time. XLA's own passes, which decide what is
# computed and in which order, stay the same. The older emitters save another fifth; newer releases
# no longer have them, and a flag that XLA does not know ends the process.
_FLAGS = ["--xla_backend_optimization_level=0"]
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):
    _FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(_FLAGS))

# JAX writes an entry of that cache in place: whoever reads it meanwhile is warned, and compiles.
_HALF_WRITTEN = "ignore:Error reading persistent compilation cache entry:UserWarning"
os.environ["PYTHONWARNINGS"] = ",".join(
    filter(None, [os.environ.get("PYTHONWARNINGS"), _HALF_WRITTEN])
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", _HALF_WRITTEN)
