"""Draw docs/images/demo.png: what `hobnob demo` did, in two of the pictures of its own page.

hobnob demo --out runs/picture
python docs/images/make.py runs/picture
"""

import csv
import io
import sys
from pathlib import Path

import matplotlib.image
import numpy as np

import hobnob as hb
from hobnob.report import convergence, network_map


def main(run: Path) -> None:
    rows = list(csv.DictReader((run / "history.csv").open()))
    steps, loss = (np.array([float(r[c]) for r in rows]) for c in ("step", "objective"))
    x = np.load(run / "final.npz")["agents['x']"]
    best = hb.optimum(hb.problems.get("hyperopt")("breast_cancer", 8)).value
    curve = convergence(
        {"DSBO": (steps, loss)}, "steps", "validation loss", reference=(best, "best centralised")
    )
    ring = hb.ring(8).graph
    sent = float(rows[-1]["bytes"])  # by an agent to its two neighbours: as much as a link carried
    links = network_map(
        ring, np.linalg.norm(x - x.mean(axis=0), axis=1), dict.fromkeys(ring.edges, sent)
    )
    left, right = (matplotlib.image.imread(io.BytesIO(p.png(110))) for p in (curve, links))
    height = max(left.shape[0], right.shape[0])
    canvas = np.tile(left[0, 0], (height, left.shape[1] + right.shape[1], 1))  # the background
    canvas[: left.shape[0], : left.shape[1]] = left
    canvas[: right.shape[0], left.shape[1] :] = right
    matplotlib.image.imsave(Path(__file__).parent / "demo.png", canvas)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
