"""What each faster way gains: the time of a step without it, over the time with it.

    python -m benchmarks.gains

Both run in this process in turn, and the best time of each counts. docs/explanation/speed.md has
the results on the oldest and the newest JAX.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp

import hobnob as hb
from benchmarks import dsbo, matrix_free, policy, scale
from benchmarks.timing import pace
from hobnob.core import data
from hobnob.fast import Faster, dsbo_lanes, dsbo_step
from hobnob.ground import keys, threefry
from hobnob.problems import _alias
from hobnob.run import turns
from hobnob.runtimes.simulate import mixing

TURNS = 3


class Case(NamedTuple):
    """A run, and how many of its steps are timed at once."""

    problem: hb.Problem
    network: hb.Network
    algorithm: hb.Algorithm
    window: int


class Gain(NamedTuple):
    """`without` is what to replace to go without it: (owner, name, value)."""

    what: str
    where: str
    case: Case
    without: list[tuple[Any, str, Any]]


def same(array: jax.Array) -> jax.Array:
    return array


def randint(key: jax.Array, shape: Any, bound: Any) -> jax.Array:
    return jax.random.randint(key, shape, 0, bound, jnp.int32)


def gains() -> Iterator[Gain]:
    five, twenty = (
        Case(dsbo.problem_of(agents), hb.ring(agents), dsbo.DSBO, 500) for agents in (5, 20)
    )
    no_step = [(Faster, "step", lambda self, setup: None)]
    yield Gain("DSBO in lanes", "K = 5", five, no_step)
    yield Gain("DSBO in lanes", "K = 20", twenty, no_step)
    no_factors = [(dsbo_lanes, "factored_hessians", lambda *given: None)]
    yield Gain("factored Hessians", "DSBO, K = 5", five, no_factors)
    yield Gain("factored Hessians", "DSBO, K = 20", twenty, no_factors)
    yield Gain("layouts in memory", "DSBO, K = 20", twenty, [(dsbo_lanes, "laid_out", same)])

    made = hb.problems.get("policy")(
        agents=policy.AGENTS, states=policy.STATES, features=policy.FEATURES
    )
    evaluation = Case(made, hb.ring(policy.AGENTS), policy.DSBO, 1500)
    no_hessian = [(dsbo_step, "one_hessian", lambda problem: None)]
    yield Gain("DSBO with one Hessian", "policy evaluation", evaluation, no_hessian)
    fused = [(threefry, "materialised", same), (_alias, "materialised", same)]
    yield Gain("random numbers materialised", "policy evaluation", evaluation, fused)

    small = Case(five.problem, five.network, matrix_free.DSOBA, 50_000)
    by_jax = [(keys, "fold_in", jax.random.fold_in), (data, "integers", randint)]
    yield Gain("random numbers written out", "D-SOBA, K = 5", small, by_jax)

    long_y, longer_y = (
        Case(scale.long_y(size), hb.ring(8), scale.DSOBA, 8) for size in (10**5, 10**6)
    )
    no_options = [(Faster, "compiler_options", lambda self, dtype, crowded=False: {})]
    yield Gain("options for XLA", "DSBO, K = 5", five, no_options)
    yield Gain("options for XLA", "DSBO, K = 20", twenty, no_options)
    yield Gain("options for XLA", "D-SOBA, d_y = 10^5", long_y, no_options)
    copied = [(turns, "_LARGE_STATE", 2**62)]
    yield Gain("large states overwritten", "D-SOBA, d_y = 10^6", longer_y, copied)
    yield Gain("large states overwritten", "DSBO, K = 20", twenty, copied)

    crowd = Case(scale.regression(10**5), hb.random_regular(10**5, 4), scale.DSOBA, 10)
    circle = crowd._replace(network=hb.exponential(10**5))
    by_table = [(Faster, "mixing", lambda self, W, dtype: None)]
    yield Gain("mixing by distances", "100,000 agents, circle", circle, by_table)
    array_by_array = [(mixing, "_LONGEST_ROW", 0)]
    yield Gain("messages gathered in one trip", "100,000 agents", crowd, array_by_array)


def seconds_a_step(case: Case, changes: list[tuple[Any, str, Any]]) -> float:
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(mock.patch.object(*change))
        return pace(case.problem, case.network, case.algorithm, case.window)


def main() -> None:
    print(f"jax {jax.__version__}")
    for what, where, case, without in gains():
        times = [(seconds_a_step(case, []), seconds_a_step(case, without)) for _ in range(TURNS)]
        fast, plain = map(min, zip(*times, strict=True))
        print(f"{what:30} {where:22} {plain / fast:5.2f}  {1e6 * fast:,.1f} us a step", flush=True)


if __name__ == "__main__":
    main()
