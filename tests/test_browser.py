"""A page in a real browser, light and dark, wide and narrow, without complaints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import browser
from tests.test_report import page as write_hostile_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    browser.require()
    path = tmp_path_factory.mktemp("browser") / "page.html"
    write_hostile_page(path)
    return path


def pixels(png: Path, width: int) -> np.ndarray:
    with Image.open(png) as image:
        return np.asarray(image.convert("L"))[:, :width].astype(float)


def test_headline_is_shown_and_the_console_is_quiet(page: Path):
    dom, console = browser.run(page, "--dump-dom")
    assert "<h1>Eight agents &lt;script&gt;" in dom
    assert console == []


def test_console_lines_are_really_seen(tmp_path: Path):
    """Otherwise an empty console would prove nothing."""
    browser.require()
    loud = tmp_path / "loud.html"
    loud.write_text("<!doctype html><title>loud</title><script>console.error('boo')</script>")
    assert "boo" in browser.console(loud)[0]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400], ids=["desktop", "phone"])
def test_screenshot(page: Path, tmp_path: Path, width: int, dark: bool):
    shot = pixels(browser.screenshot(page, tmp_path / "shot.png", width, 1600, dark=dark), width)
    assert shot.shape == (1600, width)
    background = np.median(shot)
    assert background < 60 if dark else background > 240
    # Text and drawings cover some of the page, but not all of it.
    assert 0.01 < (np.abs(shot - background) > 60).mean() < 0.4


@pytest.mark.parametrize("width", [320, 400, 1200])
def test_nothing_sticks_out_sideways(page: Path, width: int):
    assert browser.extent(page, width)[0] == width


VISIBLE = "[...page.querySelectorAll('figure')].map(f => f.offsetHeight > 0 ? 1 : 0).join('')"


def test_tabs_show_one_picture_at_a_time(page: Path):
    assert browser.evaluate(page, 1200, VISIBLE) == "101111"
    click = "page.querySelectorAll('label')[1].click()"
    assert browser.evaluate(page, 1200, f"{click}, {VISIBLE}") == "011111"


def test_tabs_take_the_keyboard_focus(page: Path):
    focused = "page.querySelector('input').focus(), page.activeElement.id"
    assert browser.evaluate(page, 1200, focused) == "tab-1"


def test_print_shows_every_picture_and_all_settings(page: Path, tmp_path: Path):
    printed = tmp_path / "printed.html"
    text = page.read_text(encoding="utf-8")
    assert text.count("@media print") == 1
    printed.write_text(text.replace("@media print", "@media all"), encoding="utf-8")
    assert browser.evaluate(printed, 700, VISIBLE) == "111111"
    settings = "page.querySelector('.pairs').checkVisibility({contentVisibilityAuto: true})"
    assert browser.evaluate(printed, 700, settings) == "true"
    assert browser.evaluate(page, 700, settings) == "false"
