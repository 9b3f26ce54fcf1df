"""Which run a checkpoint belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from hobnob.core.schedules import all_values
from hobnob.run.run import Run

TUNABLE = "hyper-parameter "  # how the parts begin that resume="retune" may change


def identity_of(
    run: Run, record_every: int, metrics: Sequence[str], horizon: int
) -> dict[str, str]:
    """Part by part, all that a checkpoint must agree with. Schedules count up to `horizon`."""

    def described(value: Any) -> str:
        if not callable(value):
            return str(value)
        return sha256(all_values(value, horizon).tobytes()).hexdigest()

    setup, algorithm = run.setup, run.algorithm
    seeds = setup.seeds if isinstance(setup.seeds, int) else list(setup.seeds)
    return {
        **run.fingerprint(),
        "network": run.network.fingerprint(),
        "links": str(setup.links or "none fails"),
        "algorithm": type(algorithm).__name__,
        **{TUNABLE + name: described(value) for name, value in vars(algorithm).items()},
        "seed": str(seeds),
        "record_every": str(record_every),
        "metrics": ", ".join(metrics),
        "horizon": str(horizon),
    }
