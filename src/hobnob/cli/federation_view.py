"""`hobnob federation check`: what a federation file says, and what a member would send.

Nothing of a problem's own code runs here: what is sent depends on the lengths of x and y, which the
file tells, so a step is traced on a stand-in.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hobnob.analysis.choose import across_owners
from hobnob.cli import config
from hobnob.cli.calls import Settings
from hobnob.cli.federation_file import short_id
from hobnob.core.algorithm import Algorithm, Scale
from hobnob.core.ledger import Costs
from hobnob.core.problem import Problem
from hobnob.core.setup import Setup
from hobnob.ground.errors import ConfigError
from hobnob.run.run import Run
from hobnob.run.summary import bytes_text
from hobnob.runtimes.peers.certificates import expires, fingerprint
from hobnob.runtimes.peers.federation import Federation
from hobnob.runtimes.peers.frames import OVERHEAD
from hobnob.runtimes.simulate import Simulate

LOOKED_AT = 1000  # steps: where a step's messages vary, these are averaged
SOON = 30  # days
REPORTED = 3  # two losses and a squared distance, beside x
DETAILS = "docs/explanation/what-is-sent.md"


class Sending(NamedTuple):
    """What an agent sends to one neighbour.

    parts    of a message -> bytes, over one step
    rounds   a step
    bytes    a step
    """

    parts: dict[str, float]
    rounds: float
    bytes: float


def show(federation: Federation, where: str) -> None:
    console = Console(highlight=False)
    settings = federation.settings
    stand_in = stand_in_for(settings, federation.network.size)
    algorithm = config.algorithm_of(settings, "algorithm", stand_in)
    for part in (
        _head(federation, where),
        _members(federation),
        _fingerprints(federation),
        _dials(federation),
        _run(settings, federation, algorithm),
        _sent(federation, sending(federation, algorithm)),
        _leaves(settings, algorithm),
    ):
        for line in part:
            console.print(line)
        console.print()


def sending(federation: Federation, algorithm: Algorithm | None) -> Sending:
    """Counted from a step of the algorithm, as the ledger of a run does."""
    settings, network = federation.settings, federation.network
    problem = stand_in_for(settings, network.size)
    steps = settings.get("steps", 1000)
    chosen = algorithm or across_owners(Scale(1.0, 0.1))
    if chosen.compositional:
        raise ConfigError(f"{type(chosen).__name__} cannot be run across owners yet.")
    with problem.precision():
        bound = chosen.bind(network.size, steps)
        costs: Costs = Run.start(Simulate(), Setup(problem, network, bound)).costs
    looked = min(steps, LOOKED_AT)
    traffic, rounds = costs.traffic_until(looked), costs.until(looked)["rounds"].mean()
    links = float(network.degrees.mean())  # parts are an agent's, to all its neighbours
    parts = {name: float(size) / looked / links for name, size in traffic.parts.items()}
    return Sending(parts, float(rounds) / looked, sum(parts.values()))


def stand_in_for(settings: Settings, agents: int) -> Problem:
    """A problem with x and y of the same length and precision."""
    shapes = settings.get("problem", {}).get("shapes")
    if not isinstance(shapes, dict) or not {"x", "y", "dtype"} <= set(shapes):
        raise ConfigError(
            "[problem.shapes] is missing. Make the file with `hobnob federation new`."
        )

    def outer(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(batch) * (jnp.sum(x) + jnp.sum(y**2))

    def inner(x: Any, y: Any, batch: Any) -> Any:
        return jnp.mean(batch) * jnp.sum(y**2) + jnp.sum(x) * jnp.sum(y)

    dtype = np.dtype(shapes["dtype"])
    records = [np.ones(1, dtype)] * agents
    start = np.zeros(int(shapes["x"]), dtype), np.zeros(int(shapes["y"]), dtype)
    personal = bool(shapes.get("personal", False))
    return Problem(outer, inner, *start, records, records, 1, personal=personal)


def _head(federation: Federation, where: str) -> Iterator[Any]:
    network = federation.network
    yield Text(f"{where}: federation {short_id(federation)}", style="bold")
    yield (
        f"{len(federation.members)} members with {network.size} agents on a network of "
        f"{len(network.ends)} links, rho = {network.rho:.3g}. Members must hold the same file."
    )


def _members(federation: Federation) -> Iterator[Any]:
    table = _table("member", "agents", "endpoint", "neighbours", "certificate until")
    for number, member in enumerate(federation.members):
        agents = federation.parts[number]
        until = expires(member.certificate)
        left = until - datetime.now(UTC)
        style = "red" if left.days < 0 else "yellow" if left.days < SOON else ""
        words = f"{until:%Y-%m-%d}" + (", expired" if left.days < 0 else "")
        table.add_row(
            member.name,
            str(agents[0]) if len(agents) == 1 else f"{agents[0]}-{agents[-1]}",
            member.endpoint,
            ", ".join(federation.members[n].name for n in federation.neighbours(number)),
            Text(words, style=style),
        )
    yield table


def _fingerprints(federation: Federation) -> Iterator[Any]:
    yield "Fingerprints (SHA-256). Compare each with its owner, by telephone:"
    for member in federation.members:
        digits = fingerprint(member.certificate)
        fours = [digits[i : i + 4] for i in range(0, len(digits), 4)]
        yield Text(f"  {member.name}", style="bold")
        for half in (fours[:8], fours[8:]):
            yield f"    {' '.join(half)}"


def _dials(federation: Federation) -> Iterator[Any]:
    yield "Who dials whom. A firewall must let these in; nothing else is needed:"
    for number, member in enumerate(federation.members):
        callers = [federation.members[n].name for n in federation.neighbours(number) if n > number]
        if callers:
            yield f"  {member.endpoint} ({member.name}) from {', '.join(callers)}"


def _run(settings: Settings, federation: Federation, algorithm: Algorithm | None) -> Iterator[Any]:
    problem, shapes = settings["problem"], settings["problem"]["shapes"]
    options = ", ".join(
        f"{key} = {value}"
        for key, value in problem.items()
        if key not in ("name", "columns", "losses", "shapes", "made_with")
    )
    rules = federation.rules
    lines = {
        "problem": problem["name"] + (f" ({options})" if options else ""),
        "x, y": f"{shapes['x']:,} and {shapes['y']:,} numbers, {shapes['dtype']}",
        "a batch": f"f: {shapes['outer']}; g: {shapes['inner']}",
        **({"columns": ", ".join(problem["columns"])} if "columns" in problem else {}),
        "losses": str(problem["losses"]),
        "algorithm": _described(algorithm),
        "steps": f"{settings.get('steps', 1000):,}, seed {settings.get('seed', 0)}, a record "
        f"every {settings.get('record_every', 1)}",
        "rules": f"duals {rules.duals}, deadline {rules.deadline:g} s, grace {rules.grace:g} s, "
        f"arrival {rules.arrival:g} s"
        + (f", stop after {rules.seconds:g} s" if rules.seconds else ""),
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, words in lines.items():
        table.add_row(name, words)
    yield table
    if "columns" in problem and ".py:" in problem["name"]:
        yield (
            f"{problem['name'].rpartition(':')[0]} is code. It does not travel with this file: "
            f"every owner has a copy beside it, and may read it before joining."
        )


def _described(algorithm: Algorithm | None) -> str:
    if algorithm is None:
        name = type(across_owners(Scale(1.0, 0.1))).__name__
        return f"{name}, with step sizes from all members' curvature"
    settings = ", ".join(f"{name} = {value}" for name, value in algorithm.describe().items())
    return f"{type(algorithm).__name__}: {settings}"


def _sent(federation: Federation, sends: Sending) -> Iterator[Any]:
    settings = federation.settings
    steps, every = settings.get("steps", 1000), settings.get("record_every", 1)
    shapes = settings["problem"]["shapes"]
    width = np.dtype(shapes["dtype"]).itemsize
    table = _table("an agent sends to a neighbour", "numbers", "bytes")
    for part, size in sends.parts.items():
        table.add_row(f"  {part}, in a step", f"{size / width:,.4g}", bytes_text(size))
    frames = sends.rounds * OVERHEAD
    report = 8 * (shapes["x"] + REPORTED)
    table.add_row(f"all of a step, in {sends.rounds:.3g} rounds", "", bytes_text(sends.bytes))
    table.add_row(f"  and {OVERHEAD} for each frame", "", bytes_text(frames))
    table.add_row("a record: x and three numbers", f"{report // 8:,}", bytes_text(report))
    total = steps * (sends.bytes + frames) + (steps // every + 1) * (report + OVERHEAD)
    table.add_row(f"the whole run, {steps:,} steps", "", bytes_text(total))
    yield table
    yield "Both ends of a link send as much. Frames of one step travel together between members."


def _leaves(settings: Settings, algorithm: Algorithm | None) -> Iterator[Any]:
    yield Text("What leaves a member", style="bold")
    yield "  to its neighbours: the messages above, in every step; at every record its agents' x,"
    yield "    the estimated means of two losses and of a distance; what flowed over a link, when"
    yield "    it comes up again"
    yield "  to all members, passed on by neighbours: that it is here, and at which step it is"
    if algorithm is None:
        yield "    and, at the start, two numbers: how curved its inner loss is"
    yield "  to nobody: its records, its key, its file names, its other files"
    yield (
        f"Messages are computed from records and can give them away: this is not a privacy "
        f"technology. Read {DETAILS}."
    )


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for i, name in enumerate(columns):
        right = name in ("numbers", "bytes")
        table.add_column(
            name, justify="right" if right else "left", overflow="fold", no_wrap=i == 0
        )
    return table
