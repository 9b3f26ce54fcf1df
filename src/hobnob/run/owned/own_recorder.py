"""OwnRecorder: what one owner can measure when no process sees all data or all states.

Its own losses, how far its agents are from their neighbours, and gossip estimates of the network's
means: every agent e holds r - sum_j m_j, where r is its own number and m_j += w_j (e - e_j) is what
flowed to neighbour j. All e come to the mean of all r, and losing a neighbour only loses its m_j.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.core.owners import LinkReport, Owners
from hobnob.core.setup import Tree
from hobnob.ground.errors import SettingError
from hobnob.run.observers import Row
from hobnob.run.recorder import Metrics, Recorder
from hobnob.run.run import Run

_LOSSES = ("outer_loss", "inner_loss")


class OwnRecorder(Recorder):
    """Columns of numbers, one row a recorded step, of the agents of one owner.

    `steps made` leaves out what this owner missed while it was away. Costs are of the steps made;
    messages and bytes are what really left this process.
    """

    def __init__(self, run: Run, owners: Owners, chosen: Metrics = "all"):
        if chosen not in ("all", None):
            raise SettingError(
                "metrics: among owners nobody sees all states, so only what one owner can measure "
                "is recorded. Leave metrics out."
            )
        super().__init__(run, None)
        self._owners = owners
        self._made_before = 0
        self._sent_before = 0, 0
        seeds, agents = run.setup.seed_count, len(run.group.here)
        self._own = np.zeros((agents, seeds, len(_LOSSES) + 1))  # losses, squared disagreement
        self._flowed: dict[tuple[int, int, int], np.ndarray] = {}
        self.names = ["own losses", "disagreement"]

    def record(self, step: int, state: Tree, seconds: float, gathered: Tree | None) -> Row:
        made = self._made_before + self._run.made
        messages, sent = self._owners.sent
        agents = len(self._run.group.here)
        costs = self._run.costs.mean_until(made) | {
            "messages": (self._sent_before[0] + messages) / agents,
            "bytes": (self._sent_before[1] + sent) / agents,
        }
        row: dict[str, Any] = {"step": step, **costs, "seconds": seconds, "steps_made": made}
        row |= self._measured_here(state)
        measured = {name: np.asarray(value) for name, value in row.items()}
        self.rows.append(measured)
        return measured

    def restore(self, history: dict[str, np.ndarray], step: int) -> None:
        super().restore(history, step)
        if self.rows:
            last, agents = self.rows[-1], len(self._run.group.here)
            # Steps since the last row that stays count as made: a jump among them is not known.
            self._made_before = int(last["steps_made"].reshape(-1)[0]) + step - int(last["step"])
            kept = (last[name].reshape(-1)[0] * agents for name in ("messages", "bytes"))
            self._sent_before = tuple(round(float(v)) for v in kept)  # type: ignore[assignment]

    def _measured_here(self, state: Tree) -> dict[str, Any]:
        x = np.asarray(state.x, float)
        x = x if self._run.setup.many_seeds else x[None]
        x = np.moveaxis(x, 1, 0)  # agents first
        losses = self._losses(state)
        self._own[..., : len(_LOSSES)] = losses
        estimates = self._estimates()
        agents = len(x)
        rows = np.concatenate([x, estimates], axis=-1).reshape(agents, -1)
        reports = self._owners.report(rows)
        shape = self._run.setup.seed_count, -1
        heard = [(report, report.row.reshape(shape)) for report in reports]
        distances = [
            (report.place, ((x[report.place] - row[:, : x.shape[-1]]) ** 2).sum(axis=-1))
            for report, row in heard
        ]
        for place in range(agents):
            own = [distance for at, distance in distances if at == place]
            self._own[place, :, -1] = np.mean(own, axis=0) if own else 0.0
        self._flow(estimates, [(report, row[:, x.shape[-1] :]) for report, row in heard])
        own, means = self._own.mean(axis=0), self._estimates().mean(axis=0)
        columns: dict[str, Any] = {}
        if self._run.problem.has_pooled_losses:
            columns = {f"own_{name}": own[:, i] for i, name in enumerate(_LOSSES)}
            columns |= {f"mean_{name}": means[:, i] for i, name in enumerate(_LOSSES)}
        columns["disagreement"] = np.sqrt(own[:, -1])
        columns["spread"] = np.sqrt(np.maximum(means[:, -1], 0.0))
        if not self._run.setup.many_seeds:
            columns = {name: values[0] for name, values in columns.items()}
        return columns | {"neighbours": len(self._owners.up)}

    def _estimates(self) -> np.ndarray:
        """Of the network's means, one for each agent here."""
        estimates = self._own.copy()
        for (place, _, _), flowed in self._flowed.items():
            estimates[place] -= flowed
        return estimates

    def _flow(self, estimates: np.ndarray, heard: list[tuple[LinkReport, np.ndarray]]) -> None:
        before, self._flowed = self._flowed, {}
        for report, theirs in heard:
            key = report.place, report.other, report.epoch
            flow = report.weight * (estimates[report.place] - theirs)
            self._flowed[key] = before.get(key, 0.0) + flow

    def _losses(self, state: Tree) -> np.ndarray:
        """[agents, seeds, 2]: each agent's losses over its own data, at its own x and y."""
        if not self._run.problem.has_pooled_losses:
            return np.zeros((*self._own.shape[:2], len(_LOSSES)))
        found = np.asarray(self._own_losses(self._run.world.places, state.x, state.y))
        return np.moveaxis(found, 0, 1) if self._run.setup.many_seeds else found[:, None]

    @cached_property
    def _own_losses(self) -> Any:
        hosted = self._run.hosted

        def of_agent(places: Any, x: jax.Array, y: jax.Array) -> jax.Array:
            return jnp.stack([hosted.own_outer(x, y, places[0]), hosted.own_inner(x, y, places[1])])

        axes = (hosted.outer_data.per_agent, hosted.inner_data.per_agent)
        lifted = jax.vmap(of_agent, in_axes=(axes, 0, 0))
        if self._run.setup.many_seeds:
            lifted = jax.vmap(lifted, in_axes=(None, 0, 0))
        return jax.jit(lifted)
