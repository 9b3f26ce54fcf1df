"""Your own problem: ridge weights, one per feature, tuned by agents with 10 to 80 records each.

The README has it in ten lines.
"""

import jax.numpy as jnp
import numpy as np

import hobnob as hb


def main() -> None:
    rng, truth = np.random.default_rng(0), np.array([2.0, -1.0, 0.5, 0.0, 0.0])

    def shard(records):
        a = rng.normal(size=(records, 5))
        return {"a": a, "t": a @ truth + rng.normal(size=records)}

    def outer(x, y, batch):  # the validation loss of a linear model y
        return jnp.mean((batch["a"] @ y - batch["t"]) ** 2) / 2

    def inner(x, y, batch):  # its training loss, with a ridge weight exp(x_i) for feature i
        return outer(x, y, batch) + jnp.exp(x) @ y**2 / 2

    sizes = [10, 20, 40, 80]  # records of each agent
    validation, training = ([shard(n) for n in sizes] for _ in range(2))
    problem = hb.Problem(
        outer, inner, np.zeros(5), np.zeros(5), validation, training, batch_size=5, x_bounds=(-6, 6)
    )
    dsbo = hb.DSBO(alpha=0.1, beta=0.1, gamma=0.05, terms=20, smoothness=5.0, strong_convexity=0.5)
    result = hb.solve(problem, hb.ring(4), dsbo, steps=5000, seed=0)
    print(result)
    print("weights:", np.exp(result.x).round(3))
    print("best F with all data in one place:", round(hb.optimum(problem).value, 4))


if __name__ == "__main__":
    main()
