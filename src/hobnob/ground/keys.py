"""The only maker of random keys.

A key is a function of (seed, agent, step, slot) and of nothing else: not of the runtime, not of
what was drawn before. So a resumed run, or one spread over other machines, draws the same samples.
"""

from __future__ import annotations

from zlib import crc32

import jax
from jax.typing import ArrayLike

from hobnob.ground.threefry import fold_in


def of_agent(seed: ArrayLike, agent: ArrayLike) -> jax.Array:
    """The key that one agent keeps for a whole run."""
    # The generator is named, so that a user's default for JAX does not change the samples.
    return fold_in(jax.random.key(seed, impl="threefry2x32"), agent)


def of_slot(agent_key: jax.Array, step: ArrayLike, slot: str) -> jax.Array:
    """The key of one draw: `slot` is the draw's name in the algorithm, such as "zeta"."""
    return fold_in(fold_in(agent_key, step), crc32(slot.encode()))


def of_links(seed: ArrayLike) -> jax.Array:
    """The key from which a run draws which links fail."""
    return fold_in(jax.random.key(seed, impl="threefry2x32"), crc32(b"links"))


def of_round(links_key: jax.Array, step: ArrayLike, path: tuple[ArrayLike, ...]) -> jax.Array:
    """The key of one round: `path` says which of a step's rounds it is."""
    key = fold_in(links_key, step)
    for part in path:
        key = fold_in(key, part)
    return key
