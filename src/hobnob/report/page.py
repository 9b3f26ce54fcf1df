"""A page: one HTML file with a verdict, pictures and the command that repeats it.

It fetches nothing and runs no scripts. A content security policy in the page enforces that, so even
a hostile name that was not escaped could do nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import count
from numbers import Integral, Real
from pathlib import Path
from typing import Literal

from hobnob.ground.files import write_whole
from hobnob.report import style
from hobnob.report.picture import Picture

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Tabs:
    """Pictures of which one is shown at a time. `question` is a label such as "Against"."""

    question: str
    pictures: Mapping[str, Picture]


@dataclass(frozen=True)
class Section:
    """A heading, a text with blank lines between paragraphs, pictures and a table."""

    title: str
    text: str = ""
    pictures: Sequence[Picture | Tabs] = ()
    table: Sequence[Mapping[str, object]] = ()


def write_page(
    path: str | Path,
    *,
    title: str,
    lead: str,
    verdict: str,
    table: Sequence[Mapping[str, object]],
    sections: Sequence[Section],
    settings: Mapping[str, object],
    versions: Mapping[str, object],
    command: str,
    tone: Literal["good", "bad", "plain"] = "plain",
) -> Path:
    """Write the page and return its path. An existing file is replaced in one step.

    table: rows of column -> value; numbers have four digits and are aligned to the right.
    tone: whether the verdict is good news.
    """
    path = Path(path)
    numbers = count(1)
    body = "\n".join(_section(section, numbers) for section in sections)
    text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="hobnob">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
:root {{ {style.variables()} --fonts: {style.FONTS}; }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {style.variables(dark=True)} }} }}
{files("hobnob.report").joinpath("page.css").read_text(encoding="utf-8")}
</style>
</head>
<body>
<main>
<header>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
<p class="verdict {tone}">{escape(verdict)}</p>
</header>
{_table(table)}
{body}
<section class="repeat">
<h2>Repeat it</h2>
<pre tabindex="0"><code>{escape(command)}</code></pre>
{_details("Settings", settings)}
{_details("Versions", versions)}
</section>
</main>
</body>
</html>
"""
    write_whole(path, text.encode())
    return path


def _section(section: Section, numbers: count[int]) -> str:
    paragraphs = [f"<p>{escape(part)}</p>" for part in section.text.split("\n\n") if part.strip()]
    pictures = [
        _tabs(item, numbers) if isinstance(item, Tabs) else _figure(item, next(numbers))
        for item in section.pictures
    ]
    table = _table(section.table, section.title)
    parts = [f"<h2>{escape(section.title)}</h2>", *paragraphs, table, *pictures]
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _tabs(tabs: Tabs, numbers: count[int]) -> str:
    """Radio buttons, each followed by its label and its figure.

    CSS shows the figure after the checked button, so tabs need no script and obey the arrow keys.
    """
    parts = []
    group = ""
    for label, picture in tabs.pictures.items():
        number = next(numbers)
        group = group or f"tabs-{number}"
        checked = "" if parts else " checked"
        parts.append(
            f'<input type="radio" name="{group}" id="tab-{number}"{checked}>'
            f'<label for="tab-{number}">{escape(label)}</label>\n{_figure(picture, number)}'
        )
    return (
        f'<fieldset class="tabs">\n<legend>{escape(tabs.question)}</legend>\n'
        + "\n".join(parts)
        + "\n</fieldset>"
    )


def _figure(picture: Picture, number: int) -> str:
    # Ids also get a number: a page may show the same picture twice.
    drawing = style.prefixed(picture.svg, f"p{number}-")
    title = picture.title[:1].upper() + picture.title[1:]
    caption = f" {escape(picture.caption)}" if picture.caption else ""
    links = [
        _download(picture, "svg", "image/svg+xml", picture.standalone),
        _download(picture, "csv", "text/csv;charset=utf-8", picture.csv),
    ]
    return f"""<figure>
<div class="plot">{drawing}</div>
<figcaption><strong>{escape(title)}.</strong>{caption}
<span class="downloads">{" ".join(links)}</span></figcaption>
</figure>"""


def _download(picture: Picture, ending: str, kind: str, text: str) -> str:
    data = base64.b64encode(text.encode()).decode()
    name = escape(f"{picture.name}.{ending}")
    label = escape(f"Download {picture.title} as {ending.upper()}")
    return (
        f'<a href="data:{kind};base64,{data}" download="{name}" aria-label="{label}">'
        f"{ending.upper()}</a>"
    )


def _table(rows: Sequence[Mapping[str, object]], label: str = "Summary") -> str:
    if not rows:
        return ""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    numeric = {column for column in columns if _cell(rows[0].get(column, ""))[1]}
    head = "".join(
        f'<th scope="col"{_side(column in numeric)}>{escape(column)}</th>' for column in columns
    )
    body = "\n".join(
        "<tr>" + "".join(f"<td{_side(number)}>{text}</td>" for text, number in cells) + "</tr>"
        for cells in ([_cell(row.get(column, "")) for column in columns] for row in rows)
    )
    return f"""<div class="table" tabindex="0" role="region" aria-label="{escape(label)}"><table>
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table></div>"""


def _cell(value: object) -> tuple[str, bool]:
    """A value as HTML, and whether it is aligned as a number; `43 MB` is."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        text = f"{value:,}".replace("-", "−")
    elif isinstance(value, Real) and not isinstance(value, bool):
        text = style.tick(float(f"{float(value):.4g}"))
    else:
        text = str(value)
    aligned = text.lstrip("−-+<>≤≥ ")[:1].isdigit() or text in ("–", "nan", "inf", "−inf")
    return escape(text), aligned


def _side(number: bool) -> str:
    return ' class="number"' if number else ""


def _details(title: str, values: Mapping[str, object]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{escape(str(key))}</th><td>{escape(str(value))}</td></tr>'
        for key, value in values.items()
    )
    return f"""<details>
<summary>{escape(title)}</summary>
<table class="pairs"><tbody>
{rows}
</tbody></table>
</details>"""
