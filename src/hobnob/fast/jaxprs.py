"""Jaxprs: functions as JAX has traced them, with their calls inlined and their dependencies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any

import jax

# Primitives that only call another jaxpr, and the parameter that holds it. A user's own rules for
# derivatives are followed where JAX differentiates; a jaxpr shows what is left after that.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr"}
_CALLS |= {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}


def inlined(function: Callable[..., Any], *inputs: Any) -> Any:
    """The closed jaxpr of a function of flat inputs, with all calls inlined."""
    closed = jax.make_jaxpr(function)(*inputs)

    def without_calls(*given: Any) -> list[Any]:
        return evaluate(closed.jaxpr, closed.consts, given, closed.jaxpr.outvars)

    return jax.make_jaxpr(without_calls)(*jax.tree.leaves(inputs))


def dependent(jaxpr: Any, on: Iterable[Any]) -> set[Any]:
    """The variables that depend on any of `on`, these included."""
    found = set(on)
    for e in jaxpr.eqns:
        moving = [is_variable(v) and v in found for v in e.invars]
        inside = called(e)
        if inside is None:
            found |= set(e.outvars) if any(moving) else set()
        else:
            inner = dependent(inside.jaxpr, compress(inside.jaxpr.invars, moving))
            ends = zip(e.outvars, inside.jaxpr.outvars, strict=True)
            found |= {v for v, end in ends if is_variable(end) and end in inner}
    return found


def is_variable(v: Any) -> bool:
    return not hasattr(v, "val")  # a literal has one


def evaluate(
    jaxpr: Any, consts: Any, given: Any, wanted: Any, known: dict[Any, Any] | None = None
) -> list[Any]:
    """The values of the `wanted` variables; those in `known` are taken as they are."""
    known = known or {}
    values = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= dict(zip(jaxpr.invars, given, strict=True)) | known

    def read(v: Any) -> Any:
        return values[v] if is_variable(v) else v.val

    for e in jaxpr.eqns:
        if all(v in known for v in e.outvars):
            continue
        inputs, inside = [read(v) for v in e.invars], called(e)
        if inside is not None:
            outputs = evaluate(inside.jaxpr, inside.consts, inputs, inside.jaxpr.outvars)
        else:
            outputs = e.primitive.bind(*inputs, **e.primitive.get_bind_params(e.params))
            outputs = outputs if e.primitive.multiple_results else [outputs]
        values |= dict(zip(e.outvars, outputs, strict=True)) | known
    return [read(v) for v in wanted]


def called(equation: Any) -> Any:
    """The closed jaxpr that an equation calls, if it does nothing else."""
    return equation.params.get(_CALLS.get(equation.primitive.name))
