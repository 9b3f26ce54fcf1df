"""Shared by the examples of real models: methods at equal samples and bytes, a table, curves."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.figure import Figure

import hobnob as hb

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
Make = Callable[[float], hb.Algorithm]


def options(about: str | None) -> argparse.Namespace:
    """The command line of an example."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="digits: as --data digits")
    parser.add_argument("--data", help="fashion-mnist, digits, or a folder with idx files")
    parser.add_argument("--steps", type=int, help="of D-SOBA; the others get as many samples")
    parser.add_argument("--alpha", type=float, nargs="+", help="step sizes of x to choose from")
    parser.add_argument("--methods", nargs="+", help="such as D-SOBA SPARKLE; default: all")
    parser.add_argument("--seeds", type=int, default=2, help="that are measured")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the picture")
    return parser.parse_args()


def matrix_free(gamma: float, penalty: float = 0.1) -> dict[str, Make]:
    """Methods that send only vectors, each as a function of the step size of x.

    Inner steps are gamma, or half of it for tracking, because W has negative eigenvalues.
    """
    half = gamma / 2
    plain: dict[str, Any] = {"beta": gamma, "gamma": gamma, "theta": 0.2}
    tracked: dict[str, Any] = {"beta": half, "gamma": half}
    return {
        "D-SOBA": lambda alpha: hb.DSOBA(alpha=alpha, **plain),
        "SPARKLE": lambda alpha: hb.SPARKLE(alpha=alpha, **plain),
        "MA-DSBO-GT": lambda alpha: hb.MADSBOGT(alpha=alpha, **tracked, theta=0.2, inner_steps=2),
        "STORM": lambda alpha: hb.STORM(alpha=alpha, **tracked, theta=0.1),
        "penalty": lambda alpha: hb.Penalty(alpha=alpha, gamma=penalty * half, penalty=penalty),
    }


def compare(
    problem: hb.Problem,
    network: hb.Network,
    methods: dict[str, Make],
    alphas: list[float],
    samples: int,
    metrics: Any,
    seeds: list[int],
) -> dict[str, hb.Result]:
    """Run every method with the same samples per agent and its best alpha.

    Seed 0 chooses alpha by the final outer loss; other seeds are measured. A method that diverges
    for every alpha is left out.
    """
    most = samples // (2 * problem.inner_data.samples_per_draw()[0])  # one batch of f, one of g

    def run(method: hb.Algorithm, **more: Any) -> hb.Result:
        """Methods that draw more in a step stop after fewer steps."""
        return hb.solve(
            problem,
            network,
            method,
            steps=int(most),
            record_every=max(1, int(most) // 40),
            callback=lambda run, state: np.all(run.latest["samples"] >= samples),
            **more,
        )

    results = {}
    for name, make in methods.items():
        losses = {}
        for alpha in alphas if len(alphas) > 1 else []:
            try:
                tried = run(make(alpha), metrics=["outer_loss"])
                losses[alpha] = tried.history["outer_loss"][-1]
            except hb.DivergenceError:
                losses[alpha] = np.inf
        searched = ", ".join(f"{loss:.4f} at {a:g}" for a, loss in losses.items())
        for alpha in sorted(alphas, key=lambda a: losses.get(a, np.inf)):
            try:
                results[name] = run(make(alpha), metrics=metrics, seed=seeds)
            except hb.DivergenceError:
                print(f"{name}: diverges at alpha = {alpha:g} with other seeds", flush=True)
                continue
            print(
                f"{name}: alpha = {alpha:g} (outer loss {searched or 'not searched'})", flush=True
            )
            break
    return results


def budget(results: dict[str, hb.Result]) -> float:
    """The bytes that every method has sent at least."""
    return min(result.history["bytes"][0, -1] for result in results.values())


def at(result: hb.Result, metric: str, column: str, spent: float) -> float:
    """The median over seeds of a metric when this much of a cost was spent."""
    cost = result.history[column][0]
    row = np.searchsorted(cost, spent * (1 + 1e-9), side="right") - 1
    return float(np.median(result.history[metric], axis=0)[row])


def needed(result: hb.Result, metric: str, column: str, goal: float) -> float:
    """The cost at which the median over seeds first reached a goal; NaN if it never did."""
    middle = np.median(result.history[metric], axis=0)
    below = np.flatnonzero(middle <= goal)
    return float(result.history[column][0, below[0]]) if below.size else float("nan")


def table(results: dict[str, hb.Result], metric: str) -> str:
    """One row per method, best at equal samples first; the goal is what the slowest reaches."""
    spent = budget(results)
    medians = {name: np.median(r.history[metric], axis=0) for name, r in results.items()}
    goal = max(middle.min() for middle in medians.values())
    lines = [
        f"{metric}: at equal samples, at equal bytes ({spent / 1e6:,.0f} MB), and what it took "
        f"to reach {goal:.4f}",
        f"{'method':12}{'samples':>10}{'bytes':>10}{'samples to':>13}{'bytes to':>13}",
    ]
    for name in sorted(results, key=lambda name: medians[name][-1]):
        result = results[name]
        to = [needed(result, metric, column, goal) for column in ("samples", "bytes")]
        lines.append(
            f"{name:12}{medians[name][-1]:10.4f}{at(result, metric, 'bytes', spent):10.4f}"
            f"{to[0]:13,.0f}{to[1] / 1e6:10,.0f} MB"
        )
    return "\n".join(lines)


def cross_entropy(scores: Any, labels: Any) -> Any:
    """The cross-entropy of each record."""
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1)[:, 0]


def save(drawing: Figure, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    drawing.savefig(folder / name, dpi=110)
    print(f"Picture: {folder / name}")


def figure(panels: int) -> tuple[Figure, Any]:
    """A figure with panels side by side."""
    matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    drawing = Figure(figsize=(4.4 * panels, 3.8), layout="constrained")
    return drawing, drawing.subplots(1, panels)


def curves(axes: Any, results: dict[str, hb.Result], metric: str, label: str) -> None:
    """One metric against samples and against bytes: the median over seeds, and every seed."""
    for ax, column, unit, scale in zip(
        axes, ("samples", "bytes"), ("thousands", "MB"), (1e3, 1e6), strict=True
    ):
        for (name, result), colour in zip(results.items(), COLOURS, strict=False):
            spent, found = result.history[column][0] / scale, result.history[metric]
            ax.plot(spent, np.median(found, axis=0), color=colour, label=name)
            ax.fill_between(spent, found.min(0), found.max(0), color=colour, alpha=0.2, lw=0)
        ax.set_ylim(*_range(results, metric))
        ax.set_xlabel(f"{column} of an agent, {unit}")
        ax.set_ylabel(label)
        ax.grid(alpha=0.3)
    axes[1].set_xlim(0, 1.05 * budget(results) / 1e6)
    axes[0].legend(frameon=False, fontsize=9)


def _range(results: dict[str, hb.Result], metric: str) -> tuple[float, float]:
    """The range where curves differ: the lowest value to the highest after 10 % of the samples."""
    found = [np.median(result.history[metric], axis=0) for result in results.values()]
    low, high = min(f.min() for f in found), max(f[-(-len(f) // 10)] for f in found)
    return low - 0.05 * (high - low), high + 0.05 * (high - low)
