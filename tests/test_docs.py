"""What the documentation says is run, parsed and looked up.

In README.md and docs/ every ```python block runs, in order, in one namespace a page and in an empty
folder. A ```text block right after it is what it prints. A fence with a second word, such as
```python src/hobnob/algorithms/new.py, is a file: in CONTRIBUTING.md those make a new algorithm,
which then has to pass the conformance suite.
"""

from __future__ import annotations

import doctest
import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hobnob as hb
from hobnob.cli import config
from hobnob.cli import main as cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GUIDES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("examples/*.md"))]
PAGES = [*GUIDES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PYTHON_GUIDES = [page for page in GUIDES if "```python\n" in page.read_text()]


class Block(NamedTuple):
    language: str
    file: str
    text: str
    after: str  # what stands between this block and the one before it


def blocks(page: Path) -> list[Block]:
    found, end, text = [], 0, page.read_text()
    for fence in re.finditer(r"^```(\w*) ?(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
        language, file, content = fence.groups()
        found.append(Block(language, file, content, text[end : fence.start()]))
        end = fence.end()
    return found


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("page", PYTHON_GUIDES, ids=name)
def test_python_runs_and_prints_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed, shown = None, 0
    for block in blocks(page):
        if block.language == "python" and not block.file:
            out = io.StringIO()
            with redirect_stdout(out):
                exec(compile(block.text, name(page), "exec"), namespace)
            printed = out.getvalue()
        elif block.language == "text" and not block.after.strip() and printed is not None:
            assert lines(printed) == lines(block.text)
            shown += 1
            printed = None
    assert shown, "nothing that is printed is shown, so nothing was compared"


def test_commands_are_accepted() -> None:
    parser, seen = cli._parser(), set()
    for page in PAGES:
        text = page.read_text()
        inline = re.findall(r"`(hobnob [^`\n]*)`", text)
        shown = [
            line.removeprefix("$ ").partition("  #")[0]
            for block in blocks(page)
            if block.language in ("sh", "console")
            for line in block.text.splitlines()
            if line.removeprefix("$ ").startswith("hobnob ")
        ]
        for command in (*inline, *shown):
            words = shlex.split(command)[1:]
            try:
                parser.parse_args(words)
            except SystemExit:
                pytest.fail(f"{name(page)}: {command} is refused")
            seen.add(words[0])
    assert seen >= {"demo", "run", "resume", "list", "show"}


def test_configurations_can_be_built(tmp_path: Path) -> None:
    built = 0
    for page in GUIDES:
        for block in blocks(page):
            if block.language == "toml":
                (tmp_path / "run.toml").write_text(block.text)
                job = config.build(config.read(tmp_path / "run.toml"))
                if job.algorithm is not None:
                    job.algorithm.bind(job.network.size, job.options["steps"])
                built += 1
    assert built


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        assert not path.startswith("http"), f"{target}: what is not in here cannot be checked"
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
            assert heading in anchors, target


def test_every_guide_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    for page in GUIDES[1:]:
        there = page.relative_to(DOCS)
        assert page.name == "README.md" or f"]({there})" in index, there


@pytest.mark.parametrize("kind", ["algorithms", "problems", "networks", "metrics"])
def test_all_that_is_registered_is_documented(kind: str) -> None:
    text = "\n".join(page.read_text() for page in GUIDES)
    for registered in getattr(hb, kind).names():
        assert re.search(rf"`{registered}[`(]|hb\.{registered}\b", text), (
            f"{registered} is in no guide: {kind} are listed in docs/"
        )


def test_settings_and_columns_are_documented() -> None:
    measuring = (ROOT / "docs" / "measuring.md").read_text()
    problem = hb.problems.get("quadratic")(agents=3)
    dsbo = hb.DSBO.suggest(hb.Scale(10.0, 1.0))
    for column in hb.solve(problem, hb.ring(3), dsbo, steps=1).history:
        assert f"`{column}`" in measuring or column.startswith("consensus_"), column
    running = (ROOT / "docs" / "running.md").read_text()
    for option in config.OPTIONS:
        assert f"`{option}`" in running, option
    step_sizes = (ROOT / "docs" / "step-sizes.md").read_text()
    for rule in config.RULES:
        assert f"`{rule}" in step_sizes, rule


@pytest.mark.parametrize("algorithm", hb.algorithms.names())
def test_docstring_examples(algorithm: str) -> None:
    found = doctest.testmod(import_module(f"hobnob.algorithms.{algorithm}"))
    assert found.attempted, "its docstring has no example"
    assert not found.failed


_CONFORM = """
import sys
import pytest
import hobnob.algorithms, tests.reference
hobnob.algorithms.__path__.append(sys.argv[1])
tests.reference.__path__.append(sys.argv[2])
sys.exit(pytest.main(["-p", "no:cacheprovider", "-p", "no:xdist", "tests/conformance",
    "-k", sys.argv[3] + " and not has_a_reference"]))
"""


def test_the_new_algorithm_of_the_guide_conforms(tmp_path: Path) -> None:
    files = {
        b.file: b.text
        for b in blocks(ROOT / "CONTRIBUTING.md")
        if b.language == "python" and b.file
    }
    (made,) = [Path(f) for f in files if f.startswith("src/hobnob/algorithms/")]
    assert f"tests/reference/{made.name}" in files
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    folders = [str(tmp_path / "src/hobnob/algorithms"), str(tmp_path / "tests/reference")]
    done = subprocess.run(
        [sys.executable, "-c", _CONFORM, *folders, made.stem],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= 10, done.stdout
