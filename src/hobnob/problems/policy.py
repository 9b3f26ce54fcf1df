"""Distributed policy evaluation, the paper's second experiment.

The value of state s is phi_s' x. Agents share one environment but have their own rewards:

    g_k(x, y) = 1/2 sum_s (y_s - r_k(s, s') - discount phi_{s'}' x)^2
    f(x, y)   = 1/(2 |S|) sum_s (phi_s' x - y_s)^2 + regulariser/2 |x|^2

with s' drawn from p(. | s) and r_k(s, s') normal around its mean. So y*(x) = r + discount P Phi x
with r_s = E[mean_k r_k(s, s') | s], and F is the regularised Bellman error: with D = Phi - discount
P Phi,

    F(x)      = |D x - r|^2 / (2 |S|) + regulariser/2 |x|^2
    grad F(x) = D' (D x - r) / |S| + regulariser x

The paper prints y* as the Bellman residual and then inserts it into the residual again; the above
is the consistent reading. The inner Hessian is the identity.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hobnob.analysis.exact import Exact
from hobnob.core.data import Records, Simulator
from hobnob.core.problem import Problem
from hobnob.ground import threefry
from hobnob.ground.errors import ProblemError
from hobnob.problems import _checks
from hobnob.problems._alias import Boxes


class Policy(Problem):
    """Policy evaluation for given features, transition probabilities and mean rewards.

    Args:
        features: [S, m], phi_s in row s.
        transitions: [S, S], row s holds the probabilities of the next state.
        rewards: [K, S, S], each agent's mean rewards of the transitions from s to s'.
        discount, regulariser, reward_noise, noiseless: as in `policy`.
        dtype: the precision to compute in.
        name: for reports.
    """

    compositional = True

    def __init__(
        self,
        features: np.ndarray,
        transitions: np.ndarray,
        rewards: np.ndarray,
        *,
        discount: float = 0.9,
        regulariser: float = 1.0,
        reward_noise: float = 1.0,
        noiseless: bool = False,
        dtype: Any = np.float64,
        name: str = "policy",
    ):
        # Round first, so that the closed form below fits the problem in this precision.
        self.features, self.transitions, self.rewards = (
            np.asarray(a, dtype) for a in (features, transitions, rewards)
        )
        states, m = self.features.shape
        _check_environment(states, self.transitions, self.rewards)
        features, transitions = self.features, self.transitions
        moves = Boxes(transitions)

        def draw(key: jax.Array, mean_rewards: jax.Array) -> dict[str, jax.Array]:
            """One transition from every state, with its reward."""
            precision = mean_rewards.dtype
            move, pay = threefry.split(key)
            nexts = moves.draw(threefry.uniform(move, (states,), precision))
            noise = reward_noise * threefry.normal(pay, (states,), precision)
            return {
                "reward": mean_rewards.ravel()[np.arange(states) * states + nexts] + noise,
                "next_features": jnp.asarray(features, precision)[nexts],
            }

        def inner(x: jax.Array, y: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
            target = batch["reward"] + discount * (batch["next_features"] @ x)
            return jnp.sum((y - target) ** 2) / 2

        def expected_inner(x: jax.Array, y: jax.Array, mean_rewards: jax.Array) -> jax.Array:
            values = jnp.asarray(features, x.dtype) @ x
            residuals = y[:, None] - mean_rewards - discount * values[None, :]
            over_moves = jnp.sum(jnp.asarray(transitions, x.dtype) * residuals**2)
            return (over_moves + states * reward_noise**2) / 2

        def outer(x: jax.Array, y: jax.Array, batch: jax.Array) -> jax.Array:
            return jnp.mean((batch @ x - y[None, :]) ** 2) / 2 + regulariser * (x @ x) / 2

        super().__init__(
            outer,
            inner,
            np.zeros(m, dtype),
            np.zeros(states, dtype),
            # One record, the whole table of features: f is known exactly and never sampled.
            Records([features[None]] * len(self.rewards), batch_size=None, label="features"),
            Simulator(
                list(self.rewards),
                draw,
                expected_inner,
                samples=states,
                noiseless=noiseless,
                label="transitions",
            ),
            name=name,
        )
        wide_features, wide_moves = features.astype(np.float64), transitions.astype(np.float64)
        self._reward = np.sum(wide_moves * self.rewards.mean(0, np.float64), axis=1)
        self._moved = discount * wide_moves @ wide_features
        self._difference = wide_features - self._moved
        self._regulariser = regulariser
        # Least squares, since the matrix is singular for regulariser 0 and few states.
        self.solution, *_ = np.linalg.lstsq(
            self._difference.T @ self._difference / states + regulariser * np.eye(m),
            self._difference.T @ self._reward / states,
        )

    def closed_form(self, x: Any) -> Exact:
        """F(x), its gradient and y*(x), without iterating."""
        x = np.asarray(x, np.float64)
        residual = self._difference @ x - self._reward
        value = residual @ residual / (2 * self.dim_y) + self._regulariser * (x @ x) / 2
        gradient = self._difference.T @ residual / self.dim_y + self._regulariser * x
        return Exact(float(value), gradient, self._reward + self._moved @ x)


def policy(
    agents: int = 5,
    states: int = 100,
    features: int = 10,
    *,
    discount: float = 0.9,
    regulariser: float = 1.0,
    reward_noise: float = 1.0,
    noiseless: bool = False,
    seed: int = 0,
    dtype: str = "float64",
) -> Policy:
    """The paper's random environment: features, transitions and mean rewards are uniform.

    Args:
        agents, states: how many of each.
        features: the dimension m of x. The paper gives neither m nor the discount.
        discount: of the value of the next state, in [0, 1).
        regulariser: the weight of |x|^2 / 2 in f.
        reward_noise: the standard deviation of a reward around its mean.
        noiseless: agents use expectations instead of simulating.
        seed: of the environment.
        dtype: the precision, "float64" or "float32".
    """
    agents, states = _checks.whole("agents", agents), _checks.whole("states", states)
    m = _checks.whole("features", features)
    _checks.number("discount", discount, 0, below=1)
    _checks.number("regulariser", regulariser, 0)
    _checks.number("reward_noise", reward_noise, 0)
    rng = np.random.default_rng(seed)
    phi = rng.uniform(size=(states, m))
    transitions = rng.uniform(size=(states, states))
    return Policy(
        phi,
        transitions / transitions.sum(axis=1, keepdims=True),
        rng.uniform(size=(agents, states, states)),
        discount=discount,
        regulariser=regulariser,
        reward_noise=reward_noise,
        noiseless=noiseless,
        dtype=_checks.precision(dtype),
    )


def _check_environment(states: int, transitions: np.ndarray, rewards: np.ndarray) -> None:
    if transitions.shape != (states, states) or rewards.shape[1:] != (states, states):
        raise ProblemError(
            f"With features for {states} states, transitions must be [{states}, {states}] and "
            f"rewards [agents, {states}, {states}], not {list(transitions.shape)} and "
            f"{list(rewards.shape)}."
        )
    wrong = (transitions < 0).any(axis=1) | ~np.isclose(transitions.sum(axis=1), 1, atol=1e-5)
    if wrong.any():
        state = int(np.argmax(wrong))
        raise ProblemError(
            f"transitions, state {state}: a row must be nonnegative and sum to 1, it sums to "
            f"{transitions[state].sum():.6g} and its smallest entry is "
            f"{transitions[state].min():.6g}."
        )
