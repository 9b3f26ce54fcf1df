"""SolveOptions: what `solve` is asked besides the problem, network, algorithm and steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hobnob.core.links import Failure
from hobnob.core.setup import Runtime, Seeds
from hobnob.run.recorder import Metrics
from hobnob.run.store import Resume


@dataclass(frozen=True)
class SolveOptions:
    """As the arguments of `solve`; `hopeless` is that of a `Plan`."""

    seeds: Seeds
    record_every: int | None
    metrics: Metrics
    tolerance: float | None
    callback: Callable[[Any, Any], Any] | None
    checkpoint: str | Path | None
    checkpoint_every: int | None
    checkpoint_seconds: float | None
    resume: Resume
    progress: bool | None
    links: Failure | Sequence[Failure] | None
    runtime: Runtime
    hopeless: Callable[[dict[str, np.ndarray]], bool] | None = None
