"""The look of all pictures, and how a drawing becomes SVG that follows the page.

Theme colours are drawn with their light values, which `inline` turns into `var(--name, value)`. The
page defines these variables for light, dark and print. A picture that is saved alone keeps the
light values.
"""

from __future__ import annotations

import hashlib
import html
import io
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator, EngFormatter, FuncFormatter, LogLocator, NullLocator

WIDTH = 5.2  # inches: text is then readable on a phone and on a full page
FONTS = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, "
    "'Noto Sans', 'DejaVu Sans', sans-serif"
)

# name -> (light, dark). Nothing else may be drawn in a light value, so none is pure black or white.
# The series are Okabe and Ito's, which colour-blind readers can tell apart, in an order in which
# neighbours differ in lightness. They are brighter on a dark background.
COLOURS = {
    "paper": ("#fdfdfc", "#15181c"),
    "ink": ("#1d2228", "#e6e8eb"),
    "muted": ("#626c78", "#9aa4b0"),
    "grid": ("#e4e6e9", "#2c323a"),
    "series-1": ("#0072b2", "#4ea5dc"),
    "series-2": ("#d55e00", "#f08a3c"),
    "series-3": ("#009e73", "#35c79b"),
    "series-4": ("#cc79a7", "#e39cc4"),
    "series-5": ("#e69f00", "#f3c14b"),
    "series-6": ("#56b4e9", "#a9dcf9"),
}
LIGHT = {name: light for name, (light, _) in COLOURS.items()}
PAPER, INK, MUTED, GRID = (LIGHT[name] for name in ("paper", "ink", "muted", "grid"))
SERIES = [colour for name, colour in LIGHT.items() if name.startswith("series")]

RC: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.facecolor": PAPER,
    "axes.formatter.use_mathtext": False,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelpad": 6,
    "axes.labelsize": 8.5,
    "axes.linewidth": 0.8,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 100,
    "figure.edgecolor": PAPER,
    "figure.facecolor": PAPER,
    "font.family": "DejaVu Sans",  # ships with matplotlib, and wider than most: nothing overlaps
    "font.size": 8.5,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.borderaxespad": 0,
    "legend.columnspacing": 1.8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "savefig.edgecolor": PAPER,
    "savefig.facecolor": PAPER,
    "svg.fonttype": "none",
    "svg.hashsalt": "hobnob",
    "text.color": INK,
    "text.parse_math": False,  # a feature may be called "cost in $"
    "xtick.color": MUTED,
    "xtick.labelsize": 8,
    "xtick.major.size": 3,
    "xtick.minor.size": 0,
    "ytick.color": MUTED,
    "ytick.labelsize": 8,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}


@contextmanager
def theme() -> Iterator[None]:
    """Draw and save inside it. It restores matplotlib's global state."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # a user's own matplotlibrc must not leak into a report
        matplotlib.rcParams.update(RC)
        # Chinese or Arabic names are missing in the PNG only; browsers have fonts for the SVG.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


def figure(height: float) -> Figure:
    """An empty figure of the common width. Without pyplot, which would keep it alive."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def settle(drawing: Figure) -> None:
    """Fix the layout: computing it again would move things slightly."""
    drawing.draw_without_rendering()
    drawing.set_layout_engine("none")


