"""Watched: an agent that notices who uses its services. Unheard: an exchange that sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from hobnob.core.agent import Agent
from hobnob.core.network import Network

F = TypeVar("F", bound=Callable[..., Any])
Tree = TypeVar("Tree")


class Unmet(Exception):
    """What a check found, before the check's name and reason are added."""


class Unheard:
    """An exchange that sends nothing, for who only looks at shapes."""

    def __init__(self, network: Network):
        self._network = network

    def links(self, level: str | None) -> int:
        return self._network.at_level(level).most_links

    def hear(self, tree: Tree, path: tuple[Any, ...], level: str | None) -> tuple[jax.Array, Tree]:
        links = self.links(level)
        kind = jax.tree.leaves(tree)[0].dtype
        return jnp.zeros(links, kind), jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (links, *leaf.shape)), tree
        )

    def mix(self, tree: Tree, path: tuple[Any, ...], level: str | None) -> Tree:
        return tree

    def to_server(self, tree: Tree) -> Tree:
        return tree

    def from_server(self, tree: Tree) -> Tree:
        return tree

    def loop(self, count: Any, body: Callable[[Any, Any, Tree], Tree], start: Tree) -> Tree:
        return jax.lax.fori_loop(0, count, lambda i, value: body(copy(self), i, value), start)


@dataclass
class Use:
    """The services that a step used, in order. `watch` is how many of them leave a mark."""

    watch: int | None = None
    names: list[str] = field(default_factory=list)


def _at_home(service: F) -> F:
    """The service, refused where JAX traces something else than the step."""
    name = f"agent.{service.__name__}"

    def watched(self: Watched, *given: Any, **named: Any) -> Any:
        return service(self, *self.used(name, given), **named)

    return watched  # type: ignore[return-value]


class Watched(Agent):
    """An agent that notices if a service of it is used inside a transformation of JAX's own.

    Every service leaves a mark, which the step's result is tied to. JAX refuses a mark that was
    made inside a loop, a cond or a jit and is used outside. A vmap is noticed by what it batches.
    """

    def __init__(self, use: Use, *given: Any):
        super().__init__(*given)
        self._use = use
        self._marks: list[jax.Array] = []
        self._own_vmap = False

    def used(self, name: str, given: Any) -> Any:
        if self._use.watch is None or len(self._use.names) < self._use.watch:
            self._marks.append(jnp.int32(0) + 1)
        self._use.names.append(name)
        return given if self._own_vmap else jax.tree.map(lambda leaf: _alone(name, leaf), given)

    def held(self, result: Tree) -> Tree:
        """The same, as far as numbers go, but computed from all marks."""
        (first, *rest), structure = jax.tree.flatten(result)
        for mark in self._marks:
            first = jnp.where(mark > 0, first, first)
        return jax.tree.unflatten(structure, [first, *rest])

    draw_outer = _at_home(Agent.draw_outer)
    draw_inner = _at_home(Agent.draw_inner)
    draw_below = _at_home(Agent.draw_below)
    draw_signs = _at_home(Agent.draw_signs)
    outer_gradients = _at_home(Agent.outer_gradients)
    inner_gradient = _at_home(Agent.inner_gradient)
    inner_gradients = _at_home(Agent.inner_gradients)
    hessian_product = _at_home(Agent.hessian_product)
    cross_product = _at_home(Agent.cross_product)
    cross = _at_home(Agent.cross)
    hessian = _at_home(Agent.hessian)
    hessians = _at_home(Agent.hessians)
    mix = _at_home(Agent.mix)
    flow = _at_home(Agent.flow)
    to_server = _at_home(Agent.to_server)
    from_server = _at_home(Agent.from_server)

    def inner_products(self, x: jax.Array, y: jax.Array, batch: Any) -> Any:
        name = "agent.inner_products"
        gradient, products = super().inner_products(*self.used(name, (x, y, batch)))
        return gradient, lambda z: products(*self.used(f"a product of {name}", (z,)))

    def mapping(self, x: jax.Array, batch: Any) -> Any:
        name = "agent.mapping"
        value, transposed = super().mapping(*self.used(name, (x, batch)))
        return value, lambda z: transposed(*self.used(f"a product of {name}", (z,)))

    def each_outer(self, derive: Callable[[Any], jax.Array], batch: Any) -> Any:
        return super().each_outer(self._of_one_record(derive), batch)

    def each_inner(self, derive: Callable[[Any], jax.Array], batch: Any) -> Any:
        return super().each_inner(self._of_one_record(derive), batch)

    def repeat(self, times: Any, body: Callable[[Any, Any, Tree], Tree], start: Tree) -> Tree:
        def inside(agent: Any, i: Any, value: Tree) -> Tree:
            agent._marks = []
            return agent.held(body(agent, i, value))

        return super().repeat(times, inside, start)

    def _of_one_record(self, derive: Callable[[Any], jax.Array]) -> Callable[[Any], jax.Array]:
        """The agent's own vmap over the records of a batch is no fault of the algorithm."""

        def inside(single: Any) -> jax.Array:
            self._own_vmap = True
            try:
                return derive(single)
            finally:
                self._own_vmap = False

        return inside


def _alone(name: str, leaf: Any) -> Any:
    """The same array. Under a vmap that batches it, it is refused."""
    if not isinstance(leaf, jax.Array):
        return leaf
    same = custom_vmap(lambda array: array)

    @same.def_vmap
    def refuse(size: int, batched: Any, array: Any) -> Any:
        raise Unmet(f"{name} is used inside a vmap of JAX's own, for {size} at once")

    return same(leaf)
