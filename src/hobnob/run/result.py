"""Result: what a run found, what it cost, and how it went."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hobnob.core.ledger import Costs, Traffic
from hobnob.core.network import Network
from hobnob.core.owners import Company
from hobnob.run.loop import End, Loop

MANY = "the inner problem has many; F is measured at that of the smallest norm"


class Before(NamedTuple):
    """What earlier stages of a run sent, if what was chosen for it had to be changed."""

    steps: int
    traffic: Traffic


@dataclass(frozen=True)
class Result:
    """The outcome of `hobnob.solve`.

    Attributes:
        x, y: the network's mean, shaped like the problem's x0 and y0. With several seeds, here and
            below, arrays have a leading axis of seeds. If the problem is personal, a mean of y has
            no meaning: y is then every agent's own, the same as agents["y"].
        agents: {"x": ..., "y": ...}, every agent's own: leaves with a leading axis of agents.
        history: column -> array, one entry a recorded step. Costs (samples, gradients, products,
            matrices, rounds, messages, bytes) are cumulative and per agent, the mean over agents.
        ledger: the same costs at the end, for each agent: column -> [agents].
        message: what happened, in a sentence; `status` in a word: "finished" (all steps done),
            "converged" or "not converged" (where a tolerance was asked for), "interrupted", or
            "stalled" (nothing that was chosen brought F down).
        advice: the part of the message that tells how to go on from Python, where there is one.
        steps: how many were done.
        compile_seconds: how long compilation took, which is not part of history["seconds"].
        settings: the problem, network, algorithm and options of the run, in words.
        traffic: what each link carried, and what each part of the messages took, in bytes.
        company: among other owners: the neighbours, what went over the wire, and who was away when.
            x, y and everything else are then those of this owner's agents alone.

    Example:
        >>> import hobnob as hb
        >>> problem = hb.problems.get("quadratic")(agents=4)
        >>> dsoba = hb.DSOBA(alpha=0.01, beta=0.05, gamma=0.05, theta=0.2)
        >>> result = hb.solve(problem, hb.ring(4), dsoba, steps=20)
        >>> result.x.shape, result.agents["x"].shape, result.history["step"].shape
        ((5,), (4, 5), (21,))
    """

    x: Any
    y: Any
    agents: dict[str, Any]
    history: dict[str, np.ndarray]
    ledger: dict[str, np.ndarray]
    status: str
    message: str
    advice: str
    steps: int
    compile_seconds: float
    settings: dict[str, Any]
    network: Network = field(repr=False)
    costs: Costs = field(repr=False)
    before: Before | None = field(default=None, repr=False)
    company: Company | None = None

    @cached_property
    def traffic(self) -> Traffic:
        if self.before is None:
            return self.costs.traffic_until(self.steps)
        return self.before.traffic.and_then(
            self.costs.traffic_until(self.steps - self.before.steps)
        )

    @property
    def success(self) -> bool:
        """Whether the run did what it was asked to do."""
        return self.status in ("finished", "converged")

    @property
    def choice(self) -> str:
        """Which method and step sizes were chosen, and why, where none were given."""
        return self.settings.get("choice", "")

    def to_pandas(self) -> Any:
        """The history as a pandas frame, with a column `seed` where there are several."""
        import pandas

        if self.history["step"].ndim == 1:
            return pandas.DataFrame(self.history)
        seeds, rows = self.history["step"].shape
        columns = {"seed": np.repeat(self.settings["seed"], rows)}
        columns |= {name: values.reshape(seeds * rows) for name, values in self.history.items()}
        return pandas.DataFrame(columns)

    def __str__(self) -> str:
        latest = {
            name: np.median(values[..., -1])
            for name, values in self.history.items()
            if name in ("objective", "outer_loss", "gradient_norm", "consensus_x", "bytes")
        }
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in latest.items())
        return f"{self.message} {numbers}"

    def _repr_html_(self) -> str:
        # The one import of the report from an earlier room: a notebook asks the result itself.
        from hobnob.report.card import card
        from hobnob.run.summary import headline

        return card(headline(self))


def result_of(loop: Loop, end: End) -> Result:
    """What a loop has found, for the user."""
    run, plan, problem = loop.run, loop.plan, loop.run.problem
    x, y = (run.all_agents(np.asarray(v)) for v in run.layout.answer(end.state))
    message = {
        "finished": f"All {end.step} steps are done.",
        "converged": f"Converged at step {end.step}: |grad F| is at most {plan.tolerance}.",
        "not converged": f"Not converged: |grad F| is above {plan.tolerance} after {end.step} "
        f"steps.",
        "stalled": f"Stopped after {end.step} of {plan.steps} steps: F does not fall as it should.",
        "interrupted": f"Stopped after {end.step} of {plan.steps} steps.",
    }[end.status]
    advice, setup, owners = loop.advice(end.status), run.setup, run.group.owners
    return Result(
        x=problem.x_layout.unravel(x.mean(axis=-2), np),
        y=problem.y_layout.unravel(y if problem.personal else y.mean(axis=-2), np),
        agents={"x": problem.x_layout.unravel(x, np), "y": problem.y_layout.unravel(y, np)},
        history=loop.recorder.history(),
        ledger=run.costs.until(end.step if owners is None else run.made),
        status=end.status,
        message=f"{message} {advice}".strip(),
        advice=advice,
        steps=end.step,
        compile_seconds=loop.compile_seconds,
        settings={
            "problem": repr(problem),
            "network": repr(run.network),
            "algorithm": type(run.algorithm).__name__,
            **run.algorithm.describe(),
            "steps": plan.steps,
            "seed": setup.seeds if isinstance(setup.seeds, int) else list(setup.seeds),
            "record_every": plan.record_every,
            **({"links": str(setup.links)} if setup.links else {}),
            **({"inner solutions": MANY} if loop.recorder.flat else {}),
        },
        network=run.network,
        costs=run.costs,
        company=owners.company if owners is not None else None,
    )
