"""Every service of the agent is called by the step itself, where it is counted."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from hobnob.core.agent import Agent
from hobnob.core.ledger import Ledger
from hobnob.fast.traces import current_trace
from hobnob.testing.check import Unmet, check
from hobnob.testing.trial import Trial

F = TypeVar("F", bound=Callable[..., Any])
Tree = TypeVar("Tree")


@check(
    why="costs are counted while the step is traced: inside a loop or a vmap of JAX's own, what "
    "happens many times is counted once, and every turn draws the same batch. Use agent.repeat, "
    "or `count` for several batches."
)
def services(trial: Trial) -> None:
    """No draw, derivative or message inside a transformation of JAX's own."""
    program = trial.sampled
    problem, algorithm = program.problem, program.algorithm
    with problem.precision():
        world = program.run.world
        places = jax.tree.map(
            lambda a: a[0],
            [(place.start, place.length) for place in world.places],
        )

        def act(key: jax.Array, number: Any, *state: Any) -> Any:
            mine = tuple(
                place._replace(start=start, length=length)
                for place, (start, length) in zip(world.places, places, strict=True)
            )
            agent = Watched(problem, mine, key, number, Unheard(), Ledger())
            return (algorithm.step if state else algorithm.init)(agent, *state)

        number = jnp.int32(0)
        start = jax.eval_shape(act, world.keys[0], number)
        jax.eval_shape(act, world.keys[0], number, start)


class Unheard:
    """An exchange that sends nothing, for who only looks at shapes."""

    def mix(self, tree: Tree, path: tuple[Any, ...], level: str | None) -> Tree:
        return tree

    def to_server(self, tree: Tree) -> Tree:
        return tree

    def from_server(self, tree: Tree) -> Tree:
        return tree

    def loop(self, count: Any, body: Callable[[Any, Any, Tree], Tree], start: Tree) -> Tree:
        return jax.lax.fori_loop(0, count, lambda i, value: body(copy(self), i, value), start)


def _at_home(service: F) -> F:
    """The service, refused where JAX traces something else than the step."""
    name = service.__name__

    def watched(self: Watched, *given: Any, **named: Any) -> Any:
        self._look(f"agent.{name}")
        return service(self, *given, **named)

    return watched  # type: ignore[return-value]


class Watched(Agent):
    """An agent that notices if a service of it is used inside a transformation of JAX's own."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self._home = current_trace()

    draw_outer = _at_home(Agent.draw_outer)
    draw_inner = _at_home(Agent.draw_inner)
    draw_below = _at_home(Agent.draw_below)
    outer_gradients = _at_home(Agent.outer_gradients)
    inner_gradient = _at_home(Agent.inner_gradient)
    inner_gradients = _at_home(Agent.inner_gradients)
    hessian_product = _at_home(Agent.hessian_product)
    cross_product = _at_home(Agent.cross_product)
    cross = _at_home(Agent.cross)
    hessian = _at_home(Agent.hessian)
    hessians = _at_home(Agent.hessians)
    mix = _at_home(Agent.mix)
    to_server = _at_home(Agent.to_server)
    from_server = _at_home(Agent.from_server)

    def inner_products(self, x: jax.Array, y: jax.Array, batch: Any) -> Any:
        self._look("agent.inner_products")
        gradient, products = super().inner_products(x, y, batch)
        return gradient, self._watched("the products of agent.inner_products", products)

    def mapping(self, x: jax.Array, batch: Any) -> Any:
        self._look("agent.mapping")
        value, transposed = super().mapping(x, batch)
        return value, self._watched("the product of agent.mapping", transposed)

    def each_outer(self, derive: Callable[[Any], jax.Array], batch: Any) -> Any:
        return super().each_outer(self._moved(derive), batch)

    def each_inner(self, derive: Callable[[Any], jax.Array], batch: Any) -> Any:
        return super().each_inner(self._moved(derive), batch)

    def repeat(self, times: Any, body: Callable[[Any, Any, Tree], Tree], start: Tree) -> Tree:
        self._look("agent.repeat")

        def inside(agent: Any, i: Any, value: Tree) -> Tree:
            agent._home = current_trace()
            return body(agent, i, value)

        return super().repeat(times, inside, start)

    def _moved(self, derive: F) -> F:
        """The agent's own vmap over the records of a batch is no fault of the algorithm."""

        def inside(single: Any) -> Any:
            home, self._home = self._home, current_trace()
            try:
                return derive(single)
            finally:
                self._home = home

        return inside  # type: ignore[return-value]

    def _watched(self, name: str, function: F) -> F:
        def watched(z: Any) -> Any:
            self._look(name)
            return function(z)

        return watched  # type: ignore[return-value]

    def _look(self, name: str) -> None:
        if current_trace() != self._home:
            raise Unmet(
                f"{name} is used inside a transformation of JAX's own (a loop, cond, vmap, grad or "
                f"jit), or inside agent.repeat by the agent of outside"
            )
