"""Docstrings of the public names: a summary, all arguments and an example that runs."""

from __future__ import annotations

import doctest
import inspect
import re
from types import ModuleType

import pytest

import hobnob as hb

pytestmark = pytest.mark.slow


def _is_documented_by_example(name: str) -> bool:
    value = getattr(hb, name)
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    return not is_error and not isinstance(value, ModuleType)


NAMES = [name for name in hb.__all__ if _is_documented_by_example(name)]
# A runtime makes an agent, and a run makes a result: users only read these.
NOT_MADE_BY_USERS = {"Agent", "Result", "Comparison", "Algorithm"}


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str) -> None:
    value = getattr(hb, name)
    (found,) = doctest.DocTestFinder(recurse=False).find(value, name, globs={})
    assert found.examples, f"hb.{name} has no example"
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found).failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_have_a_summary_and_an_example_section(name: str) -> None:
    doc = inspect.getdoc(getattr(hb, name)) or ""
    summary = doc.partition("\n\n")[0]
    assert summary.rstrip().endswith((".", ":")), summary
    assert "\nExample:\n" in doc


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_MADE_BY_USERS])
def test_all_arguments_are_described(name: str) -> None:
    value = getattr(hb, name)
    section = (inspect.getdoc(value) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+(?:, \w+)*):", section, re.MULTILINE)
    described = {argument for entry in entries for argument in entry.split(", ")}
    assert described == set(inspect.signature(value).parameters)
