"""What a plain NumPy transcription of an algorithm needs: data, derivatives, samples, W.

The problems are those of `hobnob.testing.worlds`, with derivatives written out by hand. Samples are
the library's own draws, so that a transcription and the library see the same records.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

import hobnob as hb
from hobnob.core.data import Place
from hobnob.ground import keys
from hobnob.testing import worlds
from hobnob.testing.worlds import SEED

logistic_problem, compositional_problem = worlds.logistic, worlds.compositional


class World:
    """What a run of the library draws, for NumPy. Rows are numbered over all shards.

    Inside loops a draw also has the loops' indices, `at`, of so many each, `of`.
    """

    def __init__(self, problem: hb.Problem, network: hb.Network, steps: int):
        self.problem, self.network, self.steps = problem, network, steps
        self.W = network.matrix
        self.K = network.size
        self.x0, self.y0 = problem.x0, problem.y0

    def outer_rows(
        self, k: int, t: int, slot: str, count: int | None = None, at: Any = (), of: Any = ()
    ) -> np.ndarray:
        return _draws(self.problem, "outer_data", self.steps, slot, count, of)[(k, t, *at)]

    def inner_rows(
        self, k: int, t: int, slot: str, count: int | None = None, at: Any = (), of: Any = ()
    ) -> np.ndarray:
        return _draws(self.problem, "inner_data", self.steps, slot, count, of)[(k, t, *at)]

    def below(self, k: int, t: int, slot: str, bound: int) -> int:
        key = keys.of_slot(keys.of_agent(SEED, k), t, slot)
        return int(jax.random.randint(key, (), 0, bound, jnp.int32))

    def signs(self, k: int, t: int, slot: str, count: int) -> np.ndarray:
        key = keys.of_slot(keys.of_agent(SEED, k), t, slot)
        return 2.0 * np.asarray(jax.random.randint(key, (count,), 0, 2, jnp.int32)) - 1

    def heard(self, k: int, stack: np.ndarray) -> np.ndarray:
        """sum_j w_kj stack_j, in plain loops."""
        total = np.zeros_like(stack[k])
        for j in range(self.K):
            total += self.W[k, j] * stack[j]
        return total


class Logistic(World):
    """The derivatives of `logistic_problem`, written out."""

    def grad_x_f(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return 0.1 * x

    def grad_y_f(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self._fit_gradient("outer_data", y, rows)

    def grad_y_g(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self._fit_gradient("inner_data", y, rows) + np.exp(x) * y

    def grad_x_g(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.exp(x) * y**2 / 2

    def J(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.diag(np.exp(x) * y)

    def H(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        a, t = self._records("inner_data", rows)
        p = 1 / (1 + np.exp(-t * (a @ y)))
        return (a.T * (p * (1 - p))) @ a / len(t) + np.diag(np.exp(x))

    def _fit_gradient(self, level: str, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        a, t = self._records(level, rows)
        return -(a.T @ (t / (1 + np.exp(t * (a @ y))))) / len(t)

    def _records(self, level: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        arrays = getattr(self.problem, level).arrays
        return arrays["a"][rows], arrays["t"][rows]


class Nested(World):
    """The values and derivatives of `compositional_problem`, written out."""

    def grad_x_f(self, x: np.ndarray) -> np.ndarray:
        return 0.1 * x

    def grad_y_f(self, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return y - self.problem.outer_data.arrays[rows].mean(axis=0)

    def h(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        arrays = self.problem.inner_data.arrays
        return (np.tanh(arrays["A"][rows] @ x) + arrays["b"][rows]).mean(axis=0)

    def grad_h(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The transposed Jacobian, (d_x, d_y)."""
        A = self.problem.inner_data.arrays["A"][rows]
        slope = 1 - np.tanh(A @ x) ** 2
        return np.einsum("nij,ni->ji", A, slope) / len(rows)


@cache
def _draws(
    problem: hb.Problem, level: str, steps: int, slot: str, count: int | None, of: tuple[int, ...]
) -> np.ndarray:
    """The rows that all agents draw in all steps: [agents, steps, *loops, (count,) batch]."""
    source = getattr(problem, level)
    shape = source.size, steps, *of
    agent, step, *loops = np.indices(shape, np.uint32).reshape(len(shape), -1)
    slots = np.full_like(agent, crc32(slot.encode()))  # as in hobnob.ground.keys
    drawn = _drawer(source.batch_size, count)
    found = []
    with problem.precision():
        for some in np.array_split(np.arange(agent.size), -(-agent.size // AT_ONCE)):
            chosen = np.resize(some, AT_ONCE)  # filled up: one shape, one program
            names = jnp.broadcast_to(jax.random.key(SEED, impl="threefry2x32"), AT_ONCE)
            for part in (agent, step, slots, *loops):
                names = _folded(names, part[chosen])
            whose = agent[chosen]
            rows = drawn(names, source.starts[whose], source.lengths[whose])
            found.append(np.asarray(rows)[: some.size])
    rows = np.concatenate(found)
    return rows.reshape(*shape, *rows.shape[1:])


# All in small programs that serve every shape: compiled as one, they take ten times as long.
AT_ONCE = 2048
_folded = jax.jit(jax.vmap(jax.random.fold_in))


@cache
def _drawer(batch_size: int | None, count: int | None) -> Any:
    source = hb.Records([np.zeros((1, 1))], batch_size)

    def draw(key: Any, start: Any, length: Any) -> Any:
        return source.draw(key, Place((), start, length), count)

    return jax.jit(jax.vmap(draw))
