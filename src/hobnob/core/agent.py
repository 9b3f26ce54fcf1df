"""Agent: everything that one agent may do in a step.

It draws from its own data, differentiates its own losses, and talks to its neighbours only through
`mix` and `flow`. There is no agent axis in scope, so it cannot reach another agent's data.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import jax
import jax.numpy as jnp

from hobnob.core.ledger import Ledger, Times, link_of
from hobnob.core.schedules import Schedule, value_at
from hobnob.ground import keys
from hobnob.ground.barrier import materialised
from hobnob.ground.errors import SettingError
from hobnob.ground.threefry import fold_in, integers

if TYPE_CHECKING:
    from hobnob.core.data import Place
    from hobnob.core.problem import Problem

Tree = TypeVar("Tree")


class Exchange(Protocol):
    """How a runtime carries an agent's messages."""

    def mix(self, tree: Any, path: tuple[Any, ...], level: str | None) -> Any:
        """The weighted sum over the neighbours at this level.

        `path` says which of a step's rounds this is.
        """
        ...

    def links(self, level: str | None) -> int:
        """The largest number of neighbours that any agent has at this level."""
        ...

    def hear(self, tree: Any, path: tuple[Any, ...], level: str | None) -> tuple[jax.Array, Any]:
        """What each neighbour says: the weights of the links, [links], and a tree of [links, ...].

        One row a neighbour, in the order of their numbers, and then padding. The weight of padding
        and of a link that is down is 0; the row is then any finite number.
        """
        ...

    def to_server(self, tree: Any) -> Any:
        """The mean over all agents, as held by a server."""
        ...

    def from_server(self, tree: Any) -> Any:
        """What a server sends to all agents."""
        ...

    def loop(self, count: Any, body: Callable[[Any, Any, Any], Any], start: Any) -> Any:
        """Run `body(exchange, i, value)` for i = 0 .. count - 1; messages inside use `exchange`."""
        ...


