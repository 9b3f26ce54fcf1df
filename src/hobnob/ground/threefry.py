"""The random numbers of `jax.random`, bit for bit, at lower cost.

JAX's generator, Threefry-2x32, is 20 rounds of additions, rotations and exclusive ors (Salmon,
Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011). On a CPU, JAX compiles
each use of it to a separate loop. A step of one agent uses it about a dozen times, for a few
numbers each, so compiling and starting the loops takes longer than the numbers. Written out, the
rounds fuse with the surrounding code.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from hobnob.ground.barrier import materialised

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def fold_in(key: jax.Array, data: ArrayLike) -> jax.Array:
    """`jax.random.fold_in`."""
    low = np.uint32(data) if isinstance(data, int) else jnp.asarray(data).astype(jnp.uint32)
    return _key(*_hash(*_words(key), np.uint32(0), low))


def split(key: jax.Array, count: int = 2) -> jax.Array:
    """`jax.random.split`."""
    numbers = jnp.arange(count, dtype=jnp.uint32)
    return _key(*_hash(*_words(key), numbers * 0, numbers))


def uniform(key: jax.Array, shape: Sequence[int], dtype: Any, least: float = 0.0) -> jax.Array:
    """`jax.random.uniform(key, shape, dtype, least)`: in [least, 1)."""
    numbers = jnp.arange(prod(shape), dtype=jnp.uint32)
    high, low = _hash(*map(_once, _words(key)), numbers * 0, numbers)
    kind = jnp.finfo(dtype)
    if kind.bits == 64:
        bits = high.astype(jnp.uint64) << np.uint64(32) | low.astype(jnp.uint64)
    else:
        bits = high ^ low
    one = np.ones((), dtype).view(bits.dtype)
    # Random mantissa bits of a number in [1, 2).
    digits = lax.bitcast_convert_type(bits >> (kind.bits - kind.nmant) | one, dtype) - 1
    start = np.asarray(least, dtype)
    numbers = jnp.maximum(start, digits * (1 - start) + start)
    return materialised(numbers.reshape(tuple(shape)))


def normal(key: jax.Array, shape: Sequence[int], dtype: Any) -> jax.Array:
    """`jax.random.normal`."""
    least = float(np.nextafter(np.array(-1, dtype), np.array(0, dtype)))
    numbers = lax.erf_inv(uniform(key, shape, dtype, least))
    return materialised(numbers * np.array(np.sqrt(2), dtype))


def integers(key: jax.Array, shape: Sequence[int], bound: ArrayLike) -> jax.Array:
    """`jax.random.randint(key, shape, 0, bound, jnp.int32)`, for a bound of at least 1."""
    span = jnp.asarray(bound).astype(jnp.uint32)
    two, many = (jnp.arange(n, dtype=jnp.uint32) for n in (2, prod(shape)))
    keys = (_once(word)[:, None] for word in _hash(*_words(key), two * 0, two))
    left, right = _hash(*keys, many[None] * 0, many[None])
    high, low = left ^ right
    wrap = _remainder(np.uint32(1 << 16), span)
    wrap = _remainder(wrap * wrap, span)  # 2^32
    total = _remainder(high, span) * wrap + _remainder(low, span)
    return _once(_remainder(total, span)).astype(jnp.int32).reshape(tuple(shape))


def _words(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    data = jax.random.key_data(key)
    return data[..., 0], data[..., 1]


def _key(first: jax.Array, second: jax.Array) -> jax.Array:
    return jax.random.wrap_key_data(jnp.stack([first, second], axis=-1), impl="threefry2x32")


def _once(words: jax.Array) -> jax.Array:
    """The same words, which XLA then computes only once.

    XLA recomputes them for every reader, unless they end in an operation that it considers
    expensive, such as a division by a number that it does not know to be 1.
    """
    return words // jnp.minimum(words | np.uint32(1), np.uint32(1))


@jax.jit
def _hash(first: Any, second: Any, high: Any, low: Any) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 of every pair of words (high, low), under a key of two words."""
    parts = first, second, first ^ second ^ _PARITY
    a, b = jnp.broadcast_arrays(high + first, low + second)
    for i in range(5):
        for turn in _ROTATIONS[i % 2]:
            a = lax.add(a, b)
            left = lax.shift_left(b, np.full(b.shape, turn, np.uint32))
            right = lax.shift_right_logical(b, np.full(b.shape, 32 - turn, np.uint32))
            b = lax.bitwise_xor(lax.bitwise_or(left, right), a)
        a, b = a + parts[(i + 1) % 3], b + parts[(i + 2) % 3] + np.uint32(i + 1)
    return a, b


def _remainder(number: ArrayLike, span: jax.Array) -> jax.Array:
    """`number % span`. Processors divide several float64 at once, but integers one by one."""
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        return jnp.asarray(number) % span
    # Exact: a quotient of 32-bit numbers is never within rounding of the next whole number.
    quotient = jnp.floor(jnp.asarray(number).astype(jnp.float64) / span.astype(jnp.float64))
    return jnp.asarray(number) - quotient.astype(jnp.uint32) * span
