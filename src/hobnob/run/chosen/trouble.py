"""Rules that notice, while a run goes, that what was chosen for it does not work."""

from __future__ import annotations

import numpy as np

from hobnob.analysis.choose import Choice, Trouble

# The rules. F is the objective, where it is measured.
EARLY = 200  # steps: before, y and z may still be on their way, and x goes anywhere
LATE = 0.25  # of all steps: by then F must be below its start,
PART = 0.1  # and by this part of what the linear model promised
FALL = 3  # by so much |grad F| must fall in the steps in which a model's falls by 10,000


def trouble_of(history: dict[str, np.ndarray], choice: Choice) -> Trouble | None:
    """What is wrong at the last row, if anything: the same for all who have the history."""
    step = history["step"].reshape(-1, history["step"].shape[-1])[0]
    now, objective = step[-1], _middle(history, "objective")
    if objective is not None and now >= max(LATE * choice.steps, EARLY):
        if objective[-1] > objective[0]:
            return "diverged"
        if choice.gain is not None and objective[0] - objective[-1] < PART * choice.gain:
            return "stalled"
    gradient = _middle(history, "gradient_norm")
    if gradient is not None and choice.tolerance is not None and choice.expected is not None:
        # The largest of a quarter of that time: a slope that swings may be small by chance.
        past, quarter = now - choice.expected, choice.expected / 4
        lately, then = step > now - quarter, (step <= past) & (step > past - quarter)
        if past >= choice.expected and then.any():
            return "stalled" if gradient[lately].max() > gradient[then].max() / FALL else None
    return None


def _middle(history: dict[str, np.ndarray], name: str) -> np.ndarray | None:
    """The median over seeds."""
    values = history.get(name)
    return None if values is None else np.median(values.reshape(-1, values.shape[-1]), axis=0)
