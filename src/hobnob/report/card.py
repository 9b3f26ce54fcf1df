"""A result as a notebook shows it: a verdict and a picture."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from hobnob.report import style
from hobnob.report.curves import convergence

if TYPE_CHECKING:
    from hobnob.run.result import Result


def card(result: Result) -> str:
    history = result.history
    column = next((c for c in ("objective", "outer_loss", "consensus_x") if c in history), None)
    picture = ""
    if column:
        steps = history["step"] if history["step"].ndim == 1 else np.asarray(history["step"][0])
        curves = {result.settings["algorithm"]: (steps, history[column])}
        drawn = convergence(curves, "steps", column.replace("_", " "))
        colours = f":root {{ {style.variables()} }}"
        picture = f'<style>{colours}</style><div style="max-width: 40em">{drawn.svg}</div>'
    why = f"<p>{escape(result.choice)}</p>" if result.choice else ""
    return f"<div><p><strong>{escape(str(result))}</strong></p>{why}{picture}</div>"
