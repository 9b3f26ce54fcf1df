"""hb.testing passes a good algorithm, and every check can fail: each has one that breaks it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hobnob as hb

# All in one worker: the problems are compiled once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hb.testing")]


class State(NamedTuple):
    x: jax.Array
    y: jax.Array
    z: jax.Array


@dataclass(frozen=True, kw_only=True)
class Mine(hb.Algorithm):
    """A good algorithm, as in a user's file: it needs nothing but `hobnob`."""

    exact: ClassVar[bool] = False

    alpha: hb.schedules.Schedule = hb.fields.positive()
    gamma: hb.schedules.Schedule = hb.fields.positive()

    @classmethod
    def suggest(cls, scale: hb.Scale) -> Any:
        L, mu = scale
        return cls(alpha=0.1 * mu / L, gamma=0.2 / L)

    def init(self, agent: hb.Agent) -> Any:
        return State(agent.x0, agent.y0, agent.zeros(agent.dim_y))

    def step(self, agent: hb.Agent, state: Any) -> Any:
        x, y, z = state
        alpha, gamma = agent.rates(self.alpha, self.gamma)
        zeta, xi = agent.draw_outer("zeta"), agent.draw_inner("xi")
        grad_x_f, grad_y_f = agent.outer_gradients(x, y, zeta)
        grad_y_g, products = agent.inner_products(x, y, xi)
        Jz, Hz = products(z)
        W = agent.mix(state)
        return State(
            x=agent.project(W.x - alpha * (grad_x_f - Jz)),
            y=W.y - gamma * grad_y_g,
            z=W.z - gamma * (Hz - grad_y_f),
        )


def test_a_good_algorithm_passes_all_checks() -> None:
    assert hb.testing.check_algorithm(Mine) == [name for name, _ in hb.testing.checks_for(Mine)]
    left_out = {check.name for check in hb.testing._CHECKS} - dict(
        hb.testing.checks_for(Mine)
    ).keys()
    assert left_out == {"flows"}  # it keeps none


def test_the_algorithm_of_the_guide_is_checked_in_a_file_of_its_own(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    found = re.search(r"^```python src/.*\n((?:.*\n)*?)```$", guide, re.MULTILINE)
    assert found
    file = tmp_path / "mine.py"
    file.write_text(found[1])
    theirs = run_path(str(file))["GossipSOBA"]
    assert hb.testing.check_algorithm(theirs, only="services") == ["services"]


# --- algorithms that are broken, one way each --------------------------------------------------


class Grows(Mine):
    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        return after._replace(z=jnp.append(after.z, 0.0))


class Nameless(Mine):
    def init(self, agent: hb.Agent) -> Any:
        return agent.x0, agent.y0


class LoopsOnItsOwn(Mine):
    """Ten inner steps, counted as one, all with the same batch."""

    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)

        def descend(i: Any, y: jax.Array) -> jax.Array:
            return y - 0.01 * agent.inner_gradient(after.x, y, agent.draw_inner("again"))

        return after._replace(y=jax.lax.fori_loop(0, 10, descend, after.y))


class VmapsProducts(Mine):
    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        _, products = agent.inner_products(state.x, state.y, agent.draw_inner("again"))
        many = jax.vmap(products)(jnp.stack([state.z, state.z]))[1]
        return after._replace(z=after.z - 0.01 * many.mean(axis=0))


class LoopsInsideRepeat(LoopsOnItsOwn):
    def step(self, agent: hb.Agent, state: Any) -> Any:
        return agent.repeat(
            2, lambda agent, i, state: LoopsOnItsOwn.step(self, agent, state), state
        )


class Peeks(Mine):
    """It looks at a record of agent 0, whoever it is."""

    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        return after._replace(y=after.y + 0.01 * agent._inner_place.arrays["a"][0])


class PeeksAtTheProblem(Mine):
    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        return after._replace(y=after.y + 0.01 * agent._problem.inner_data.arrays["a"].mean(axis=0))


class SendsMore(Mine):
    """It goes past the agent, and the ledger."""

    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        return after._replace(y=agent._exchange.mix(after.y, (99,), None))


