"""Functions as JAX has written them down: with their calls written out, and who depends on what."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from itertools import compress
from typing import Any

import jax

# What each kind of call names what it calls. Rules of the user's own for derivatives are followed
# where JAX takes derivatives: a jaxpr is what is left then.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr"}
_CALLS |= {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
_PRODUCTS = {"dot_general", "conv_general_dilated"}


def inlined(function: Callable[..., Any], *inputs: Any) -> Any:
    """The jaxpr of a function, with what it calls written out; its inputs are the flat ones."""
    closed = jax.make_jaxpr(function)(*inputs)

    def written_out(*given: Any) -> list[Any]:
        return evaluate(closed.jaxpr, closed.consts, given, closed.jaxpr.outvars)

    return jax.make_jaxpr(written_out)(*jax.tree.leaves(inputs))


def dependent(jaxpr: Any, on: Iterable[Any]) -> set[Any]:
    """The variables that depend on some of them, these included."""
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


def multiplied(jaxpr: Any, data: Iterable[Any], moving: Iterable[Any]) -> bool:
    """Whether there is a product of matrices or vectors of the one and of what moves besides."""
    data, moving = dependent(jaxpr, data), dependent(jaxpr, moving)

    def of(kind: set[Any], variables: Any) -> list[bool]:
        return [is_variable(v) and v in kind for v in variables]

    for e in jaxpr.eqns:
        given, moves, inside = of(data, e.invars), of(moving, e.invars), called(e)
        if inside is not None:
            ends = inside.jaxpr.invars
            if multiplied(inside.jaxpr, compress(ends, given), compress(ends, moves)):
                return True
        elif e.primitive.name in _PRODUCTS:
            alone = [g and not m for g, m in zip(given, moves, strict=True)]
            if any(alone) and any(moves):
                return True
    return False


def mentions(equation: Any, names: Container[str]) -> bool:
    """Whether there are primitives of some names in what an equation calls, repeats or chooses."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            jaxpr = getattr(part, "jaxpr", part)
            for e in getattr(jaxpr, "eqns", ()):
                if e.primitive.name in names or mentions(e, names):
                    return True
    return False


def is_variable(v: Any) -> bool:
    return not hasattr(v, "val")  # a literal has one


def evaluate(
    jaxpr: Any,
    consts: Any,
    given: Any,
    wanted: Any,
    known: dict[Any, Any] | None = None,
    apply: Callable[[Any, list[Any]], list[Any] | None] = lambda equation, inputs: None,
) -> list[Any]:
    """The wanted variables of a jaxpr, with calls written out and the known ones as they are.

    `apply(equation, inputs)` may know better what an equation's outputs are.
    """
    known = known or {}
    values = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= dict(zip(jaxpr.invars, given, strict=True)) | known

    def read(v: Any) -> Any:
        return values[v] if is_variable(v) else v.val

    for e in jaxpr.eqns:
        if all(v in known for v in e.outvars):
            continue
        inputs = [read(v) for v in e.invars]
        outputs, inside = apply(e, inputs), called(e)
        if outputs is None and inside is not None:
            ends = inside.jaxpr.outvars
            outputs = evaluate(inside.jaxpr, inside.consts, inputs, ends, apply=apply)
        elif outputs is None:
            outputs = e.primitive.bind(*inputs, **e.primitive.get_bind_params(e.params))
            outputs = outputs if e.primitive.multiple_results else [outputs]
        values |= dict(zip(e.outvars, outputs, strict=True)) | known
    return [read(v) for v in wanted]


def called(equation: Any) -> Any:
    """The closed jaxpr that an equation calls, if it does nothing else."""
    return equation.params.get(_CALLS.get(equation.primitive.name))
