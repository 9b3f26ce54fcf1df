"""Hyper-representation: agents with different tasks jointly learn one network of features.

A task is to tell three classes apart. Each agent has two tasks of its own, and no two agents have
the same data. x is a small network, shared by all, that turns an image into features; y holds a
linear head for every task. The inner problem trains the heads on the features; the outer one
improves the features by the heads' loss on validation examples:

    g_k(x, y) = mean over agent k's training examples of loss(y_task; features(x)) + c/2 |y|^2
    f_k(x, y) = mean over agent k's validation examples of loss(y_task; features(x))

The features are tested on new tasks, learnt from a few examples: tasks of the same classes, and
tasks of three classes that no agent has seen.

python examples/hyper_representation.py                  Fashion-MNIST if installed, or digits
python examples/hyper_representation.py --small          digits
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

import hobnob as hb
from _compare import compare, cross_entropy, curves, figure, matrix_free, options, save, table
from hobnob.problems.images import load

AGENTS, TASKS, WAYS, DECAY = 8, 16, 3, 0.01
SEEN, NEW = np.arange(7), np.arange(7, 10)  # classes


def features(x, images):
    """A network in plain JAX; docs/tutorials/hyper-representation.md has Flax and Equinox ones."""
    *hidden, last = x
    for layer in hidden:
        images = jnp.tanh(images @ layer["matrix"] + layer["shift"])
    return jnp.tanh(images @ last["matrix"] + last["shift"])


def scores(x, y, batch):
    head = jax.tree.map(lambda leaf: leaf[batch["task"]], y)  # the head of each example's task
    return jnp.einsum("nf,nfc->nc", features(x, batch["image"]), head["matrix"]) + head["shift"]


def outer(x, y, batch):
    return jnp.mean(cross_entropy(scores(x, y, batch), batch["label"]))


def inner(x, y, batch):
    return outer(x, y, batch) + DECAY / 2 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))


def few_shot(vectors, labels, classes, shots, rounds=50):
    """The accuracy of the nearest mean of a few examples, in tasks of three of these classes."""
    rng, right = np.random.default_rng(0), []
    for _ in range(rounds):
        task = rng.choice(classes, WAYS, replace=False)
        groups = [rng.permutation(np.flatnonzero(labels == c))[: shots + 50] for c in task]
        means = np.stack([vectors[group[:shots]].mean(axis=0) for group in groups])
        for number, group in enumerate(groups):
            distance = ((vectors[group[shots:], None] - means) ** 2).sum(axis=-1)
            right.append(np.mean(distance.argmin(axis=1) == number))
    return float(np.mean(right))


def main() -> None:
    chosen = options(__doc__)
    images = load("digits" if chosen.small else chosen.data)
    digits = images.title == "digits"
    widths = (16, 8) if digits else (32, 16)
    training, validation = (20, 20) if digits else (100, 100)  # examples per task
    rng = np.random.default_rng(0)
    tasks = [rng.choice(SEEN, WAYS, replace=False) for _ in range(TASKS)]

    def records(pixels, labels, task, count):
        """Examples of one task: its classes become 0, 1, 2."""
        rows = rng.permutation(np.flatnonzero(np.isin(labels, tasks[task])))[:count]
        label = np.argmax(labels[rows, None] == tasks[task], axis=1).astype(np.int32)
        number = np.full(len(rows), task, np.int32)
        return {"image": pixels[rows] - 0.3, "label": label, "task": number}

    def joined(parts):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def shards(count):
        made = [records(images.pixels, images.labels, task, count) for task in range(TASKS)]
        return [joined(made[k::AGENTS]) for k in range(AGENTS)]  # agent k: tasks k and k + 8

    sizes = (images.pixels.shape[1], *widths)
    x0 = [
        {
            "matrix": rng.normal(size=(a, b), scale=a**-0.5).astype(np.float32),
            "shift": np.zeros(b, np.float32),
        }
        for a, b in pairwise(sizes)
    ]
    y0 = {
        "matrix": np.zeros((TASKS, widths[-1], WAYS), np.float32),
        "shift": np.zeros((TASKS, WAYS), np.float32),
    }
    problem = hb.Problem(outer, inner, x0, y0, shards(validation), shards(training), batch_size=16)
    print(f"{problem} on {images.title}, {training} training examples a task")

    test = joined(
        [records(images.test_pixels, images.test_labels, task, 500) for task in range(TASKS)]
    )

    def test_error(view):
        found = np.argmax(scores(view.x, view.y, test), axis=1)
        return 100 * float(np.mean(found != test["label"]))

    methods = matrix_free(gamma=0.5 if digits else 0.3)
    if digits:  # small enough for matrices
        methods["DSBO"] = lambda alpha: hb.DSBO(
            alpha=alpha, beta=0.2, gamma=0.5, terms=10, smoothness=1.0, strong_convexity=DECAY
        )
    methods = {name: methods[name] for name in chosen.methods or methods}
    steps = chosen.steps or 2000
    alphas = chosen.alpha or [0.3, 1.0]
    metrics = ["outer_loss", "consensus", test_error]
    seeds = list(range(1, 1 + chosen.seeds))
    results = compare(problem, hb.ring(AGENTS), methods, alphas, 32 * steps, metrics, seeds)
    print(table(results, "test_error"))

    # Compare the features on new tasks with the initial features and with the pixels.
    best = min(results, key=lambda name: np.median(results[name].history["test_error"][:, -1]))
    learnt = jax.tree.map(lambda leaf: leaf[0], results[best].x)
    pixels = images.test_pixels - 0.3
    spaces = {
        f"features learnt by {best}": np.asarray(features(learnt, pixels)),
        "features of the start": np.asarray(features(x0, pixels)),
        "pixels": pixels,
    }
    shots, right = [1, 2, 5, 10, 20], {}
    for kind, classes in {"new tasks": SEEN, "new classes": NEW}.items():
        for title, vectors in spaces.items():
            shares = [few_shot(vectors, images.test_labels, classes, n) for n in shots]
            right[kind, title] = 100 * np.array(shares)
            shown = ", ".join(f"{n}: {s:.1%}" for n, s in zip(shots, shares, strict=True))
            print(f"{kind}, right by examples of a class, {title}: {shown}")

    drawing, (left, *others) = figure(3)
    for title, style in zip(spaces, ("o-", "s--", "^:"), strict=True):
        left.plot(shots, right["new tasks", title], style, label=title)
    left.set_xscale("log")
    left.set_xticks(shots, [str(n) for n in shots])
    left.minorticks_off()
    left.set_xlabel("examples of each class of a new task")
    left.set_ylabel("right, %")
    left.grid(alpha=0.3)
    left.legend(frameon=False, fontsize=9)
    curves(others, results, "test_error", "test error of the tasks, %")
    save(drawing, chosen.out, "hyper-representation.png")


if __name__ == "__main__":
    main()
