"""Headless Chromium, for tests of what a reader sees.

Chromium silently widens windows below 500 pixels, so a page is shown in a frame of the requested
width, which its media queries then see.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
]
NARROWEST = 500


def require() -> None:
    """Skip if there is no browser; fail instead if HOBNOB_REQUIRE_BROWSER is set."""
    if CHROMIUM is None:
        if os.environ.get("HOBNOB_REQUIRE_BROWSER"):
            pytest.fail("HOBNOB_REQUIRE_BROWSER is set and chromium is not installed")
        pytest.skip("chromium is not installed")


def run(page: Path, *options: str, dark: bool = False) -> tuple[str, list[str]]:
    """Open a page; return Chromium's output and the lines of the page's console."""
    assert CHROMIUM is not None
    # By default Chromium follows the desktop's preference.
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, *FLAGS, scheme, f"--user-data-dir={profile}", *options, page.as_uri()]
        # A separate session, so that a hanging browser is killed with its helpers.
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
    assert process.returncode == 0, err
    return out, [line for line in err.splitlines() if "CONSOLE" in line]


def framed(page: Path, folder: Path, width: int, height: int, expression: str = "''") -> Path:
    """A page that holds `page` in a frame of this size. Its title is the value of a JavaScript
    expression of the frame's `page` and its `root` element. The script is outside the page, whose
    policy forbids scripts."""
    frame = folder / "frame.html"
    frame.write_text(
        f"""<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title></title><body style="margin:0">
<iframe style="border:0;display:block" width="{width}" height="{height}"
 srcdoc="{html.escape(page.read_text(encoding="utf-8"))}"></iframe>
<script>onload = () => {{
  const page = document.querySelector("iframe").contentDocument, root = page.documentElement;
  document.title = "result:" + ({expression});
}}</script>""",
        encoding="utf-8",
    )
    return frame


def dump_dom(path_html: str | Path) -> str:
    """The document as the browser parsed it."""
    return run(Path(path_html).resolve(), "--dump-dom")[0]


def console(path_html: str | Path) -> list[str]:
    """The browser's complaints about the page."""
    return run(Path(path_html).resolve(), "--dump-dom")[1]


def evaluate(path_html: str | Path, width: int, expression: str) -> str:
    """The value of a JavaScript expression on a page of this width; see `framed`."""
    with tempfile.TemporaryDirectory() as folder:
        frame = framed(Path(path_html), Path(folder), width, 800, expression)
        found = re.search(r"<title>result:(.*?)</title>", dump_dom(frame))
    assert found is not None, "the frame did not load"
    return html.unescape(found[1])


def extent(path_html: str | Path, width: int) -> tuple[int, int]:
    """The width and height of a page that is given this width."""
    taken = evaluate(path_html, width, "root.scrollWidth + ' ' + root.scrollHeight")
    across, down = taken.split()
    return int(across), int(down)


def screenshot(
    path_html: str | Path, png: str | Path, width: int, height: int, dark: bool = False
) -> Path:
    """A screenshot of the top of a page; a narrow page is at its left."""
    page, png = Path(path_html).resolve(), Path(png).resolve()
    size = f"--window-size={max(width, NARROWEST)},{height}"
    with tempfile.TemporaryDirectory() as folder:
        if width < NARROWEST:
            page = framed(page, Path(folder), width, height)
        run(page, f"--screenshot={png}", size, dark=dark)
    return png
