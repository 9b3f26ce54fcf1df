"""Traffic, link by link: the ledger, an independent count and the run's page say the same."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
import pytest

import hobnob as hb
from hobnob.core.ledger import Costs, Ledger, link_of
from hobnob.core.links import Links
from hobnob.ground import keys
from hobnob.report import run_page
from hobnob.report.style import amount
from hobnob.run.summary import summarise

pytestmark = pytest.mark.slow

SCALE = hb.Scale(smoothness=10.0, strong_convexity=1.0)
AGENTS, DIM_X, DIM_Y, SIZE = 5, 3, 4, 8  # SIZE: bytes of a float64
STEPS = 12

Pairs = dict[tuple[int, int], int]


@cache
def problem(agents: int = AGENTS) -> hb.Problem:
    with jax.enable_x64(True):
        return hb.problems.get("quadratic")(agents, dim_x=DIM_X, dim_y=DIM_Y, records=4)


class State(NamedTuple):
    x: jax.Array
    y: jax.Array


@dataclass(frozen=True, kw_only=True)
class Growing(hb.Algorithm):
    """It mixes y in a loop of step + 1 rounds inside a loop of two, and x once."""

    exact: ClassVar[bool] = False

    def init(self, agent: hb.Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: hb.Agent, state: State) -> State:
        def inner(agent: hb.Agent, i: Any, y: jax.Array) -> jax.Array:
            return agent.mix(y)

        def outer(agent: hb.Agent, i: Any, y: jax.Array) -> jax.Array:
            return agent.repeat(lambda step: step + 1, inner, y)

        y = agent.repeat(2, outer, state.y)
        return State(agent.mix({"x": state.x})["x"], y)


@dataclass(frozen=True, kw_only=True)
class Both(hb.Algorithm):
    """Its agents speak to each other, and to a server."""

    exact: ClassVar[bool] = False

    def init(self, agent: hb.Agent) -> State:
        return State(agent.x0, agent.y0)

    def step(self, agent: hb.Agent, state: State) -> State:
        return State(agent.to_server({"x": state.x})["x"], agent.mix(state.y))


MADSBO = hb.MADSBO(alpha=0.01, beta=0.02, gamma=0.05, theta=0.2, inner_steps=3)
FEDSBO = hb.FedSBO(alpha=0.01, beta=0.1, gamma=0.05, terms=2, smoothness=10.0, strong_convexity=1.0)
# What an agent sends to one neighbour in each exchange of a step: (numbers, loops around it).
EXCHANGES: dict[str, list[tuple[int, tuple[int | Callable[[int], int], ...]]]] = {
    "DSOBA": [(DIM_X + 2 * DIM_Y, ())],
    "MADSBO": [(DIM_Y, (3,)), (2 * DIM_Y, (3,)), (DIM_X, ())],
    "Growing": [(DIM_Y, (2, lambda step: step + 1)), (DIM_X, ())],
    "SPARKLE": [(DIM_Y, ()), (DIM_Y, ()), (DIM_X, ())],  # y, then z, then x
    "Both": [(DIM_Y, ())],
    "FedSBO": [],
    "SOBA": [],
}


def rounds(name: str, steps: int) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """Every round of a run: its step, its path and the bytes that go one way over a link."""
    for step in range(steps):
        for site, (size, loops) in enumerate(EXCHANGES[name], start=1):
            counts = [loop(step) if callable(loop) else loop for loop in loops]
            for path in product(*(range(int(count)) for count in counts)):
                yield step, (site, *path), size * SIZE


def counted(
    name: str, networks: list[hb.Network], seed: int | None = None, links: Any = None
) -> Pairs:
    """What each link carried, counted round by round. `networks`: of each exchange."""
    together: Pairs = {}
    for network in networks:
        together |= dict.fromkeys(map(tuple, network.ends.tolist()), 0)
    failing = Links(links, networks[0], STEPS) if links is not None else None
    for step, path, size in rounds(name, STEPS):
        ends = networks[path[0] - 1].ends
        down = np.zeros(len(ends), bool)
        if failing is not None:
            assert seed is not None
            key = keys.of_round(keys.of_links(seed), np.int32(step), path)
            down = np.asarray(failing.down(key, step))
        for (i, j), is_down in zip(ends.tolist(), down, strict=True):
            together[i, j] += 0 if is_down else 2 * size
    return together


def solved(algorithm: hb.Algorithm, network: hb.Network, **options: Any) -> hb.Result:
    return hb.solve(
        problem(network.size),
        network,
        algorithm,
        **{"steps": STEPS, "record_every": 4, "metrics": None, **options},
    )


def pairs(links: np.ndarray, carried: np.ndarray) -> Pairs:
    return dict(zip(map(tuple, links.tolist()), carried.tolist(), strict=True))


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Write the page of a result and give back its pictures, by name, and its lead."""

    def draw(result: hb.Result) -> tuple[dict[str, Any], str]:
        seen: dict[str, Any] = {}

        def keep(path: Path, *, lead: str, sections: Any, **rest: Any) -> Path:
            seen["lead"] = lead
            for section in sections:
                for item in section.pictures:
                    if not isinstance(item, run_page.Tabs):
                        seen[item.name] = item
            return path

        monkeypatch.setattr(run_page, "write_page", keep)
        run_page.run_page(
            tmp_path / "page.html", summarise(problem(result.network.size), result), {}, ""
        )
        return seen, seen.pop("lead")

    return draw


