"""What the documentation says is run, parsed and looked up, and the site is built.

In README.md and docs/ every ```python block runs, in order, in one namespace a page and in an empty
folder. A ```text block right after it is what it prints. A fence with a second word, such as
```python src/hobnob/algorithms/new.py, is a file: in CONTRIBUTING.md those make a new algorithm,
which then has to pass the conformance suite. The commands of five-machines.md are run by
peers/test_tutorial.py.

The reference is generated from docstrings by docs/conf.py. Names without an example in their
docstring have one in docs/reference/examples.md, which runs like any other page.
"""

from __future__ import annotations

import doctest
import html
import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from html.parser import HTMLParser
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag

import pytest

import hobnob as hb
from hobnob.cli import config
from hobnob.cli import main as cli
from tests import browser

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GUIDES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PAGES = [*GUIDES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PYTHON_GUIDES = [page for page in GUIDES if "```python\n" in page.read_text()]


def _reference() -> Any:
    """docs/_site/names.py, which knows the generated parts of the reference."""
    spec = util.spec_from_file_location("docs_names", DOCS / "_site" / "names.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = _reference()


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
            # A command may be spoken of without what it needs.
            asked = ["--help"] if all(word.isalpha() for word in words) else []
            try:
                parser.parse_args([*words, *asked])
            except SystemExit as end:
                if end.code:
                    pytest.fail(f"{name(page)}: {command} is refused")
            seen.add(words[0])
    assert seen >= {"demo", "run", "resume", "list", "show"}


def test_configurations_can_be_built(tmp_path: Path) -> None:
    built = 0
    for page in GUIDES:
        for block in blocks(page):
            if block.language == "toml" and not block.file:
                (tmp_path / "run.toml").write_text(block.text)
                job = config.build(config.read(tmp_path / "run.toml"))
                if job.algorithm is not None:
                    job.algorithm.bind(job.network.size, job.options["steps"])
                built += 1
    assert built


def as_built(page: Path) -> str:
    """A page's text, with what is generated into it."""
    text = page.read_text()
    if page.parent == DOCS / "reference":
        text = REFERENCE.expand(page.stem, text)
    return text


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(as_built(page))):
        path, _, heading = target.partition("#")
        assert not path.startswith("http"), f"{target}: what is not in here cannot be checked"
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", without_code(as_built(there)), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
            assert heading in anchors, target


def test_every_page_is_in_the_index_of_its_part() -> None:
    for part in ("tutorials", "how-to", "explanation"):
        index = (DOCS / part / "index.md").read_text()
        for page in (DOCS / part).glob("*.md"):
            assert page.stem == "index" or f"]({page.name})" in index, name(page)


@pytest.mark.parametrize("kind", ["algorithms", "problems", "networks", "metrics"])
def test_all_that_is_registered_is_documented(kind: str) -> None:
    text = "\n".join(page.read_text() for page in GUIDES)
    for registered in getattr(hb, kind).names():
        assert re.search(rf"`{registered}[`(]|hb\.{registered}\b", text), (
            f"{registered} is in no guide: {kind} are listed in docs/"
        )


def test_settings_and_columns_are_documented() -> None:
    guides = DOCS / "how-to"
    measuring = (guides / "measuring.md").read_text()
    problem = hb.problems.get("quadratic")(agents=3)
    dsbo = hb.DSBO.suggest(hb.Scale(10.0, 1.0))
    for column in hb.solve(problem, hb.ring(3), dsbo, steps=1).history:
        assert f"`{column}`" in measuring or column.startswith("consensus_"), column
    running = (guides / "running.md").read_text()
    for option in config.OPTIONS:
        assert f"`{option}`" in running, option
    step_sizes = (guides / "step-sizes.md").read_text()
    for rule in config.RULES:
        assert f"`{rule}" in step_sizes, rule


@pytest.mark.parametrize("public", hb.__all__)
def test_every_public_name_has_an_example(public: str) -> None:
    doc = getattr(hb, public).__doc__ or ""
    shown = REFERENCE.examples().get(public, "")
    assert ">>> " in doc or "```python" in shown, (
        f"hb.{public} has no example: add one to its docstring, or to docs/reference/examples.md "
        f"under '## {public}'"
    )


MODULES = [m for m in (getattr(hb, name) for name in hb.__all__) if isinstance(m, ModuleType)]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_of_modules(module: ModuleType) -> None:
    """Those of classes and functions are run by test_docstrings.py."""
    assert not doctest.testmod(module).failed


class Html(HTMLParser):
    """The anchors of a page, where its links lead, and what it makes a browser load."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {key: value for key, value in attrs if value}
        self.anchors |= {known[key] for key in ("id", "name") if key in known}
        if tag == "a" and "href" in known:
            self.links.add(known["href"])
        elif tag == "link" and "href" in known:
            self.loads.add(known["href"])
        self.loads |= {known[key] for key in ("src", "srcset", "poster", "data") if key in known}


def looks(pages: list[Path], folder: Path, width: int, dark: bool) -> list[dict[str, Any]]:
    """What a browser makes of pages of this width, all of them in frames of one page."""
    frames = "".join(f'<iframe width="{width}" src="{page.as_uri()}"></iframe>' for page in pages)
    together = folder / "frames.html"
    together.write_text(
        f"""<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title></title>{frames}<script>onload = () => {{
  const seen = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, style = frame.contentWindow.getComputedStyle(page.body);
    return {{across: page.documentElement.scrollWidth, back: style.backgroundColor,
            broken: [...page.images].filter(i => !i.naturalWidth).map(i => i.src)}};
  }});
  document.title = "result:" + JSON.stringify(seen);
}}</script>"""
    )
    dom, complaints = browser.run(
        together, "--dump-dom", "--allow-file-access-from-files", dark=dark
    )
    assert not complaints
    found = re.search(r"<title>result:(.*?)</title>", dom)
    assert found is not None, "the frames did not load"
    return json.loads(html.unescape(found[1]))


EXTERNAL = re.compile(r"(https?:)?//", re.IGNORECASE)


def test_the_site(tmp_path: Path) -> None:
    """It builds without a warning, hangs together, has every name, and loads nothing from afar."""
    pytest.importorskip("sphinx")
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "docs", str(site)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = {page: Html(page) for page in site.rglob("*.html")}

    reached, waiting = set(), [site / "index.html"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in pages[page].links:
            if EXTERNAL.match(target) or target.startswith("mailto:"):
                continue
            path, fragment = (unquote(part) for part in urldefrag(target))
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), f"{page.relative_to(site)}: {target}"
            if there in pages:
                known = pages[there].anchors
                assert not fragment or fragment in known, f"{page.relative_to(site)}: {target}"
                waiting.append(there)
    lost = {str(page.relative_to(site)) for page in pages if page not in reached}
    assert lost <= {"search.html"}, "no link leads there from the index"  # a form leads to it

    for page, found in pages.items():
        far = {target for target in found.loads if EXTERNAL.match(target)}
        assert not far, f"{page.relative_to(site)} loads {far}"
    for style in site.rglob("*.css"):
        far = re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", style.read_text())
        assert not far, style

    reference = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    for public in hb.__all__:
        value = getattr(hb, public)
        module = isinstance(value, ModuleType)
        anchor = f"module-{value.__name__}" if module else f"hobnob.{public}"
        assert f'id="{anchor}"' in reference, f"hb.{public} is not in the reference"

    browser.require()
    ordered = sorted(pages)
    colours = []
    for width, dark in ((400, True), (1200, False)):
        seen = looks(ordered, tmp_path, width, dark)
        for page, look in zip(ordered, seen, strict=True):
            assert look["across"] <= width, f"{page.relative_to(site)} is wider than {width}"
            assert not look["broken"], f"{page.relative_to(site)}: {look['broken']}"
        colours.append({look["back"] for look in seen})
    assert not colours[0] & colours[1], "dark pages have the colour of light ones"


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
