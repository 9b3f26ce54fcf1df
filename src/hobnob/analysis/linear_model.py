"""A small linear model of a bilevel iteration, on which many step sizes are tried at once.

Near the start, the directions of a problem's mean losses are linear in the distances (x, y, z) from
(x0, y*(x0), z*(x0)):

    G_y = H y + P_y x                   grad_y g
    G_z = H z + E y + P_z x             H z - grad_y f
    G_x = g + C_x x + C_y y + C_z z     grad_x f - J z,    g = grad F(x0)

Where they vanish, y and z follow from x, and G_x = g + H_F x with the second derivative of F,

    H_F = C_x - C_y Y - C_z Z,   Y = H^-1 P_y,   Z = H^-1 (P_z - E Y).

A setting of SPARKLE with momentum, run on this model, takes as many steps as it does on the problem
itself, if that is quadratic and the network mixes fast. Everything is NumPy: nothing is compiled,
and hundreds of settings are rows of the same arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

LIMIT = 20_000  # steps of a race
EVERY = 4  # steps between two looks at who has arrived


class Settings(NamedTuple):
    """Of each setting: step sizes of x, and of y and z, and the momentum of y and z."""

    alpha: np.ndarray
    gamma: np.ndarray
    momentum: np.ndarray

    def rows(self, which: np.ndarray) -> Settings:
        return Settings(*(field[which] for field in self))


@dataclass(frozen=True)
class LinearModel:
    """The matrices of the module's docstring, and where y and z start."""

    C_x: np.ndarray
    C_y: np.ndarray
    C_z: np.ndarray
    P_y: np.ndarray
    P_z: np.ndarray
    H: np.ndarray
    E: np.ndarray
    g: np.ndarray
    y_start: np.ndarray
    z_start: np.ndarray

    @classmethod
    def of_jacobian(
        cls, B: np.ndarray, g: np.ndarray, y_start: np.ndarray, z_start: np.ndarray
    ) -> LinearModel:
        """From the Jacobian of (G_x, G_y, G_z) by (x, y, z)."""
        cut = g.size, g.size + y_start.size
        (C_x, C_y, C_z), (P_y, H, _), (P_z, E, _) = (
            np.split(rows, cut, axis=1) for rows in np.split(B, cut)
        )
        return cls(C_x, C_y, C_z, P_y, P_z, (H + H.T) / 2, E, g, y_start, z_start)

    @cached_property
    def followers(self) -> tuple[np.ndarray, np.ndarray]:
        """Y and Z."""
        Y = np.linalg.solve(self.H, self.P_y)
        return Y, np.linalg.solve(self.H, self.P_z - self.E @ Y)

    @cached_property
    def outer_hessian(self) -> np.ndarray:
        """H_F, symmetric but for rounding and for what the solutions at x0 lack in accuracy."""
        Y, Z = self.followers
        found = self.C_x - self.C_y @ Y - self.C_z @ Z
        return (found + found.T) / 2

    @property
    def gain(self) -> float:
        """F(x0) - F*."""
        return float(self.g @ np.linalg.solve(self.outer_hessian, self.g) / 2)

    def slope(self, x: np.ndarray, G_x: np.ndarray) -> np.ndarray:
        """|grad F|, or what x still moves by if that is more: an x that swings through the solution
        has not arrived."""
        exact = np.linalg.norm(self.g + x @ self.outer_hessian, axis=1)
        return np.maximum(exact, np.linalg.norm(G_x, axis=1))

    def effect_on_gradient(self, y_error: np.ndarray, z_error: np.ndarray) -> np.ndarray:
        """The change of grad F if G_y and G_z are off by so much; one row an error."""
        y = -np.linalg.solve(self.H, y_error.T)
        z = np.linalg.solve(self.H, -z_error.T - self.E @ y)
        return (self.C_y @ y + self.C_z @ z).T

    def race(self, settings: Settings, share: float, spare: float, least: float) -> np.ndarray:
        """The steps that each setting takes until |grad F| has fallen to a `share` of its start.

        It is infinite for those that diverge, and for those that have not arrived when the first
        one arrived `spare` times as long ago, or after `least` steps if that is later.
        """
        steps = np.full(len(settings.alpha), np.inf)
        racing, limit = np.arange(steps.size), float(LIMIT)
        x = np.zeros((steps.size, self.g.size))
        y, z = (np.tile(start, (steps.size, 1)) for start in (self.y_start, self.z_start))
        b_y, b_z = np.zeros_like(y), np.zeros_like(z)
        size, target = np.linalg.norm(self.g), share * np.linalg.norm(self.g)
        now = settings
        for step in range(1, LIMIT + 1):
            alpha, gamma, m = (field[:, None] for field in now)
            b_y = m * b_y + y @ self.H.T + x @ self.P_y.T
            y = y - gamma * b_y
            b_z = m * b_z + z @ self.H.T + y @ self.E.T + x @ self.P_z.T
            z = z - gamma * b_z
            G_x = self.g + x @ self.C_x.T + y @ self.C_y.T + z @ self.C_z.T
            x = x - alpha * G_x
            if step % EVERY:
                continue
            gradient = self.slope(x, G_x)
            arrived = gradient <= target
            steps[racing[arrived]] = step
            if arrived.any() and limit == LIMIT:
                limit = max(spare * step, least)
            on = ~arrived & (gradient < 1e6 * size) & (np.abs(y).max(axis=1) < 1e100)
            if not on.any() or step >= limit:
                break
            if not on.all():
                racing, now = racing[on], now.rows(on)
                x, y, z, b_y, b_z = (part[on] for part in (x, y, z, b_y, b_z))
        return steps