class Agent:
    """One agent in one step. A runtime makes it; an algorithm uses it.

    x and y are flat vectors here. A slot names a batch by its letter in the paper: the same slot of
    the same step always draws the same batch, so two batches of one step need two names.

    Example:
        >>> def step(self, agent, state):  # of an algorithm
        ...     xi = agent.draw_inner("xi")  # a batch of the agent's own data
        ...     gradient, products = agent.inner_products(state.x, state.y, xi)
        ...     return agent.mix(state)  # the weighted sum over the neighbours and itself
    """

    def __init__(
        self,
        problem: Problem,
        places: tuple[Place, Place],
        key: jax.Array,
        step: Any,
        exchange: Exchange,
        ledger: Ledger,
    ):
        self._problem = problem
        self._outer_place, self._inner_place = places
        self._key = key
        self._exchange = exchange
        self._ledger = ledger
        self._loops: tuple[Any, ...] = ()
        self._site = 0
        self._slots: set[tuple[int, str]] = set()
        self.step = step

    # --- what it knows -------------------------------------------------------------------------

    @property
    def x0(self) -> jax.Array:
        return jnp.asarray(self._problem.x_layout.ravel(self._problem.x0))

    @property
    def y0(self) -> jax.Array:
        return jnp.asarray(self._problem.y_layout.ravel(self._problem.y0))

    @property
    def dim_x(self) -> int:
        return self._problem.dim_x

    @property
    def dim_y(self) -> int:
        return self._problem.dim_y

    @property
    def outer_records(self) -> int:
        """The number of rows that a table for `each_outer` needs."""
        return self._problem.outer_data.records

    @property
    def inner_records(self) -> int:
        """The number of rows that a table for `each_inner` needs."""
        return self._problem.inner_data.records

    def links(self, level: str | None = None) -> int:
        """The number of rows that a memory for `flow` needs: of the agent with most neighbours."""
        return self._exchange.links(level)

    def zeros(self, *shape: int) -> jax.Array:
        return jnp.zeros(shape, self._problem.dtype)

    def rates(self, *schedules: Schedule, at: Any = None) -> tuple[jax.Array, ...]:
        """The step sizes at this step, or at another count `at`, such as a loop's."""
        when = self.step if at is None else at
        return tuple(jnp.asarray(value_at(s, when), self._problem.dtype) for s in schedules)

    # --- what it draws -------------------------------------------------------------------------

    def draw_outer(self, slot: str, count: int | None = None) -> Any:
        """A batch for f; with `count`, that many independent batches."""
        self._ledger.add("samples", 1 if count is None else count, per="outer draw")
        return self._problem.outer_data.draw(self._slot_key(slot), self._outer_place, count)

    def draw_inner(self, slot: str, count: int | None = None) -> Any:
        """A batch for g; with `count`, that many independent batches."""
        self._ledger.add("samples", 1 if count is None else count, per="inner draw")
        return self._problem.inner_data.draw(self._slot_key(slot), self._inner_place, count)

    def draw_below(self, slot: str, bound: int) -> jax.Array:
        """A uniformly random whole number from 0 to `bound` - 1."""
        return integers(self._slot_key(slot), (), bound)

    def draw_signs(self, slot: str, count: int) -> jax.Array:
        """`count` random numbers, each -1 or 1."""
        return 2 * integers(self._slot_key(slot), (count,), 2).astype(self._problem.dtype) - 1

    # --- what it differentiates ----------------------------------------------------------------

    def outer_gradients(
        self, x: jax.Array, y: jax.Array, batch: Any
    ) -> tuple[jax.Array, jax.Array]:
        """grad_x f and grad_y f."""
        self._ledger.add("gradients", 1)
        return jax.grad(self._outer, argnums=(0, 1))(x, y, batch)

    def inner_gradient(self, x: jax.Array, y: jax.Array, batch: Any) -> jax.Array:
        """grad_y g."""
        self._ledger.add("gradients", 1)
        return jax.grad(self._inner, argnums=1)(x, y, batch)

    def inner_gradients(
        self, x: jax.Array, y: jax.Array, batch: Any
    ) -> tuple[jax.Array, jax.Array]:
        """grad_x g and grad_y g."""
        self._ledger.add("gradients", 1)
        return jax.grad(self._inner, argnums=(0, 1))(x, y, batch)

    def inner_products(
        self, x: jax.Array, y: jax.Array, batch: Any
    ) -> tuple[jax.Array, Callable[[jax.Array], tuple[jax.Array, jax.Array]]]:
        """grad_y g, and the function z -> (J z, H z), all from one linearisation.

        g's second derivatives are symmetric, so pulling z back through grad_y g gives both.
        """
        self._ledger.add("gradients", 1)
        gradient, pull = jax.vjp(lambda x, y: jax.grad(self._inner, argnums=1)(x, y, batch), x, y)

        def products(z: jax.Array) -> tuple[jax.Array, jax.Array]:
            self._ledger.add("products", 2)
            return pull(z)

        return gradient, products

    def hessian_product(self, x: jax.Array, y: jax.Array, batch: Any, z: jax.Array) -> jax.Array:
        """H z alone."""
        self._ledger.add("products", 1)
        gradient = jax.grad(self._inner, argnums=1)
        return jax.jvp(lambda y: gradient(x, y, batch), (y,), (z,))[1]

    def cross_product(self, x: jax.Array, y: jax.Array, batch: Any, z: jax.Array) -> jax.Array:
        """J z alone."""
        self._ledger.add("products", 1)
        gradient = jax.grad(self._inner, argnums=1)
        return jax.vjp(lambda x: gradient(x, y, batch), x)[1](z)[0]

    def mapping(
        self, x: jax.Array, batch: Any
    ) -> tuple[jax.Array, Callable[[jax.Array], jax.Array]]:
        """h(x; xi) of a compositional problem, and the function z -> grad h(x; xi)' z.

        With g = 1/2 |y - h(x)|^2 they are -grad_y g at y = 0, and -J z.
        """
        zero = self.zeros(self.dim_y)
        self._ledger.add("gradients", 1)
        gradient, pull = jax.vjp(lambda x: jax.grad(self._inner, argnums=1)(x, zero, batch), x)

        def transposed(z: jax.Array) -> jax.Array:
            self._ledger.add("products", 1)
            return -pull(z)[0]

        return -gradient, transposed

    def cross(self, x: jax.Array, y: jax.Array, batch: Any) -> jax.Array:
        """J = grad_xy g, of shape (d_x, d_y)."""
        self._ledger.add("matrices", 1)
        if x.size < y.size:  # jacfwd takes one pass per entry, so use the shorter vector
            return jax.jacfwd(jax.grad(self._inner, argnums=1), argnums=0)(x, y, batch).T
        return jax.jacfwd(jax.grad(self._inner, argnums=0), argnums=1)(x, y, batch)

    def hessian(self, x: jax.Array, y: jax.Array, batch: Any) -> jax.Array:
        """H = grad_yy g, of shape (d_y, d_y)."""
        self._ledger.add("matrices", 1)
        return jax.hessian(self._inner, argnums=1)(x, y, batch)

    def hessians(self, x: jax.Array, y: jax.Array, batches: Any) -> jax.Array:
        """The Hessians of several batches, stacked."""
        count = jax.tree.leaves(batches)[0].shape[0]
        self._ledger.add("matrices", count)
        return jax.vmap(lambda batch: jax.hessian(self._inner, argnums=1)(x, y, batch))(batches)

    def each_outer(
        self, derive: Callable[[Any], jax.Array], batch: Any
    ) -> tuple[jax.Array, jax.Array]:
        """For each record of a batch for f: its number in the agent's shard, and `derive` of it.

        `derive` is given the record as a batch of one. Costs are counted once for the whole batch.
        """
        rows, singles = self._problem.outer_data.singles(self._outer_place, batch)
        return rows, jax.vmap(derive)(singles)

    def each_inner(
        self, derive: Callable[[Any], jax.Array], batch: Any
    ) -> tuple[jax.Array, jax.Array]:
        """`each_outer` for a batch for g."""
        rows, singles = self._problem.inner_data.singles(self._inner_place, batch)
        return rows, jax.vmap(derive)(singles)

    # --- what it repeats -----------------------------------------------------------------------

    def repeat(self, times: Times, body: Callable[[Agent, Any, Tree], Tree], start: Tree) -> Tree:
        """Apply `value = body(agent, i, value)` for i = 0, 1, ..., `times` - 1, from `start`.

        `times` is a number, or a function of the step. All agents repeat equally often, so they
        may exchange messages inside. The body's agent makes fresh draws in every pass.
        """

        def inside(i: Any, ledger: Ledger, exchange: Exchange) -> Agent:
            agent = copy(self)
            agent._ledger, agent._loops = ledger, (*self._loops, i)
            agent._exchange = exchange
            agent._slots = set(self._slots)
            return agent

        # JAX may trace a loop's body any number of times, so its costs are counted separately.
        counted = inside(0, self._ledger, copy(self._exchange))
        with self._ledger.repeated(times):
            jax.eval_shape(lambda value: body(counted, 0, value), start)
        count = times(self.step) if callable(times) else times
        end = self._exchange.loop(
            count, lambda exchange, i, value: body(inside(i, Ledger(), exchange), i, value), start
        )
        self._site, self._slots = counted._site, counted._slots
        return end

    # --- what it sends -------------------------------------------------------------------------

    def mix(self, tree: Tree, level: str | None = None) -> Tree:
        """sum_j w_kj tree_j over the neighbours and the agent itself.

        All arrays of the tree go to each neighbour as one message. An algorithm with `levels` says
        which one this is, since the user may have given it a separate network.
        """
        return self._exchange.mix(tree, self._round(tree, level), level)

    def flow(self, tree: Tree, memory: Tree, level: str | None = None) -> tuple[Tree, Tree]:
        """(W tree, memory + what flowed over each link), where w_kj (tree_k - tree_j) flows to j.

        A memory has one row a neighbour, in the order of their numbers, and is padded to
        `links(level)` rows; it starts at 0. Padding stays 0, and nothing flows over a link that is
        down. The two ends of a link keep equal and opposite rows, so if a link is lost or starts
        anew, no other is concerned. An algorithm names its memories in `flows`. The message is
        that of `mix`.
        """
        # Both ends subtract the same two numbers: what is sent must not be computed once more.
        tree = jax.tree.map(materialised, tree)
        weights, theirs = self._exchange.hear(tree, self._round(tree, level), level)

        def flows(own: jax.Array, their: jax.Array, kept: jax.Array) -> jax.Array:
            if kept.shape != their.shape:
                raise SettingError(
                    f"agent.flow: the memory of an array of shape {list(own.shape)} has the shape "
                    f"{list(kept.shape)} and needs {list(their.shape)}, one row a neighbour. Begin "
                    f"with agent.zeros(agent.links(level), ...)."
                )
            return weights.reshape(-1, *(1 for _ in own.shape)) * (own[None] - their)

        flowed = jax.tree.map(flows, tree, theirs, memory)
        return (
            jax.tree.map(lambda own, all_links: own - all_links.sum(axis=0), tree, flowed),
            jax.tree.map(jnp.add, memory, flowed),
        )

    def to_server(self, tree: Tree) -> Tree:
        """The mean over all agents, each of which sends its tree to a server."""
        self._ledger.add_message(_sizes(tree, "up"), per="step")
        return self._exchange.to_server(tree)

    def from_server(self, tree: Tree) -> Tree:
        """What a server sends to all agents; it keeps everything else."""
        self._ledger.add_message(_sizes(tree, "down"), per="step")
        return self._exchange.from_server(tree)

    def project(self, x: jax.Array) -> jax.Array:
        """The nearest x that the problem allows."""
        return self._problem.project(x)

    def _round(self, tree: Any, level: str | None) -> tuple[Any, ...]:
        """Which of a step's rounds a message to all neighbours is. It is counted."""
        self._site += 1
        self._ledger.add_message(_sizes(tree, level or ""), per=link_of(level), site=self._site)
        return self._site, *self._loops

    def _outer(self, x: jax.Array, y: jax.Array, batch: Any) -> jax.Array:
        return self._problem.outer_loss(x, y, self._outer_place, batch)

    def _inner(self, x: jax.Array, y: jax.Array, batch: Any) -> jax.Array:
        return self._problem.inner_loss(x, y, self._inner_place, batch)

    def _slot_key(self, slot: str) -> jax.Array:
        # A key inside a loop depends on the loop's index, not on the loop: two loops of the same
        # depth that used one name would draw the same batches.
        name = len(self._loops), slot
        if name in self._slots:
            raise SettingError(
                f"The slot {slot!r} is drawn twice in one step, which would give the same batch "
                f"twice. Give each draw a name of its own."
            )
        self._slots.add(name)
        key = keys.of_slot(self._key, self.step, slot)
        for i in self._loops:
            key = fold_in(key, i)
        return key


def _sizes(tree: Any, prefix: str = "") -> dict[str, int]:
    """The bytes of each part of a message, by name."""
    sizes: dict[str, int] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        key = jax.tree_util.keystr(path, simple=True, separator=".")  # not "11" for two paths
        name = " ".join(filter(None, (prefix, key)))
        sizes[name or "array"] = leaf.size * leaf.dtype.itemsize
    return sizes
