"""Problems from machine learning: ridge weights, hyper-cleaning, hyper-representation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sklearn.datasets

import hobnob as hb
from hobnob.problems.images import load

CLASSES, DECAY = 10, 1e-3
WAYS, WIDTH, HEAD_DECAY = 3, 4, 0.01  # of hyper-representation

Batch = dict[str, jax.Array]


def ridge(data: str, agents: int, batch_size: int | None, seed: int) -> hb.Problem:
    """One ridge weight exp(x_i) per feature of a regression set; y is a matrix, target by target.

    g is the mean of |a'y - t|^2 / 2 over training records plus sum_i exp(x_i) |y_i|^2 / 2, f the
    same over validation records without the weights. Features and targets are standardised.
    """
    found = getattr(sklearn.datasets, f"load_{data}")()
    order = np.random.default_rng(seed).permutation(len(found.data))
    features, targets = (
        ((a - a.mean(axis=0)) / a.std(axis=0))[order]
        for a in (found.data, found.target.reshape(len(found.data), -1))
    )

    def outer(x: jax.Array, y: jax.Array, batch: Batch) -> jax.Array:
        return jnp.mean(jnp.sum((batch["features"] @ y - batch["target"]) ** 2, axis=1)) / 2

    def inner(x: jax.Array, y: jax.Array, batch: Batch) -> jax.Array:
        return outer(x, y, batch) + jnp.exp(x) @ jnp.sum(y**2, axis=1) / 2

    def shards(part: slice) -> list[dict[str, np.ndarray]]:
        both = (np.array_split(a[part], agents) for a in (features, targets))
        return [{"features": a, "target": t} for a, t in zip(*both, strict=True)]

    dim, half, most = features.shape[1], len(features) // 2, np.log(1e4)
    return hb.Problem(
        outer,
        inner,
        np.zeros(dim),
        np.zeros((dim, targets.shape[1])),
        shards(slice(half, None)),
        shards(slice(half)),
        batch_size,
        x_bounds=(-most, most),
        name=f"ridge ({data})",
    )


def cleaning(
    agents: int, training: int, validation: int, batch_size: int, seed: int, coarse: bool = False
) -> hb.Problem:
    """Hyper-cleaning of digits, as in examples/hyper_cleaning.py: x weighs each training example.

    Agents have from none to 70 % wrong labels. `coarse` halves each side of the images, so that
    exact F is affordable, and computes in float64.
    """
    images = load("digits", seed)
    pixels, good = images.pixels - np.float32(0.3), images.labels
    if coarse:
        pixels = pixels.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16).astype(float)
    rng = np.random.default_rng(seed)
    place = np.arange(agents * training).reshape(agents, training)
    labels = good[place].copy()
    for k, share in enumerate(np.linspace(0, 0.7, agents)):
        flipped = rng.permutation(training)[: round(share * training)]
        labels[k, flipped] = (labels[k, flipped] + 1) % CLASSES

    def losses(y: dict[str, jax.Array], batch: Batch) -> jax.Array:
        return _cross_entropy(batch["image"] @ y["matrix"] + y["shift"], batch["label"])

    def outer(x: jax.Array, y: dict[str, jax.Array], batch: Batch) -> jax.Array:
        return jnp.mean(losses(y, batch))

    def inner(x: jax.Array, y: dict[str, jax.Array], batch: Batch) -> jax.Array:
        return jnp.mean(jax.nn.sigmoid(x[batch["place"]]) * losses(y, batch)) + _decay(y, DECAY)

    rest = place.size + np.arange(agents * validation).reshape(agents, validation)
    return hb.Problem(
        outer,
        inner,
        np.zeros(place.size, pixels.dtype),
        {
            "matrix": np.zeros((pixels.shape[1], CLASSES), pixels.dtype),
            "shift": np.zeros(CLASSES, pixels.dtype),
        },
        [{"image": pixels[p], "label": good[p]} for p in rest],
        [
            {"image": pixels[p], "label": t, "place": p.astype(np.int32)}
            for p, t in zip(place, labels, strict=True)
        ],
        batch_size,
        name="hyper-cleaning",
    )


def representation(agents: int, examples: int, batch_size: int, seed: int) -> hb.Problem:
    """Hyper-representation of digits: x is a layer of features, y a linear head for each agent.

    An agent has one task, to tell three classes apart, and `examples` of it to train and as many
    to validate.
    """
    images = load("digits", seed)
    rng = np.random.default_rng(seed)
    pixels = (images.pixels - 0.3).astype(float)

    def scores(x: Any, y: Any, batch: Batch) -> jax.Array:
        features = jnp.tanh(batch["image"] @ x["matrix"] + x["shift"])
        head = jax.tree.map(lambda leaf: leaf[batch["task"]], y)
        return jnp.einsum("nf,nfc->nc", features, head["matrix"]) + head["shift"]

    def outer(x: Any, y: Any, batch: Batch) -> jax.Array:
        return jnp.mean(_cross_entropy(scores(x, y, batch), batch["label"]))

    def inner(x: Any, y: Any, batch: Batch) -> jax.Array:
        return outer(x, y, batch) + _decay(y, HEAD_DECAY)

    def records(task: int, classes: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
        label = np.argmax(images.labels[rows, None] == classes, axis=1).astype(np.int32)
        number = np.full(len(rows), task, np.int32)
        return {"image": pixels[rows], "label": label, "task": number}

    training, validation = [], []
    for task in range(agents):
        classes = rng.choice(CLASSES, WAYS, replace=False)
        rows = rng.permutation(np.flatnonzero(np.isin(images.labels, classes)))
        training.append(records(task, classes, rows[:examples]))
        validation.append(records(task, classes, rows[examples : 2 * examples]))
    dim = pixels.shape[1]
    return hb.Problem(
        outer,
        inner,
        {"matrix": rng.normal(size=(dim, WIDTH), scale=dim**-0.5), "shift": np.zeros(WIDTH)},
        {"matrix": np.zeros((agents, WIDTH, WAYS)), "shift": np.zeros((agents, WAYS))},
        validation,
        training,
        batch_size,
        name="hyper-representation",
    )


def _cross_entropy(scores: jax.Array, labels: jax.Array) -> jax.Array:
    right = jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - right


def _decay(y: Any, weight: float) -> jax.Array:
    return weight / 2 * sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(y)), jnp.zeros(()))