def table(picture: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(picture.csv)))


def drawn_links(picture: Any) -> Pairs:
    return {
        (int(row["agent"]), int(row["neighbour"])): int(float(row["value"]))
        for row in table(picture)
        if row["quantity"] == "bytes carried" and row["neighbour"] != "server"
    }


def check_page(found: dict[str, Any], result: hb.Result, links: Pairs) -> None:
    """The map's links and the bars are those of the first seed's ledger."""
    assert drawn_links(found["network"]) == links
    if links:
        assert amount(max(links.values())) in found["network"].caption
    sent = np.atleast_2d(result.ledger["bytes"])[0].mean()
    np.testing.assert_allclose(sum(float(row["bytes"]) for row in table(found["bytes"])), sent)
    assert found["bytes"].caption == f"{amount(sent)} an agent."


RING, STAR = hb.ring(AGENTS), hb.star(AGENTS)
DROP = hb.Drop(0.4)
MANY = [hb.Drop(0.3), hb.Silent(2, 3, 9), hb.Cut(0, 1, 5, 10)]


@pytest.mark.parametrize(
    ("algorithm", "network", "links"),
    [
        (hb.DSOBA.suggest(SCALE), RING, None),
        (hb.DSOBA.suggest(SCALE), STAR, None),
        (MADSBO, RING, None),
        (Growing(), STAR, None),
        (hb.SPARKLE.suggest(SCALE), RING, None),
        (hb.DSOBA.suggest(SCALE), RING, DROP),
        (MADSBO, STAR, MANY),
        (Growing(), RING, MANY),
        (hb.SPARKLE.suggest(SCALE), RING, DROP),
    ],
    ids=[
        "gossip-ring",
        "gossip-star",
        "loops",
        "growing-loops",
        "levels-of-one-network",
        "failing-gossip",
        "failing-loops",
        "failing-growing-loops",
        "failing-levels",
    ],
)
@pytest.mark.parametrize("seed", [7, [7, 8, 9]], ids=["one-seed", "several-seeds"])
def test_gossip(
    algorithm: hb.Algorithm, network: hb.Network, links: Any, seed: Any, pictures: Any
) -> None:
    result = solved(algorithm, network, seed=seed, links=links)
    name, traffic = type(algorithm).__name__, result.traffic
    # A message that was sent was carried: all links together are all agents together.
    np.testing.assert_array_equal(traffic.bytes.sum(axis=-1), result.ledger["bytes"].sum(axis=-1))
    every = [network] * len(EXCHANGES[name])
    seeds = seed if isinstance(seed, list) else [seed]
    by_seed = traffic.bytes if traffic.bytes.ndim == 2 else [traffic.bytes] * len(seeds)
    counts = [counted(name, every, one, links) for one in seeds]
    assert [pairs(traffic.links, one) for one in by_seed] == counts
    sent = sum(traffic.parts.values())
    np.testing.assert_allclose(sent, traffic.bytes.sum(axis=-1) / network.size)
    found, lead = pictures(result)
    check_page(found, result, counts[0])
    assert lead.endswith("Every agent talks only to its neighbours.")