def legend(drawing: Figure, ax: Axes, height: float) -> None:
    """Put a legend above the curves, in as many columns as fit. The figure grows by its rows."""
    labels = ax.get_legend_handles_labels()[1]
    if len(labels) < 2:
        return
    columns = rows = 0
    for columns in range(min(4, len(labels)), 0, -1):
        rows = -(-len(labels) // columns)
        # Like matplotlib, fill the first columns with one row more.
        widest = [max(map(len, column)) for column in np.array_split(labels, columns)]
        if sum(widest) + 6 * len(widest) <= 70:  # characters across the figure
            break
    drawing.legend(loc="outside upper left", ncols=columns)
    drawing.set_figheight(height + 0.19 * rows)


def reference_line(ax: Axes, value: float, label: str) -> None:
    """A dotted horizontal line."""
    ax.axhline(value, color=INK, linewidth=1, linestyle=(0, (1, 2)), label=shorten(label, 40))


def slope_line(ax: Axes, x: np.ndarray, y: np.ndarray, label: str, slope: float) -> None:
    """Draw a dashed line for a power law without changing the axes' limits."""
    view = ax.get_xlim(), ax.get_ylim()
    power = str(Fraction(slope).limit_denominator(12)).replace("-", "−")
    ax.plot(x, y, color=MUTED, linewidth=1.2, linestyle=(0, (5, 3)), label=f"{label} {power}")
    ax.set(xlim=view[0], ylim=view[1])


def shorten(text: object, most: int = 28) -> str:
    """A name as a label: one line, printable, at most `most` characters."""
    line = "".join(c for c in " ".join(str(text).split()) if c.isprintable())
    if len(line) <= most:
        return line
    tail = most // 3  # similar names often differ at the end: "sensor reading 1 of 12"
    return line[: most - tail - 1].rstrip() + "…" + line[-tail:].lstrip()


def tick(value: float, _: object = None) -> str:
    """A number for an axis, without markup: `0.02`, `500`, `10⁻⁶`, `2·10⁵`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    mantissa, exponent = f"{value:.3e}".split("e")
    if -3 <= int(exponent) <= 3:
        return f"{value:.4g}".replace("-", "−")
    power = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    mantissa = f"{float(mantissa):g}".replace("-", "−")
    return power if mantissa == "1" else f"{mantissa}·{power}"


def amount(size: float) -> str:
    """Bytes for people: `1.2 MB`."""
    return EngFormatter(unit="B", places=1)(size).replace(".0 ", " ")


def scale(ax: Axes, which: Literal["x", "y"], log: bool, unit: str | None = None) -> None:
    """Set an axis' scale, with few, readable ticks. With a `unit`, they have prefixes: kB, ms."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    if log:
        (ax.set_xscale if which == "x" else ax.set_yscale)("log", nonpositive="mask")
        low, high = axis.get_view_interval()
        decades = math.log10(high / low)
        axis.set_minor_locator(NullLocator())
        if decades < 0.7:  # too few powers of ten for logarithmic ticks
            axis.set_major_locator(AutoLocator())
        else:
            subs = (1, 2, 5) if decades < 1.7 else (1, 3) if decades < 3 else (1,)
            axis.set_major_locator(LogLocator(subs=subs, numticks=8))
    axis.set_major_formatter(FuncFormatter(tick) if unit is None else EngFormatter(unit=unit))


def png(drawing: Figure, dpi: int = 200) -> bytes:
    buffer = io.BytesIO()
    with theme():
        drawing.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def standalone(drawing: Figure, title: str) -> str:
    """An SVG file with its own colours, for slides, papers and viewers without variables."""
    buffer = io.StringIO()
    with theme():
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        drawing.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]  # the DOCTYPE refers to a DTD on the web
    # matplotlib's style element would apply to the whole page, and its fonts may be missing.
    text = re.sub(r"<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>\s*", "", text, count=1)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    root = (
        f'<svg role="img" aria-label="{html.escape(title)}" '
        f'style="stroke-linejoin: round; stroke-linecap: butt; font-family: {FONTS}"'
    )
    return text.replace("<svg", root, 1)


def inline(text: str) -> str:
    """The same SVG for inside a page: full width, the page's colours, unique ids."""
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2).replace(
        "<svg", '<svg width="100%"', 1
    )
    names = {light: name for name, light in LIGHT.items()}
    colours = re.compile("|".join(names))
    # Only inside style attributes: a feature may be called "#0072b2".
    text = re.sub(
        r' style="[^"]*"',
        lambda style: colours.sub(lambda c: f"var(--{names[c[0]]}, {c[0]})", style[0]),
        text,
    )
    return prefixed(text, "h" + hashlib.sha256(text.encode()).hexdigest()[:8] + "-")


def prefixed(text: str, prefix: str) -> str:
    """Put `prefix` before every id and every reference to one, so that SVGs don't clash."""
    return re.sub(r'( id="|url\(#|href="#)(?=[^"]*")', lambda m: m[1] + prefix, text)


def variables(dark: bool = False) -> str:
    """The theme's colours as CSS declarations."""
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in COLOURS.items())
