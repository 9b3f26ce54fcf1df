"""The Hessians of many batches as low-rank products, where a loss is built so that they are.

Most losses are sums of two kinds of terms. Some use the batch only together with a few numbers
that are linear in y, such as the r margins a'y of its records. Others, such as a penalty, don't
use the batch at all. With m = A y the margins and C the second derivatives with respect to them,

    H = A' C A + S,

where A is r by d and S is the same for all batches. This is exact. It is read off the jaxpr of the
loss; if the loss is not of this kind, there is no factorisation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hobnob.fast.jaxprs import dependent, evaluate, inlined, is_variable

# Linear in their first operand, with all others fixed; the two products in either one.
_LINEAR = {
    "neg",
    "reshape",
    "squeeze",
    "broadcast_in_dim",
    "transpose",
    "slice",
    "split",
    "unstack",
    "reduce_sum",
    "div",
    "copy",
}
_BILINEAR = {"mul", "dot_general"}


class Factored(NamedTuple):
    """Hessians A_i' C_i A_i + S, for batches i = 1 .. b."""

    A: jax.Array  # (b, r, d)
    C: jax.Array  # (b, r, r)
    S: jax.Array  # (d, d)


def factored_hessians(
    loss: Callable[[jax.Array, Any], jax.Array], y: jax.Array, batches: Any
) -> Factored | None:
    """The Hessians of `loss(y, batch)` in y, or None if they are not found to be of low rank."""
    count, first = jax.tree.leaves(batches)[0].shape[0], jax.tree.map(lambda a: a[0], batches)
    flat = _Flat(loss, y, first)
    seen, unseen = flat.terms()
    margins = flat.margins(seen)
    if sum(v.aval.size for v in margins) > y.size / 2:
        return None
    shared = jax.hessian(lambda y: flat.total(unseen, {flat.y: y}, first))(y)
    if not margins:
        none = jnp.zeros((count, 0, 0), y.dtype)
        return Factored(jnp.zeros((count, 0, y.size), y.dtype), none, shared)

    def factors(batch: Any) -> tuple[jax.Array, jax.Array]:
        def of_y(y: jax.Array) -> jax.Array:
            values = flat.values(margins, {flat.y: y}, batch)
            return jnp.concatenate([value.ravel() for value in values])

        def of_margins(m: jax.Array) -> jax.Array:
            parts, start = {flat.y: y}, 0
            for v in margins:
                parts[v] = m[start : start + v.aval.size].reshape(v.aval.shape)
                start += v.aval.size
            return flat.total(seen, parts, batch)

        return jax.jacrev(of_y)(y), jax.hessian(of_margins)(of_y(y))

    return Factored(*jax.vmap(factors)(batches), shared)


class _Flat:
    """The jaxpr of a loss with its calls inlined, and what in it depends on y and on the batch."""

    def __init__(self, loss: Callable[..., jax.Array], y: jax.Array, batch: Any):
        flat = inlined(loss, y, batch)
        self.jaxpr, self.consts = flat.jaxpr, flat.consts
        self.y, *self.batch = self.jaxpr.invars
        self.source = {v: e for e in self.jaxpr.eqns for v in e.outvars}
        self.by_y = dependent(self.jaxpr, [self.y])
        self.by_batch = dependent(self.jaxpr, self.batch)

    def terms(self) -> tuple[list[Any], list[Any]]:
        """(sign, variable) of each term of the sum: those that use the batch, and the others."""
        every = [(s, v) for s, v in self._split(1, self.jaxpr.outvars[0]) if v in self.by_y]
        seen = [term for term in every if term[1] in self.by_batch]
        return seen, [term for term in every if term not in seen]

    def margins(self, terms: list[Any]) -> list[Any]:
        """The variables, linear in y, through which alone these terms depend on y."""
        needed, queue = set(), [v for _, v in terms]
        linear, found = self._linear(), []
        while queue:
            v = queue.pop()
            if v in needed or v not in self.by_y:
                continue
            needed.add(v)
            if v in linear:
                found.append(v)
            else:
                queue += [u for u in self.source[v].invars if is_variable(u)]
        return found

    def values(self, wanted: list[Any], known: dict[Any, Any], batch: Any) -> list[Any]:
        known = known | dict(zip(self.batch, jax.tree.leaves(batch), strict=True))
        given = [known.pop(v) for v in self.jaxpr.invars]
        return evaluate(self.jaxpr, self.consts, given, wanted, known)

    def total(self, terms: list[Any], known: dict[Any, Any], batch: Any) -> jax.Array:
        values = self.values([v for _, v in terms], known, batch)
        return sum(
            (s * value for (s, _), value in zip(terms, values, strict=True)),
            jnp.zeros((), self.jaxpr.outvars[0].aval.dtype),
        )

    def _split(self, sign: int, v: Any) -> Iterator[tuple[int, Any]]:
        equation = self.source.get(v) if is_variable(v) else None
        name = equation.primitive.name if equation else ""
        if equation and name in ("add", "sub", "add_any"):
            yield from self._split(sign, equation.invars[0])
            yield from self._split(-sign if name == "sub" else sign, equation.invars[1])
        elif equation and name == "neg":
            yield from self._split(-sign, equation.invars[0])
        elif is_variable(v):
            yield sign, v

    def _linear(self) -> set[Any]:
        linear = {self.y}
        for e in self.jaxpr.eqns:
            moving = [
                place for place, v in enumerate(e.invars) if is_variable(v) and v in self.by_y
            ]
            if len(moving) != 1 or e.invars[moving[0]] not in linear:
                continue
            name = e.primitive.name
            if name in _BILINEAR or (name in _LINEAR and moving == [0]):
                linear |= set(e.outvars)
        return linear