class Shouts(Mine):
    """It hears from everyone, however far."""

    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        return after._replace(y=agent._exchange.to_server(after.y))


class KnowsItsNumber(Mine):
    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        me: Any = getattr(agent._exchange, "me", 0)
        return after._replace(y=after.y + 0.01 * me)


class OwnRandomness(Mine):
    """What it draws once it is traced is another number in the next process."""

    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        return after._replace(y=after.y + 0.01 * np.random.default_rng().normal())


class WeaklyTyped(Mine):
    """A number of no certain type at first: JAX compiles the loop again once it has one."""

    def init(self, agent: hb.Agent) -> Any:
        return super().init(agent)._replace(z=jnp.full(agent.dim_y, 0.0))


class LeavesBounds(Mine):
    def step(self, agent: hb.Agent, state: Any) -> Any:
        moved = super().step(agent, state)
        (alpha,) = agent.rates(self.alpha)
        return moved._replace(x=moved.x + alpha * 0.01)


class DividesByItsDirection(Mine):
    """However strong the pull, x comes less far in 150 steps than the bounds of the first try."""

    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        move = after.x - state.x
        x = state.x + 0.005 * move / (jnp.linalg.norm(move) + 1e-9)
        return after._replace(x=agent.project(x))


class DividesAndLeavesBounds(DividesByItsDirection):
    def step(self, agent: hb.Agent, state: Any) -> Any:
        moved = super().step(agent, state)
        return moved._replace(x=1.001 * moved.x)


class HardlyMoves(Mine):
    def step(self, agent: hb.Agent, state: Any) -> Any:
        moved = super().step(agent, state)
        return moved._replace(x=state.x + 1e-9 * (moved.x - state.x))


class ClaimsToBeExact(Mine):
    exact = True


class ClaimsToBeBiased(Mine):
    biased = True


class IsExactAfterAll(hb.SOBA):
    exact = False


class Diverges(Mine):
    @classmethod
    def suggest(cls, scale: hb.Scale) -> Any:
        return cls(alpha=100.0, gamma=100.0)


class Keeps(Mine):
    """It keeps what flows over its links, as it should."""

    flows = ("kept",)

    def init(self, agent: hb.Agent) -> Any:
        return Kept(*super().init(agent), kept=agent.zeros(agent.links(), agent.dim_y))

    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, State(*state[:3]))
        y, kept = agent.flow(after.y, state.kept)
        return Kept(after.x, y, after.z, kept)


class Kept(NamedTuple):
    x: jax.Array
    y: jax.Array
    z: jax.Array
    kept: jax.Array


class NamesAnother(Keeps):
    flows = ("z",)


class NamesNothingThere(Keeps):
    flows = ("memory",)


class NamesTooFew(Keeps):
    """A second memory that nobody would repair."""

    def init(self, agent: hb.Agent) -> Any:
        x, y, z, kept = super().init(agent)
        return KeptTwice(x, y, z, kept, agent.zeros(agent.links(), agent.dim_y))

    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, Kept(*state[:4]))
        z, again = agent.flow(after.z, state.again)
        return KeptTwice(after.x, after.y, z, after.kept, again)


class KeptTwice(NamedTuple):
    x: jax.Array
    y: jax.Array
    z: jax.Array
    kept: jax.Array
    again: jax.Array


class KeepsItsOwn(Keeps):
    """What it adds to the rows of its links is added at no other end."""

    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        return after._replace(kept=after.kept + 0.01 * (state.kept != 0) * after.x[0])


class FillsPadding(Keeps):
    def step(self, agent: hb.Agent, state: Any) -> Any:
        after = super().step(agent, state)
        return after._replace(kept=after.kept + 0.01)


class KeepsNothing(Keeps):
    def step(self, agent: hb.Agent, state: Any) -> Any:
        return super().step(agent, state)._replace(kept=state.kept)


