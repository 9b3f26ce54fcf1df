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


def curve_of(path: Path) -> tuple[np.ndarray, np.ndarray]:
    rows = list(csv.DictReader(path.open()))
    sent, loss = (np.array([float(r[c]) for r in rows]) for c in ("bytes", "objective"))
    return sent, loss


def main(run: Path) -> None:
    chosen, beside = curve_of(run / "history.csv"), curve_of(run / "beside-history.csv")
    x = np.load(run / "final.npz")["agents['x']"]
    best = hb.optimum(hb.problems.get("hyperopt")("breast_cancer", 8)).value
    curve = convergence(
        {"the default": chosen, "DSBO": beside},
        "bytes sent per agent",
        "validation loss",
        log_x=True,
        reference=(best, "best centralised"),
    )
    ring = hb.ring(8).graph
    sent = float(chosen[0][-1])  # by an agent to its two neighbours: as much as a link carried
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
