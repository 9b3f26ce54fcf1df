"""Folding: a function of long vectors, as the same function of vectors cut into strips.

Every axis of the one length becomes two: which strip, and where in it. Functions that treat the
numbers of a vector alike, and sum over them, know nothing of the difference. What would have to
know, such as a product with a matrix, cannot be folded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import GatherScatterMode

from hobnob.jaxprs import called, evaluate, mentions

_FEW_ROWS = 16  # long vectors in a product; of more, one with a matrix is faster

# Each number of their results comes from the numbers at the same place.
_NUMBER_BY_NUMBER = {
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh",
    "cbrt", "ceil", "clamp", "convert_element_type", "copy", "copy_p", "cos", "cosh", "digamma",
    "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max", "min",
    "mul", "ne", "neg", "nextafter", "not", "or", "pow", "rem", "round", "rsqrt", "select_n",
    "sign", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh", "xor",
}  # fmt: skip
_REDUCTIONS = {"reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum"}


class CannotFold(Exception):
    """A function does more with a long vector than folding allows."""


@dataclass(frozen=True)
class Fold:
    """Axes of `length` as (length / strip, strip)."""

    length: int
    strip: int

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(part for size in shape for part in self._parts(size))

    def axes(self, shape: Sequence[int], chosen: Sequence[int]) -> tuple[int, ...]:
        """Where some axes of a shape are once it is folded."""
        counts = [len(self._parts(size)) for size in shape]
        first = [0, *accumulate(counts)]
        return tuple(first[axis] + part for axis in chosen for part in range(counts[axis]))

    def folded(self, array: Any) -> Any:
        if self.length not in jnp.shape(array):
            return array
        return jnp.reshape(array, self.shape(jnp.shape(array)))

    def touches(self, equation: Any) -> bool:
        return any(self.length in v.aval.shape for v in (*equation.invars, *equation.outvars))

    def _parts(self, size: int) -> tuple[int, ...]:
        return (self.length // self.strip, self.strip) if size == self.length else (size,)


def evaluate_folded(
    fold: Fold, closed: Any, given: Sequence[Any], rules: dict[str, Callable[..., Any]]
) -> list[Any]:
    """What a closed jaxpr makes of folded inputs, folded.

    `rules` are those for primitives of the caller's own: of (equation, inputs) to outputs. They
    can stand in calls, but not in loops and choices.
    """

    def inside(closed: Any, given: Sequence[Any]) -> list[Any]:
        return evaluate_folded(fold, closed, given, rules)

    def apply(equation: Any, inputs: list[Any]) -> list[Any] | None:
        name = equation.primitive.name
        if name in rules:
            return rules[name](equation, inputs)
        if called(equation) is None and mentions(equation, rules):
            raise CannotFold(name)
        if not fold.touches(equation):
            return None
        if name in _NUMBER_BY_NUMBER:
            return [_number_by_number(fold, equation, inputs)]
        if (call := called(equation)) is not None:
            return inside(call, inputs)
        if name in _REDUCTIONS:
            return [_reduced(fold, equation, *inputs)]
        if name in _RULES:
            return [_RULES[name](fold, equation, *inputs)]
        raise CannotFold(name)

    consts = [fold.folded(const) for const in closed.consts]
    return evaluate(closed.jaxpr, consts, given, closed.jaxpr.outvars, apply=apply)


def _number_by_number(fold: Fold, equation: Any, inputs: list[Any]) -> Any:
    after = equation.outvars[0].aval.shape

    def fitting(v: Any, array: Any) -> Any:
        """An axis of a single number, which stands for all, becomes two of them."""
        if len(v.aval.shape) != len(after):
            return array
        sizes = zip(v.aval.shape, after, strict=True)
        single = [axis for axis, (size, all_) in enumerate(sizes) if size < all_ == fold.length]
        places = fold.axes(after, single)[::2]
        return jnp.expand_dims(array, places) if single else array

    arrays = map(fitting, equation.invars, inputs)
    return equation.primitive.bind(*arrays, **equation.params)


def _reduced(fold: Fold, equation: Any, array: Any) -> Any:
    axes = fold.axes(equation.invars[0].aval.shape, equation.params["axes"])
    return equation.primitive.bind(array, **{**equation.params, "axes": axes})


def _broadcast(fold: Fold, equation: Any, array: Any, *sizes: Any) -> Any:
    shape = equation.params["shape"]
    places: list[int] = []
    before = equation.invars[0].aval.shape
    for size, axis in zip(before, equation.params["broadcast_dimensions"], strict=True):
        both = fold.axes(shape, [axis])
        places += both if size == shape[axis] else both[:1]  # a single number stands for all
    return jax.lax.broadcast_in_dim(array, fold.shape(shape), places)


def _reshaped(fold: Fold, equation: Any, array: Any, *sizes: Any) -> Any:
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    if [n for n in before if n > 1] != [n for n in after if n > 1]:
        raise CannotFold("reshape")
    return array.reshape(fold.shape(after))


def _transposed(fold: Fold, equation: Any, array: Any) -> Any:
    before = equation.invars[0].aval.shape
    return jnp.transpose(array, fold.axes(before, equation.params["permutation"]))


def _joined(fold: Fold, equation: Any, *arrays: Any) -> Any:
    axis = equation.params["dimension"]
    if any(v.aval.shape[axis] == fold.length for v in (*equation.invars, *equation.outvars)):
        raise CannotFold("concatenate")
    (place,) = fold.axes(equation.outvars[0].aval.shape, [axis])
    return jnp.concatenate(arrays, place)


def _stacked(fold: Fold, equation: Any, *arrays: Any) -> Any:
    (place,) = fold.axes(equation.outvars[0].aval.shape, [equation.params["axis"]])
    return jnp.stack(arrays, place)


def _sliced(fold: Fold, equation: Any, array: Any) -> Any:
    """Some of several whole vectors."""
    before, params = equation.invars[0].aval.shape, equation.params
    strides = params["strides"] or [1] * len(before)
    taken: list[slice] = []
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    for size, (start, limit, stride) in zip(before, bounds, strict=True):
        if size == fold.length and (start, limit, stride) != (0, size, 1):
            raise CannotFold("slice")
        taken += [slice(None)] * 2 if size == fold.length else [slice(start, limit, stride)]
    return array[tuple(taken)]


def _sliced_at(fold: Fold, equation: Any, array: Any, *starts: Any) -> Any:
    before, sizes = equation.invars[0].aval.shape, equation.params["slice_sizes"]
    at: list[Any] = []
    for size, taken, start in zip(before, sizes, starts, strict=True):
        if size == fold.length and taken != size:
            raise CannotFold("dynamic_slice")
        at += [jnp.zeros_like(start)] * 2 if size == fold.length else [start]
    return jax.lax.dynamic_slice(array, at, fold.shape(sizes))


def _gathered(fold: Fold, equation: Any, array: Any, places: Any) -> Any:
    """Whole vectors, by their number."""
    params, kept = equation.params, equation.params["dimension_numbers"]
    before, after = (v.aval.shape for v in (equation.invars[0], equation.outvars[0]))
    long = {axis for axis, size in enumerate(before) if size == fold.length}
    whole = all(params["slice_sizes"][axis] == fold.length for axis in long)
    gone = {*kept.collapsed_slice_dims, *kept.operand_batching_dims}
    # A whole vector begins where it begins, wherever it is said to, unless that is looked at.
    looked_at = params["mode"] == GatherScatterMode.FILL_OR_DROP and long & {*kept.start_index_map}
    if not whole or long & gone or looked_at or fold.length in equation.invars[1].aval.shape:
        raise CannotFold("gather")
    told = [i for i, axis in enumerate(kept.start_index_map) if axis not in long]
    numbers = kept._replace(
        offset_dims=fold.axes(after, kept.offset_dims),
        collapsed_slice_dims=fold.axes(before, kept.collapsed_slice_dims),
        start_index_map=fold.axes(before, [kept.start_index_map[i] for i in told]),
        operand_batching_dims=fold.axes(before, kept.operand_batching_dims),
    )
    changed = {"dimension_numbers": numbers, "slice_sizes": fold.shape(params["slice_sizes"])}
    return equation.primitive.bind(array, places[..., told], **{**params, **changed})


def _product(fold: Fold, equation: Any, left: Any, right: Any) -> Any:
    """Products of a few long vectors, as sums: a call of a library would have to lay them out."""
    shapes = [v.aval.shape for v in equation.invars]
    summed, shared = equation.params["dimension_numbers"]
    free = [
        [axis for axis in range(len(shape)) if axis not in (*gone, *both)]
        for shape, gone, both in zip(shapes, summed, shared, strict=True)
    ]
    counts = [prod(shape[axis] for axis in axes) for shape, axes in zip(shapes, free, strict=True)]
    rows = prod(shapes[0]) * counts[1]
    if rows > _FEW_ROWS * fold.length:
        raise CannotFold("dot_general")
    both, own, gone = (
        [fold.axes(shape, axes) for shape, axes in zip(shapes, kind, strict=True)]
        for kind in (shared, free, summed)
    )
    # (shared, left's own, right's own, summed)
    left = jnp.transpose(left, (*both[0], *own[0], *gone[0]))
    right = jnp.transpose(right, (*both[1], *own[1], *gone[1]))
    start = len(both[0])
    left = jnp.expand_dims(left, [start + len(own[0]) + i for i in range(len(own[1]))])
    right = jnp.expand_dims(right, [start + i for i in range(len(own[0]))])
    ends = range(max(left.ndim, right.ndim) - len(gone[0]), max(left.ndim, right.ndim))
    dtype = equation.outvars[0].aval.dtype
    return jnp.sum(left.astype(dtype) * right.astype(dtype), axis=tuple(ends))


_RULES: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _joined,
    "dot_general": _product,
    "dynamic_slice": _sliced_at,
    "gather": _gathered,
    "reshape": _reshaped,
    "slice": _sliced,
    "squeeze": _reshaped,
    "stack": _stacked,
    "transpose": _transposed,
}
