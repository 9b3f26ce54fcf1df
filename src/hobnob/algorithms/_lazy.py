"""Mixing that keeps half of one's own: M = (I + W) / 2, whose eigenvalues are never negative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from hobnob.core.agent import Agent

Mix = Callable[[Any], Any]


def lazy(agent: Agent, level: str | None = None) -> Mix:
    """M, with the W of a level."""

    def M(tree: Any) -> Any:
        mixed = agent.mix(tree, level)
        return jax.tree.map(lambda own, mixed: (own + mixed) / 2, tree, mixed)

    return M
