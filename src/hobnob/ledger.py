"""The ledger: what one step costs each agent, counted from what the step really does.

Every service of `Agent` writes an entry while the step is traced. An amount may be per link or per
draw: how many links an agent has, or how many records a draw of its takes, is known to the runtime.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

COLUMNS = ("samples", "gradients", "products", "matrices", "rounds", "messages", "bytes")


@dataclass
class Ledger:
    """The entries of one step of one agent.

    - samples: records, or simulated samples, that were drawn;
    - gradients: gradients of f or g, by x, by y or by both at once;
    - products: Hessian-vector and Jacobian-vector products;
    - matrices: whole Hessians and cross-derivative matrices;
    - rounds: exchanges with the neighbours; messages and bytes: what the agent sent in them.
    """

    entries: list[tuple[str, int, str]] = field(default_factory=list)
    message_parts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, column: str, amount: int, per: str = "step") -> None:
        self.entries.append((column, amount, per))

    def add_message(self, sizes: dict[str, int]) -> None:
        """One round: the same message, of parts with these sizes in bytes, to every neighbour."""
        self.add("rounds", 1)
        self.add("messages", 1, per="link")
        self.add("bytes", sum(sizes.values()), per="link")
        for part, size in sizes.items():
            self.message_parts[part] += size

    def totals(self, units: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """For each column, what one step costs each agent. `units`: how often, for each `per`."""
        totals = {column: np.zeros_like(units["step"]) for column in COLUMNS}
        for column, amount, per in self.entries:
            totals[column] = totals[column] + amount * units[per]
        return totals
