"""Five hospitals tune one regularisation weight per measurement, for a model of readmission.

All owners hold the same copy of this file. `read(k)` is the table of agent k, column -> array, and
works only where agent k lives.
"""

import jax
import jax.numpy as jnp
import numpy as np

import hobnob as hb

# Measurement -> (centre, scale). Fixed numbers that all hospitals agreed on: a mean over all
# patients would need all patients in one place.
MEASUREMENTS = {
    "age": (60, 15),
    "bmi": (27, 5),
    "pressure": (130, 20),
    "glucose": (6, 2),
    "creatinine": (90, 30),
    "haemoglobin": (135, 15),
}


def fit(x, y, batch):
    """f, and the data term of g: the logistic loss of the linear model y."""
    return jnp.mean(jax.nn.softplus(-batch["sign"] * (batch["measured"] @ y)))


def regularised(x, y, batch):
    return fit(x, y, batch) + jnp.exp(x) @ y**2 / 2


def problem(read, agents, batch_size=16, seed=0):
    def half(k, which):
        """A hospital's own records: every other one, in a shuffled order, for validation."""
        table = read(k)
        scaled = [(table[name] - c) / s for name, (c, s) in MEASUREMENTS.items()]
        order = np.random.default_rng([seed, k]).permutation(len(table["readmitted"]))[which::2]
        return {
            "measured": np.stack(scaled, axis=1)[order],
            "sign": np.where(table["readmitted"] > 0, 1.0, -1.0)[order],
        }

    d = len(MEASUREMENTS)
    return hb.Problem(
        fit,
        regularised,
        x0=np.full(d, -2.0),
        y0=np.zeros(d),
        outer_data=lambda k: half(k, 1),
        inner_data=lambda k: half(k, 0),
        batch_size=batch_size,
        agents=agents,
        x_bounds=(np.log(1e-3), np.log(10)),
        name="readmission",
        labels=list(MEASUREMENTS),
        readout=np.exp,
        objective_name="validation loss",
    )
