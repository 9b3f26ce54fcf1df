"""Memory and time per step of a run with a million inner parameters or more.

Eight agents clean data (a weight per training example as x) for a network of 784-1024-200-10 as y,
in float32, on random images, since only sizes matter here.

python benchmarks/large_y.py                    D-SOBA
python benchmarks/large_y.py sparkle 4096 1000  another method, and other hidden layers
"""

import resource
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import hobnob as hb
from hobnob.core.setup import Setup
from hobnob.run.run import Run

AGENTS, EXAMPLES, PIXELS, CLASSES, BATCH, STEPS = 8, 500, 784, 10, 32, 5


def losses(y, batch):
    h = batch["image"]
    for layer in y[:-1]:
        h = jnp.tanh(h @ layer["matrix"] + layer["shift"])
    scores = jax.nn.log_softmax(h @ y[-1]["matrix"] + y[-1]["shift"])
    return -jnp.take_along_axis(scores, batch["label"][:, None], axis=1)[:, 0]


def outer(x, y, batch):
    return jnp.mean(losses(y, batch))


def inner(x, y, batch):
    decay = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
    return jnp.mean(jax.nn.sigmoid(x[batch["place"]]) * losses(y, batch)) + 1e-3 * decay


def resident() -> float:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Peak:
    """The peak memory of the process inside the context, sampled every millisecond."""

    def __enter__(self):
        self.start = self.most = resident()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.done.wait(0.001):
            self.most = max(self.most, resident())

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


def main() -> None:
    name, *hidden = sys.argv[1:] or ["dsoba"]
    sizes = PIXELS, *map(int, hidden or (1024, 200)), CLASSES
    rng = np.random.default_rng(0)

    def shard(k):
        return {
            "image": rng.random((EXAMPLES, PIXELS), np.float32),
            "label": rng.integers(0, CLASSES, EXAMPLES, dtype=np.int32),
            "place": np.arange(k * EXAMPLES, (k + 1) * EXAMPLES, dtype=np.int32),
        }

    y0 = [
        {
            "matrix": rng.normal(size=(a, b), scale=a**-0.5).astype(np.float32),
            "shift": np.zeros(b, np.float32),
        }
        for a, b in pairwise(sizes)
    ]
    x0 = np.zeros(AGENTS * EXAMPLES, np.float32)
    shards = [shard(k) for k in range(AGENTS)]
    problem = hb.Problem(outer, inner, x0, y0, shards, shards, BATCH)
    algorithm = hb.algorithms.get(name).suggest(hb.Scale(20.0, 0.01))
    with problem.precision():
        setup = Setup(problem, hb.ring(AGENTS), algorithm.bind(AGENTS, STEPS))
        run = Run.start(hb.Simulate(), setup)
        kinds = jax.tree.leaves(run.shapes)
    state = sum(kind.size * kind.dtype.itemsize for kind in kinds)
    del run

    jax.block_until_ready(jnp.zeros(1) + 1)  # start JAX before the first measurement
    clock = time.perf_counter()
    with Peak() as peak:
        result = hb.solve(
            problem, hb.ring(AGENTS), algorithm, steps=STEPS, record_every=STEPS,
            metrics=["consensus", "outer_loss"],
        )  # fmt: skip
    used = peak.most - peak.start
    print(f"{name}: {problem}, {EXAMPLES * AGENTS * PIXELS * 4 / 1e6:.0f} MB of images")
    print(
        f"state {state / 1e6:.0f} MB; at most {used / 1e6:.0f} MB above the start, "
        f"{used / state:.1f} times the state"
    )
    print(
        f"{result.history['seconds'][-1] / STEPS * 1e3:.0f} ms a step, compilation "
        f"{result.compile_seconds:.0f} s, {time.perf_counter() - clock:.0f} s in all, "
        f"{result.ledger['bytes'][0] / STEPS / 1e6:.1f} MB sent a step"
    )


if __name__ == "__main__":
    main()
