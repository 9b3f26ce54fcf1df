"""Five hospitals with 90 to 9,000 records tune one regularisation weight over an irregular network.

The records are synthetic. Each hospital keeps its own: half for training, half for validation. The
messages are computed from records; docs/explanation/what-is-sent.md says what they reveal.
"""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
from sklearn.linear_model import LogisticRegression

import hobnob as hb

HOSPITALS = {"Alder": 90, "Birch": 300, "Cedar": 900, "Doveton": 3000, "Elm": 9000}
LINKS = [("Alder", "Cedar"), ("Birch", "Cedar"), ("Cedar", "Elm"), ("Doveton", "Elm")]


def fit(x, y, batch):
    return jnp.mean(jax.nn.softplus(-batch["t"] * (batch["a"] @ y)))


def regularised(x, y, batch):
    return fit(x, y, batch) + jnp.exp(x["log_weight"]) * jnp.sum(y**2) / 2


def alone(training, validation):
    """The best of 20 weights on the hospital's own validation records, without a network."""
    models = (
        LogisticRegression(C=1 / (w * len(training["t"])), fit_intercept=False).fit(
            *training.values()
        )
        for w in np.geomspace(1e-3, 7, 20)
    )
    return min((m.coef_[0] for m in models), key=lambda y: float(fit(None, y, validation)))


def main() -> None:
    rng = np.random.default_rng(1)
    truth, centres = rng.normal(size=20) / 2, rng.normal(size=(5, 20)) / 4

    def records(count, centre):  # patients differ from place to place
        a = rng.normal(size=(count, 20)) + centre
        return {"a": a, "t": np.where(a @ truth + rng.logistic(size=count) > 0, 1.0, -1.0)}

    sizes = list(zip(HOSPITALS.values(), centres, strict=True))
    training, validation = ([records(n // 2, centre) for n, centre in sizes] for _ in range(2))
    held_out = [records(2000, centre) for centre in centres]

    graph = nx.Graph()
    graph.add_nodes_from(HOSPITALS)  # first, so that agent k is hospital k
    graph.add_edges_from(LINKS)
    start, bounds = {"log_weight": np.array(-1.0)}, (np.log(1e-3), np.log(7))
    problem = hb.Problem(
        fit, regularised, start, np.zeros(20), validation, training, 8, x_bounds=bounds
    )
    slower = hb.schedules.capped(0.1, 50)  # min(0.1, 50 / t)
    dsbo = hb.DSBO(
        alpha=0.5, beta=slower, gamma=slower, terms=20, smoothness=3.0, strong_convexity=0.1
    )
    together = hb.solve(problem, graph, dsbo, steps=3000, metrics=["consensus"])
    print(f"{together.message} Weight {np.exp(together.x['log_weight']):.3f} for all.")
    for k, (name, count) in enumerate(HOSPITALS.items()):
        models = alone(training[k], validation[k]), together.y
        own, shared = (float(fit(None, y, held_out[k])) for y in models)
        print(f"{name:8}{count:5} records, held-out loss: alone {own:.3f}, together {shared:.3f}")


if __name__ == "__main__":
    main()
