"""All random keys are made here.

A key depends on (seed, agent, step, slot) only: not on the runtime, not on earlier draws. So a
resumed run, or one spread over other machines, draws the same samples.
"""

from __future__ import annotations

from zlib import crc32

import jax
from jax.typing import ArrayLike

from hobnob.ground.threefry import fold_in


def of_agent(seed: ArrayLike, agent: ArrayLike) -> jax.Array:
    """The key of one agent for a whole run."""
    # Name the generator, so that the user's JAX default does not change the samples.
    return fold_in(jax.random.key(seed, impl="threefry2x32"), agent)


def of_slot(agent_key: jax.Array, step: ArrayLike, slot: str) -> jax.Array:
    """The key of one draw: `slot` is the draw's name in the algorithm, such as "zeta"."""
    return fold_in(fold_in(agent_key, step), crc32(slot.encode()))


def of_links(seed: ArrayLike) -> jax.Array:
    """The key for a run's failing links."""
    return fold_in(jax.random.key(seed, impl="threefry2x32"), crc32(b"links"))


def of_round(links_key: jax.Array, step: ArrayLike, path: tuple[ArrayLike, ...]) -> jax.Array:
    """The key of one round: `path` says which of a step's rounds it is."""
    key = fold_in(links_key, step)
    for part in path:
        key = fold_in(key, part)
    return key
