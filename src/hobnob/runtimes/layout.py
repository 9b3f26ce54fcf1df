"""Layout: the form in which a run holds its state from chunk to chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax


@dataclass(frozen=True)
class Layout:
    """The state as it is. A kernel may want another form.

    Layouts that are equal do the same, so that what was compiled for one serves the other.
    """

    def packed(self, state: Any) -> Any:
        return state

    def opened(self, held: Any) -> Any:
        return held

    def answer(self, held: Any) -> tuple[Any, Any]:
        """x and y, without opening the rest."""
        return held.x, held.y

    def disagreements(self, held: Any) -> dict[str, jax.Array]:
        """mean_k |w_k - mean w|^2 of variables for which it is known without opening them.

        A number each, or one for each of several seeds.
        """
        return {}
