"""Five hospitals keep a logistic model each and share one regularisation weight per feature.

Of 30 features six matter, the same six in all hospitals. What each of the six does is alike in all
of them, partly alike, or different. The records are synthetic. Held-out losses are compared with
one model for all, and with hospitals that tune 30 weights alone.

    python examples/own_models.py [SETS]    how many sets of records to average over; 1 by default
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import hobnob as hb

HOSPITALS, FEATURES, MATTER, RECORDS = 5, 30, 6, 60
BOUNDS = np.log(1e-3), np.log(1.0)
OWN = {"alike": 0.0, "partly alike": 0.5, "different": 1.0}


def fit(x, y, batch):
    return jnp.mean(jax.nn.softplus(-batch["t"] * (batch["a"] @ y)))


def regularised(x, y, batch):
    return fit(x, y, batch) + jnp.exp(x) @ y**2 / 2


def regularised_alone(x, y, batch):
    """x has a row for each hospital, so that nothing is shared."""
    return regularised(x[batch["hospital"][0]], y, batch)


def coefficients(rng, own):
    """One row per hospital, of variance 1: what all have in common, and what is its own."""
    common, each = rng.normal(size=MATTER), rng.normal(size=(HOSPITALS, MATTER))
    return np.sqrt(1 - own**2) * common + own * each


def records(rng, truth, count):
    def shard(k):
        a = rng.normal(size=(count, FEATURES))
        score = a[:, :MATTER] @ truth[k] + rng.logistic(size=count) / 2
        return {"a": a, "t": np.where(score > 0, 1.0, -1.0), "hospital": np.full(count, k)}

    return [shard(k) for k in range(HOSPITALS)]


def compared(own, seed):
    """The mean held-out loss of: shared weights, one common model, each hospital alone."""
    rng = np.random.default_rng(seed)
    truth = coefficients(rng, own)
    training, validation = (records(rng, truth, RECORDS) for _ in range(2))
    held_out = records(rng, truth, 4000)
    start, y0 = np.full(FEATURES, -3.0), np.zeros(FEATURES)

    def problem(inner, x0, **kind):
        data = validation, training
        return hb.Problem(fit, inner, x0, y0, *data, batch_size=None, x_bounds=BOUNDS, **kind)

    # Decentralised: each hospital sends its x and a direction for x, and keeps its model.
    lopa = hb.LoPA(alpha=3.0, beta=0.5, gamma=0.5, theta=1.0)
    shares = problem(regularised, start, personal=True)
    together = hb.solve(shares, hb.ring(HOSPITALS), lopa, steps=3000)
    # Both rivals get the best weights that any solver could find.
    common = hb.optimum(problem(regularised, start))
    rows = np.tile(start, (HOSPITALS, 1))
    alone = hb.optimum(problem(regularised_alone, rows, personal=True))
    models = together.y, [common.y] * HOSPITALS, alone.y
    return [
        np.mean([float(fit(None, y, shard)) for y, shard in zip(every, held_out, strict=True)])
        for every in models
    ]


def main() -> None:
    sets = int(sys.argv[1]) if sys.argv[1:] else 1
    print(f"Held-out loss, mean of {HOSPITALS} hospitals and {sets} set(s) of records:")
    for name, own in OWN.items():
        means = np.mean([compared(own, seed) for seed in range(sets)], axis=0)
        shared, common, alone = means
        print(f"{name:13} shared weights {shared:.3f}, one model {common:.3f}, alone {alone:.3f}")


if __name__ == "__main__":
    main()
