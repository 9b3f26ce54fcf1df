"""What every registered algorithm must do. A new file in `hobnob/algorithms` is tested as it is.

The checks are those that users run on their own algorithms, `hb.testing`. What an algorithm of the
library must bring along besides is a plain NumPy transcription, `tests/reference/NAME.py`. If that
one lists `OPTIONS`, the algorithm is tested with each of them, too.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import hobnob as hb
from hobnob.testing import worlds
from hobnob.testing.trial import Program, trial_of
from tests.reference.world import Logistic, Nested


def reference(name: str) -> Any:
    """The transcription of an algorithm, or None where there is none."""
    module = f"tests.reference.{name.partition(':')[0]}"
    return import_module(module) if find_spec(module) else None


CLASSES: dict[str, type[Any]] = {}  # every algorithm by its name, and with options, `name:option`
CHECKS: dict[str, list[Any]] = {}
for name in hb.algorithms.names():
    cls = CLASSES[name] = hb.algorithms.get(name)
    CHECKS[name] = hb.testing.checks_for(cls)
    for option in getattr(reference(name), "OPTIONS", []):
        with_option = CLASSES[f"{name}:{option.name}"] = option.of(cls)
        CHECKS[f"{name}:{option.name}"] = [
            (label, check)
            for label, check in hb.testing.checks_for(with_option)
            if label not in option.elsewhere
        ]
NAMES = list(CLASSES)


FEW = ("dsbo", "sparkle", "fedsbo")  # what `make check` looks at: one of each kind


def of(name: str, *more: Any, test: str = "") -> Any:
    """One worker gets all tests of an algorithm, which share what is compiled."""
    label = "-".join(filter(None, (name, test)))
    marks = [pytest.mark.xdist_group(name), *([] if name in FEW else [pytest.mark.slow])]
    return pytest.param(name, *more, id=label, marks=marks)


def test_there_are_algorithms_and_each_has_a_reference() -> None:
    assert NAMES, "no algorithm is registered, so nothing is tested"
    for name in NAMES:
        assert reference(name), name


def test_every_check_applies_to_some_algorithm() -> None:
    applied = {check for checks in CHECKS.values() for check, _ in checks}
    assert applied == {check.name for check in hb.testing._CHECKS}


@pytest.mark.parametrize(
    ("name", "check"),
    [of(name, check, test=label) for name in NAMES for label, check in CHECKS[name]],
)
def test_conforms(name: str, check: Any) -> None:
    check(CLASSES[name])


# A ring tells no more than the irregular graph.
WHERE = ("irregular", "star", "alone")


@pytest.mark.parametrize(
    ("name", "where"),
    [
        of(name, where, test=where)
        for name in NAMES
        for where in WHERE
        if where == "alone" or not CLASSES[name].single_agent
    ],
)
def test_equals_its_numpy_reference(name: str, where: str) -> None:
    program, network = place(name, where)
    if network is APART:
        run = program.elsewhere(W=csr_array(network.matrix))
    else:
        run = program.elsewhere(network=network)
    # Some iterations grow with t: fewer of them cost as much.
    with program.problem.precision():
        first, both = (program.run.costs.until(steps)["samples"][0] for steps in (1, 2))
    steps = 60 if both > 2 * first else 200
    world = (Nested if run.algorithm.compositional else Logistic)(program.problem, network, steps)
    expected = reference(name).run(world, run.algorithm)
    found = program.end(steps, run)
    assert set(found) == set(expected)
    for variable, value in expected.items():
        size = min(1, np.abs(value).max())  # a mean of squares may be small throughout
        assert np.abs(found[variable] - value).max() <= 1e-10 * size, variable
        if network is APART and variable in run.algorithm.flows:
            continue  # there is no link to flow over
        moved = np.abs(value - value.flat[0]).max()
        assert moved > 1e-3 * size, f"{variable} does not move, so this compares nothing"


class Apart:
    """Six agents without a link: a `Network` has to be connected."""

    size, matrix = 6, np.eye(6)

    def at_level(self, level: str | None) -> Apart:
        return self


APART = Apart()


def place(name: str, where: str) -> tuple[Program, Any]:
    """What is compiled for an algorithm, and the network to run it on."""
    trial = trial_of(CLASSES[name])
    program = trial.sampled
    if where != "alone" or trial.cls.single_agent:
        return program, hb.star(6) if where == "star" else program.network
    if program.takes_any_network and not trial.cls.server:
        return program, APART
    return alone(name), hb.complete(1)


@cache
def alone(name: str) -> Program:
    cls = CLASSES[name]
    world = worlds.sampled(cls.compositional, alone=True, personal=cls.personal)
    return Program(*world, trial_of(cls).short)
