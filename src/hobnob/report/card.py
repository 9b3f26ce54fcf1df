"""A result as a notebook shows it: a verdict and a picture."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from hobnob.report import style
from hobnob.report.curves import convergence

if TYPE_CHECKING:
    from hobnob.run.summary import Headline


def card(headline: Headline) -> str:
    """A piece of HTML."""
    picture, curve = "", headline.curve
    if curve is not None:
        curves = {headline.algorithm: (headline.steps, curve.values)}
        drawn = convergence(curves, "steps", curve.label)
        colours = f":root {{ {style.variables()} }}"
        picture = f'<style>{colours}</style><div style="max-width: 40em">{drawn.svg}</div>'
    why = f"<p>{escape(headline.choice)}</p>" if headline.choice else ""
    return f"<div><p><strong>{escape(headline.verdict)}</strong></p>{why}{picture}</div>"