BROKEN = [
    (Grows, "state", r"must keep the shapes and dtypes"),
    (Nameless, "state", r"`init` returned a tuple, not a NamedTuple"),
    (LoopsOnItsOwn, "services", r"agent.draw_inner is used inside a loop, a cond or a jit"),
    (LoopsInsideRepeat, "services", r"agent.draw_inner is used inside a loop, a cond or a jit"),
    (VmapsProducts, "services", r"a product of agent.inner_products is used inside a vmap"),
    (Peeks, "mailboxes", r"y of agent [1-5] is NaN: it used records that are not its own"),
    (PeeksAtTheProblem, "mailboxes", r"y of agent \d is NaN"),
    (SendsMore, "mailboxes", r"agent 0 sent 20 messages, and 10 were counted"),
    (NamesNothingThere, "flows", r"its `flows` names memory, and its state has x, y, z, kept"),
    (NamesAnother, "flows", r"z of one agent has the shape \[4\]: .* one row for each of 5 links"),
    (NamesTooFew, "flows", r"again is a memory of agent.flow, and `flows` does not name it"),
    (KeepsItsOwn, "flows", r"what two ends of a link keep in kept adds up to \S+: it must cancel"),
    (FillsPadding, "flows", r"rows of kept that belong to no link are up to \S+: padding"),
    (KeepsNothing, "flows", r"nothing flowed into kept"),
    (Shouts, "locality", r"agent 5 had moved, 5 hops away"),
    (KnowsItsNumber, "relabelling", r"of agent \d differs by \S+ if it is called agent \d"),
    (KnowsItsNumber, "identical_agents", r"of identical agents differs by"),
    (OwnRandomness, "resume", r"traced twice, the step gives two different programs"),
    (WeaklyTyped, "one_compilation", r"the loop was compiled 2 times"),
    (LeavesBounds, "bounds", r"after 5 steps an x is \S+, and its bounds are ±5"),
    (DividesAndLeavesBounds, "bounds", r"an x is 0\.\S+, and its bounds are ±0\.\d+"),
    (HardlyMoves, "bounds", r"in 150 steps x comes to \S+, so it hardly moves"),
    (ClaimsToBeExact, "solution", r"it says that it is exact, and after 15000 steps"),
    (ClaimsToBeBiased, "solution", r"it says that it is biased, and"),
    (IsExactAfterAll, "solution", r"it says that it is not exact, and .* let it say exact"),
    (Diverges, "solution", r"it diverges with the suggested settings"),
]


@pytest.mark.parametrize(
    ("cls", "check", "found"), BROKEN, ids=[f"{cls.__name__}-{check}" for cls, check, _ in BROKEN]
)
def test_what_is_broken_is_found(cls: Any, check: str, found: str) -> None:
    with pytest.raises(hb.testing.ConformanceError, match=found) as caught:
        hb.testing.check_algorithm(cls, only=check)
    assert caught.value.check == check
    said, why = str(caught.value).split("\n")
    assert said.startswith(f"{cls.__name__} fails the check {check!r}: ")
    assert why.startswith("Why it matters: ")
    assert isinstance(caught.value, AssertionError)


def test_bounds_come_to_a_method_that_cannot_be_pulled() -> None:
    assert hb.testing.check_algorithm(DividesByItsDirection, only="bounds") == ["bounds"]


def test_memories_of_links_are_held_to_all_that_applies() -> None:
    checks = ["state", "services", "mailboxes", "flows", "locality", "relabelling", "resume"]
    assert hb.testing.check_algorithm(Keeps, only=checks) == checks


def test_every_check_can_fail() -> None:
    assert {check for _, check, _ in BROKEN} == {check.name for check in hb.testing._CHECKS}


def test_only_takes_one_name_or_several() -> None:
    assert hb.testing.check_algorithm(Mine, only=["services", "state"]) == ["services", "state"]
    with pytest.raises(hb.SettingError, match=r"no check 'locality' for SOBA. There are: state, "):
        hb.testing.check_algorithm(hb.SOBA, only="locality")


def test_an_instance_is_refused() -> None:
    made: Any = Mine.suggest(hb.Scale(4.0, 1.0))
    with pytest.raises(hb.SettingError, match="is not a class of algorithms"):
        hb.testing.check_algorithm(made)


def test_pytest_is_not_needed() -> None:
    folder = Path(hb.testing.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "pytest" not in ast.unparse(node), path
