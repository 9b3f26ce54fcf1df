"""Data hyper-cleaning: agents with wrong labels learn together which of their examples to trust.

Each agent has training examples. A share of them, from none to most, is labelled as the next class;
nobody knows which. x has one number for every training example of the network, with weight
sigmoid(x_i). y is a softmax classifier. The inner problem trains y on the weighted examples; the
outer one measures y on a few validation examples with good labels:

    g_k(x, y) = mean over agent k's training examples of sigmoid(x_i) loss(y; i) + c/2 |y|^2
    f_k(x, y) = mean over agent k's validation examples of loss(y; i)

python examples/hyper_cleaning.py                  Fashion-MNIST if it is installed, or digits
python examples/hyper_cleaning.py --small          digits
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jax.flatten_util import ravel_pytree

import hobnob as hb
from _compare import compare, cross_entropy, curves, figure, matrix_free, options, save, table
from hobnob.problems.images import load

AGENTS, CLASSES, DECAY = 8, 10, 1e-3
SHARES = np.linspace(0, 0.7, AGENTS)  # of wrong labels, by agent


def losses(y, batch):
    """The cross-entropy of each example."""
    return cross_entropy(batch["image"] @ y["matrix"] + y["shift"], batch["label"])


def outer(x, y, batch):
    return jnp.mean(losses(y, batch))


def inner(x, y, batch):
    decay = DECAY / 2 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
    return jnp.mean(jax.nn.sigmoid(x[batch["place"]]) * losses(y, batch)) + decay


def accuracy(y, pixels, labels):
    return float(np.mean(np.argmax(pixels @ y["matrix"] + y["shift"], axis=1) == labels))


def trained(start, weights, batch):
    """The classifier for given weights, trained on all data in one place, for comparison."""
    flat, shaped = ravel_pytree(start)

    @jax.jit
    def loss(flat):
        y = shaped(flat)
        return jnp.mean(weights * losses(y, batch)) + DECAY / 2 * jnp.sum(flat**2)

    found = scipy.optimize.minimize(
        jax.value_and_grad(loss), flat, jac=True, method="L-BFGS-B", options={"maxiter": 150}
    )
    return jax.tree.map(np.asarray, shaped(jnp.asarray(found.x, flat.dtype)))


def main() -> None:
    chosen = options(__doc__)

    # Each agent has training examples with some wrong labels, and good validation examples.
    images = load("digits" if chosen.small else chosen.data)
    digits = images.title == "digits"
    training, validation = (120, 50) if digits else (2500, 125)
    rng = np.random.default_rng(0)
    pixels, good = images.pixels - 0.3, images.labels
    place = np.arange(AGENTS * training).reshape(AGENTS, training)
    labels = good[place].copy()
    wrong = np.zeros(place.shape, bool)
    for k, share in enumerate(SHARES):
        flipped = rng.permutation(training)[: round(share * training)]
        labels[k, flipped] = (labels[k, flipped] + 1) % CLASSES
        wrong[k, flipped] = True
    inner_data = [
        {"image": pixels[p], "label": t, "place": p.astype(np.int32)}
        for p, t in zip(place, labels, strict=True)
    ]
    rest = place.size + np.arange(AGENTS * validation).reshape(AGENTS, validation)
    outer_data = [{"image": pixels[p], "label": good[p]} for p in rest]

    x0 = np.zeros(place.size, np.float32)
    y0 = {
        "matrix": np.zeros((pixels.shape[1], CLASSES), np.float32),
        "shift": np.zeros(CLASSES, np.float32),
    }
    problem = hb.Problem(outer, inner, x0, y0, outer_data, inner_data, batch_size=32)
    print(f"{problem} on {images.title}, wrong labels: {wrong.mean():.0%}")

    test = images.test_pixels - 0.3, images.test_labels

    def test_error(view):
        y = jax.tree.map(np.asarray, view.y)
        return 100 * (1 - accuracy(y, *test))

    steps = chosen.steps or (1000 if digits else 2000)
    methods = matrix_free(gamma=0.2 if digits else 0.1)
    methods = {name: methods[name] for name in chosen.methods or methods}
    alphas = chosen.alpha or [a * place.size for a in (0.05, 0.2, 0.8)]
    metrics = ["outer_loss", "consensus", test_error]
    seeds = list(range(1, 1 + chosen.seeds))
    results = compare(problem, hb.ring(AGENTS), methods, alphas, 64 * steps, metrics, seeds)

    # The learnt weights, by agent.
    best = min(results, key=lambda name: np.median(results[name].history["test_error"][:, -1]))
    weights = jax.nn.sigmoid(results[best].x[0]).reshape(place.shape)
    for k, share in enumerate(SHARES):
        of_good = weights[k, ~wrong[k]].mean()
        of_wrong = weights[k, wrong[k]].mean() if share else np.nan
        print(f"agent {k}, {share:.0%} wrong: {of_good:.3f} for good, {of_wrong:.3f} for wrong")
    trusted, suspected = weights[~wrong], weights[wrong]
    print(f"mean weight by {best}: {trusted.mean():.3f} for good, {suspected.mean():.3f} for wrong")
    apart = np.mean(trusted[:, None] > rng.choice(suspected, 1000))
    print(f"a good example weighs more than a wrong one in {apart:.1%} of all pairs")

    # The benefit: classifiers trained on all data in one place.
    pool = {"image": pixels[place.ravel()], "label": labels.ravel()}
    held_out = {"image": pixels[rest.ravel()], "label": good[rest.ravel()]}
    for title, batch, weight in (
        ("all examples weigh the same", pool, 0.5 * np.ones(place.size, np.float32)),
        (f"the weights that {best} found", pool, weights.ravel()),
        ("wrong examples left out", pool, (~wrong).ravel().astype(np.float32)),
        ("validation examples alone", held_out, np.ones(rest.size, np.float32)),
    ):
        y = trained(y0, weight, batch)
        print(f"test accuracy, {title}: {accuracy(y, *test):.1%}")
    print(table(results, "test_error"))

    drawing, (left, *right) = figure(3)
    bins = np.linspace(0, 1, 41)
    left.hist(trusted, bins, color="#0072b2", alpha=0.7, label="good label")
    left.hist(suspected, bins, color="#d55e00", alpha=0.7, label="wrong label")
    left.set_xlabel(f"weight of a training example ({best})")
    left.set_ylabel("examples")
    left.legend(frameon=False, fontsize=9)
    curves(right, results, "test_error", "test error, %")
    save(drawing, chosen.out, "hyper-cleaning.png")


if __name__ == "__main__":
    main()
