"""Which versions made a number."""

from __future__ import annotations

import platform
from importlib.metadata import version


def hobnob_version() -> str:
    return version("hobnob")


def of_numbers() -> dict[str, str]:
    """The versions that a run's bits depend on."""
    return {name: version(name) for name in ("hobnob", "jax", "jaxlib")}


def of_everything() -> dict[str, str]:
    """What a report says about where it was made."""
    packages = ("numpy", "scipy", "networkx", "scikit-learn", "matplotlib")
    return {
        **of_numbers(),
        **{name: version(name) for name in packages},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
