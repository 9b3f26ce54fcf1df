"""The versions that a result depends on."""

from __future__ import annotations

import platform
from importlib.metadata import version


def hobnob_version() -> str:
    return version("hobnob")


def of_numbers() -> dict[str, str]:
    """The versions that determine a run's bits."""
    return {name: version(name) for name in ("hobnob", "jax", "jaxlib")}


def of_everything() -> dict[str, str]:
    """The versions and the machine, for reports."""
    packages = ("numpy", "scipy", "networkx", "scikit-learn", "matplotlib")
    return {
        **of_numbers(),
        **{name: version(name) for name in packages},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
