"""What makes two owners' problems the same program, whosever data each of them has."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from hobnob.core.data import Loss, Records, Source
from hobnob.ground.errors import ProblemError

if TYPE_CHECKING:
    from hobnob.core.problem import Problem

ROWS = 2  # of a whole shard, whose length differs from agent to agent


def loss_digest(problem: Problem, loss: Loss, source: Source, rows: int | None = None) -> str:
    """Of the lowered computation and the constants it closes over.

    `rows` are traced where a batch is the whole shard: as many as agent 0 has, if not given.
    """
    flat = problem.x_layout.ravel(problem.x0), problem.y_layout.ravel(problem.y0)
    digest = sha256()
    with problem.precision():
        for trace, example in source.traceables(loss, rows):
            lowered = jax.jit(problem.of_flat(trace)).lower(*flat, example)
            digest.update(lowered.as_text().encode())
    return digest.hexdigest()


def start_digest(problem: Problem) -> str:
    digest = sha256()
    for flat in (problem.x_layout.ravel(problem.x0), problem.y_layout.ravel(problem.y0)):
        digest.update(flat.dtype.str.encode() + flat.tobytes())
    return digest.hexdigest()


def bounds_digest(problem: Problem) -> str:
    return sha256(b"".join(b.tobytes() for b in problem.x_bounds or ())).hexdigest()


def program_hash(problem: Problem) -> str:
    """One digest of both losses, the shapes of a batch, the starting point and the bounds.

    The same for all owners of a problem: records and their number do not matter. Another version
    of JAX may lower the same losses differently.
    """
    parts = [start_digest(problem), bounds_digest(problem), str(problem.personal)]
    for start in (problem.x0, problem.y0):
        leaves = jax.tree_util.tree_leaves_with_path(start)
        parts += [f"{jax.tree_util.keystr(path)} {np.shape(leaf)}" for path, leaf in leaves]
    for loss, source in _levels(problem):
        parts += [loss_digest(problem, loss, source, ROWS), batch_shapes(source)]
    return sha256("\n".join(parts).encode()).hexdigest()


def batch_shapes(source: Source) -> str:
    """What a batch holds, such as "features float64[4, 30], label float64[4]"; n: a whole shard."""
    if not isinstance(source, Records):
        return "drawn by a simulator"
    ((_, example),) = source.traceables(lambda x, y, batch: batch, ROWS)
    words = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(example):
        name = ".".join(str(_plain(key)) for key in path) or "records"
        rows = "n" if source.noiseless else leaf.shape[0]
        shape = ", ".join(str(size) for size in (rows, *leaf.shape[1:]))
        words.append(f"{name} {leaf.dtype}[{shape}]")
    return ", ".join(words)


def _plain(key: Any) -> Any:
    return getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))


def _levels(problem: Problem) -> list[tuple[Loss, Source]]:
    if problem.unread:
        raise ProblemError(
            "The shapes of a batch are not known before a shard is read: "
            "problem.hosting([agent]) reads the shards of the agents that are here."
        )
    return [(problem.outer, problem.outer_data), (problem.inner, problem.inner_data)]
