"""Docstrings as plain text, which they are, for Sphinx, which expects reStructuredText.

Indented paragraphs, such as recursions, become literal blocks; code in `backquotes` becomes code or
a link; stars, bars and underscores of mathematics are text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Link = Callable[[str], str | None]

SECTION = re.compile(r"(Args|Attributes|Examples?|Raises|Returns|Yields|References?|Notes?):$")
ALIGNED = re.compile(r"(\w+(?:, \w+)*) {2,}(\S.*)$")
CODE = re.compile(r"(@\w|class \w+\(|def \w+\(|with .*:$|for .*:$)")
EMPHASIS = re.compile(r"(?<![\w*\\])\*(\w(?:[^*]*\w)?)\*(?![\w*])")


def to_rst(lines: list[str], link: Link = lambda code: None) -> list[str]:
    made: list[str] = []
    section = ""
    for paragraph in _paragraphs(lines):
        first = paragraph[0]
        if not first.startswith(" "):
            header = SECTION.match(first)
            section = header[1] if header else ""
        if section.startswith("Example"):
            made += paragraph
        elif section:
            lines = _one_name_each(paragraph) if section == "Attributes" else paragraph
            made += [_inline(line, link) for line in lines]
        elif first.startswith("    ") or CODE.match(first):
            made += ["::", "", *(f"    {line}" for line in paragraph)]
        elif len(paragraph) > 1 and all(ALIGNED.match(line) for line in paragraph):
            for line in paragraph:
                names, text = line.split("  ", 1)
                made.append(f"- ``{names}``: {_inline(text.strip(), link)}")
        else:
            made += [_inline(line, link) for line in paragraph]
        made.append("")
    return made


def _paragraphs(lines: list[str]) -> list[list[str]]:
    """The lines between blank ones; a literal block after another one belongs to it."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line.rstrip())
        elif found[-1]:
            found.append([])
    return [paragraph for paragraph in found if paragraph]


def _one_name_each(lines: list[str]) -> list[str]:
    """`x, y: text` as two entries, as napoleon does it for arguments and not for attributes."""
    entries: list[list[str]] = []
    for line in lines[1:]:
        if re.match(r"    \S", line) or not entries:
            entries.append([])
        entries[-1].append(line)
    made = lines[:1]
    for first, *rest in entries:
        several = re.match(r"    (\w+(?:, \w+)+): (.*)", first)
        names = several[1].split(", ") if several else []
        for name in names:
            made += [f"    {name}: {several[2] if several else ''}", *rest]
        made += [] if several else [first, *rest]
    return made


def _inline(line: str, link: Link) -> str:
    parts = re.split(r"`([^`]+)`", line)
    text = [_escaped(part) for part in parts[::2]]
    code = [link(part) or f"``{part}``" for part in parts[1::2]]
    # A backquoted piece next to a letter or another sign is no markup to reStructuredText.
    made = text[0]
    for piece, after in zip(code, text[1:], strict=True):
        before = "\\ " if made and (made[-1].isalnum() or made[-1] in "*_") else ""
        behind = "\\ " if after and after[0].isalnum() else ""
        made += before + piece + behind + after
    return made


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("|", "\\|")
    kept = EMPHASIS.sub("\x00\\1\x00", text)
    kept = kept.replace("*", "\\*").replace("\x00", "*")
    return re.sub(r"(?<=\w)_(?!\w)", "\\_", kept)
