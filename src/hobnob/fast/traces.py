"""Which trace JAX is in: it changes inside every loop, cond, vmap, grad and jit."""

from __future__ import annotations

from jax.extend.core import get_opaque_trace_state


def current_trace() -> object:
    """Equal to another one if both were asked for in the same trace."""
    return get_opaque_trace_state()
