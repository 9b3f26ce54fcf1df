"""7,850 hyper-parameters: a softmax classifier with one weight decay per feature and class.

Agents have few training examples, more validation examples, and mostly a few classes. y is the
classifier, with d numbers; x has equally many, and exp(x_i) is the weight decay of y_i. The inner
problem trains y; the outer one measures it on validation examples:

    g_k(x, y) = mean over agent k's training examples of loss(y) + 1/2 sum_i exp(x_i) y_i^2
    f_k(x, y) = mean over agent k's validation examples of loss(y)

On Fashion-MNIST d_x = d_y = 7,850: a Hessian would have 62 million numbers, a vector has 7,850.

python examples/many_weights.py                  Fashion-MNIST if it is installed, or digits
python examples/many_weights.py --small          digits
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jax.flatten_util import ravel_pytree

import hobnob as hb
from _compare import compare, cross_entropy, curves, figure, matrix_free, options, save, table
from hobnob.problems.images import load

AGENTS, CLASSES, START = 8, 10, 0.01


def outer(x, y, batch):
    scores = batch["image"] @ y["matrix"] + y["shift"]
    return jnp.mean(cross_entropy(scores, batch["label"]))


def inner(x, y, batch):
    decay = jax.tree.map(lambda x, y: jnp.sum(jnp.exp(x) * y**2), x, y)
    return outer(x, y, batch) + sum(jax.tree.leaves(decay)) / 2


def trained(x, y, batch):
    """The classifier for given weights, trained on all data in one place, for comparison."""
    flat, shaped = ravel_pytree(y)
    found = scipy.optimize.minimize(
        jax.jit(jax.value_and_grad(lambda y: inner(x, shaped(y), batch))),
        flat,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 150},
    )
    return shaped(jnp.asarray(found.x, flat.dtype))


def main() -> None:
    chosen = options(__doc__)

    # Each agent's records, roughly sorted by class: a few for training, more for validation.
    images = load("digits" if chosen.small else chosen.data)
    digits = images.title == "digits"
    few, each = (40, 160) if digits else (125, 1125)
    rng, count = np.random.default_rng(0), AGENTS * each
    pixels, labels = images.pixels[:count] - 0.3, images.labels[:count]
    place = np.argsort(labels + rng.uniform(0, CLASSES, count)).reshape(AGENTS, each)
    shards = [{"image": pixels[p], "label": labels[p]} for p in rng.permuted(place, axis=1)]
    training, validation = (
        [{name: part[half] for name, part in shard.items()} for shard in shards]
        for half in (slice(few), slice(few, None))
    )
    y0 = {
        "matrix": np.zeros((pixels.shape[1], CLASSES), np.float32),
        "shift": np.zeros(CLASSES, np.float32),
    }
    x0 = jax.tree.map(lambda leaf: np.full_like(leaf, np.log(START)), y0)
    bounds = np.log([1e-4, 1])
    problem = hb.Problem(outer, inner, x0, y0, validation, training, 16, x_bounds=tuple(bounds))
    print(f"{problem} on {images.title}, {few} training, {each - few} validation examples each")

    test = {"image": images.test_pixels - 0.3, "label": images.test_labels}

    def test_loss(view):
        return outer(view.x, view.y, test)

    methods = matrix_free(gamma=0.1 if digits else 0.05)
    if digits:  # small enough for matrices
        methods["DSBO"] = lambda alpha: hb.DSBO(
            alpha=alpha, beta=0.1, gamma=0.1, terms=5, smoothness=5.0, strong_convexity=0.1
        )
    methods = {name: methods[name] for name in chosen.methods or methods}
    steps = chosen.steps or 2000
    alphas = chosen.alpha or [a * problem.dim_x for a in (0.1, 0.5)]
    metrics = ["outer_loss", "consensus", test_loss]
    seeds = list(range(1, 1 + chosen.seeds))
    results = compare(problem, hb.ring(AGENTS), methods, alphas, 32 * steps, metrics, seeds)

    # Compare 7,850 weights with the best single one, on all data in one place.
    pool, checked = (
        {name: np.concatenate([shard[name] for shard in part]) for name in ("image", "label")}
        for part in (training, validation)
    )
    single = {}
    for weight in np.geomspace(1e-3, 1, 7):
        same = jax.tree.map(lambda leaf, w=weight: np.full_like(leaf, np.log(w)), y0)
        single[weight] = trained(same, y0, pool)
    weight = min(single, key=lambda w: float(outer(None, single[w], checked)))
    same = jax.tree.map(lambda leaf: np.full_like(leaf, np.log(weight)), y0)
    both = {name: np.concatenate([pool[name], checked[name]]) for name in pool}
    best = min(results, key=lambda name: np.median(results[name].history["test_loss"][:, -1]))
    first = jax.tree.map(lambda leaf: leaf[0], (results[best].x, results[best].y))
    for title, y in (
        (f"the start, {START:g} for all", trained(x0, y0, pool)),
        (f"the best single weight, {weight:.3g}", single[weight]),
        ("that weight, trained on the validation examples, too", trained(same, y0, both)),
        (f"{best}'s weights, its own y", first[1]),
        (f"{best}'s weights, trained in one place", trained(first[0], y0, pool)),
    ):
        right = np.mean(np.argmax(test["image"] @ y["matrix"] + y["shift"], 1) == test["label"])
        print(f"{title}: test loss {float(outer(None, y, test)):.4f}, accuracy {right:.1%}")
    print(table(results, "test_loss"))

    # The weights as images: which pixels each class uses.
    drawing, (left, *right) = figure(3)
    side = int(np.sqrt(pixels.shape[1]))
    maps = np.asarray(first[0]["matrix"]).T.reshape(2, 5, side, side) / np.log(10)
    mosaic = maps.transpose(0, 2, 1, 3).reshape(2 * side, 5 * side)
    drawn = left.imshow(mosaic, cmap="viridis_r")
    left.set_xticks(side * np.arange(5) + side / 2, [f"{c}, {c + 5}" for c in range(5)])
    left.set_yticks([])
    left.set_xlabel("class, above and below")
    drawing.colorbar(drawn, ax=left, shrink=0.6, label=f"log10 of the weight ({best})")
    curves(right, results, "test_loss", "test loss")
    save(drawing, chosen.out, "many-weights.png")


if __name__ == "__main__":
    main()