def test_levels_with_networks_of_their_own(pictures: Any) -> None:
    network = RING.with_levels(y=hb.complete(AGENTS), z=STAR)
    result = solved(hb.SPARKLE.suggest(SCALE), network)
    by_level = [network.at_level(level) for level in ("y", "z", "x")]
    expected = counted("SPARKLE", by_level)
    assert pairs(result.traffic.links, result.traffic.bytes) == expected
    assert sum(expected.values()) == result.ledger["bytes"].sum()
    check_page(pictures(result)[0], result, expected)
    assert set(result.traffic.parts) == {"x", "y", "z"}


def test_a_server_uses_no_link(pictures: Any) -> None:
    result = solved(FEDSBO, STAR)
    assert not result.traffic.bytes.any()
    numbers = 2 * (DIM_X + DIM_Y) + DIM_Y + DIM_X * DIM_Y + FEDSBO.terms * DIM_Y**2
    np.testing.assert_array_equal(result.ledger["bytes"], STEPS * numbers * SIZE)
    assert sum(result.traffic.parts.values()) == STEPS * numbers * SIZE
    found, lead = pictures(result)
    check_page(found, result, {})
    served = [row for row in table(found["network"]) if row["neighbour"] == "server"]
    assert [float(row["value"]) for row in served] == [STEPS * numbers * SIZE] * AGENTS
    assert "5 agents, a server." in found["network"].caption
    assert lead.endswith("Every agent talks only to a server.")
    parts = {row["part"]: float(row["bytes"]) for row in table(found["bytes"])}
    assert parts["J to the server"] == STEPS * DIM_X * DIM_Y * SIZE


def test_links_and_a_server(pictures: Any) -> None:
    result = solved(Both(), RING)
    expected = counted("Both", [RING])
    assert pairs(result.traffic.links, result.traffic.bytes) == expected
    to_server = STEPS * DIM_X * SIZE * AGENTS
    assert sum(expected.values()) + to_server == result.ledger["bytes"].sum()
    found, lead = pictures(result)
    check_page(found, result, expected)
    assert "Each agent exchanged 288 B with a server." in found["network"].caption
    assert lead.endswith("Every agent talks to its neighbours and to a server.")


def test_one_agent_sends_nothing(pictures: Any) -> None:
    for algorithm in (hb.SOBA.suggest(SCALE), hb.DSOBA.suggest(SCALE)):
        result = solved(algorithm, hb.complete(1))
        assert result.traffic.bytes.shape == (0,)
        assert result.ledger["bytes"].sum() == 0
        found, lead = pictures(result)
        assert found == {}
        assert lead == "One agent, which has all data."


@pytest.mark.parametrize("algorithm", [MADSBO, Growing(), FEDSBO], ids=lambda a: type(a).__name__)
def test_traffic_of_fewer_steps(algorithm: hb.Algorithm) -> None:
    """The same numbers whatever was asked before: forwards, backwards and twice."""
    links = None if algorithm.server else DROP
    costs = solved(algorithm, RING, links=links).costs
    for step in (STEPS, 3, 7, 7, 0):
        whole = solved(algorithm, RING, links=links, steps=max(step, 1), record_every=1)
        if step:
            np.testing.assert_array_equal(costs.traffic_until(step).bytes, whole.traffic.bytes)
        else:
            assert not costs.traffic_until(step).bytes.any()


def test_parts_with_the_same_name_add_up() -> None:
    ledger = Ledger()
    for _ in range(2):
        ledger.add_message({"x": 10}, site=1)
    costs = Costs(ledger, {link_of(None): hb.ring(4)}, {})
    assert costs.traffic_until(3).parts == {"x": 2 * 2 * 3 * 10}
    assert costs.traffic_until(3).bytes.tolist() == [2 * 2 * 3 * 10] * 4
