"""An agent's number means nothing: relabelled and identical agents."""

from __future__ import annotations

from copy import copy

import numpy as np

from hobnob.core.data import Records
from hobnob.core.network import Network
from hobnob.testing.check import check, expect, many_agents
from hobnob.testing.flows import by_link
from hobnob.testing.trial import Trial
from hobnob.testing.worlds import shards

_ORDER = np.array([3, 0, 5, 1, 4, 2])


@check(
    why="every owner runs the same code, so what an agent does may depend on its data, its key "
    "and its neighbours, and not on its number.",
    applies=many_agents,
)
def relabelling(trial: Trial) -> None:
    """Agents with other numbers, with their data, keys and links, find the same."""
    program = trial.sampled
    problem, network = program.problem, program.network
    relabelled = copy(problem)
    for name in ("outer_data", "inner_data"):
        source = getattr(problem, name)
        own = shards(source)
        setattr(relabelled, name, Records([own[k] for k in _ORDER], source.batch_size))
    W = network.matrix[np.ix_(_ORDER, _ORDER)]
    run = program.elsewhere(relabelled, Network(W), keys=program.run.world.keys[_ORDER])
    before, after = program.end(30), program.end(30, run)
    for name in trial.cls.flows:  # their rows are in the order of the neighbours' numbers
        before[name] = by_link(network, before[name])[:, _ORDER]
        after[name] = by_link(run.network, after[name])
    for variable, value in before.items():
        off = np.abs(np.subtract(after[variable], value[_ORDER], dtype=float))
        worst = int(off.reshape(len(_ORDER), -1).max(axis=1).argmax())
        expect(
            off.max() <= 1e-10,
            f"after 30 steps {variable} of agent {_ORDER[worst]} differs by {off.max():.1e} if it "
            f"is called agent {worst}",
        )


@check(
    why="agents that hold the same and draw the same must agree, or the method adds differences "
    "of its own.",
    applies=many_agents,
)
def identical_agents(trial: Trial) -> None:
    """Agents with the same data and the same key stay equal."""
    program = trial.sampled
    world, size = program.run.world, program.network.size
    first = np.zeros(size, int)
    places = tuple(
        place._replace(start=place.start[first], length=place.length[first])
        for place in world.places
    )
    run = program.elsewhere(places=places, keys=world.keys[first])
    for variable, value in program.end(50, run).items():
        spread = np.abs(np.subtract(value, value[0], dtype=float)).max(initial=0)
        expect(
            spread <= 1e-12 * max(1, np.abs(value).max(initial=0)),
            f"after 50 steps {variable} of identical agents differs by {spread:.1e}",
        )
