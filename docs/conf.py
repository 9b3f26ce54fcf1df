"""The site: Sphinx reads the Markdown pages and the docstrings. `make docs` builds it."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.domains.python import PyObject

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_site"))

import names  # noqa: E402
from docstrings import to_rst  # noqa: E402

project = "hobnob"
author = "The hobnob founders"
copyright = author
version = release = version_of("hobnob")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["reference/examples.md"]  # its parts stand beside the names that they show
highlight_language = "none"
smartquotes = False  # --help stays --help

myst_heading_anchors = 4

add_module_names = True
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_type_aliases = {"Schedule": "Schedule", "Metrics": "Metrics", "Loss": "Loss"}
autodoc_typehints_format = "short"
napoleon_use_ivar = True
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "hobnob"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_domain_indices = False
html_show_copyright = False
# The reader's own fonts: nothing is fetched.
html_theme_options = {"navigation_with_keys": True}


def _expand(app: Any, page: str, source: list[str]) -> None:
    """Put the generated parts of the reference in their places."""
    if page.startswith("reference/"):
        source[0] = names.expand(page.removeprefix("reference/"), source[0])


def _plain(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with indented recursions."""
    lines[:] = to_rst(lines, names.linked)
    if what in ("attribute", "property"):
        _kept[name] = lines[:]


def _properties(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Napoleon takes what stands before a colon in an attribute's docstring for its type."""
    lines[:] = _kept.pop(name, lines)


_kept: dict[str, list[str]] = {}


def _signature(app: Any, what: str, name: str, *rest: Any) -> tuple[str, None] | None:
    """What only the library makes is shown without its constructor."""
    return ("", None) if name in ("hobnob.Agent", "hobnob.View") else None


def _dashes(app: Any, doctree: nodes.document) -> None:
    """Sphinx writes ` -- ` between an argument and its description."""
    for text in list(doctree.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" – "))


def setup(app: Any) -> None:
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.connect("source-read", _expand)
    app.connect("doctree-read", _dashes)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _plain, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", _properties, priority=600)  # after it
