"""The checks of a network. Each message says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from hobnob.core.mixing_matrix import CSR, RULES, SMALL, links_of, rho, row_numbers, shown, weigh
from hobnob.ground.errors import NetworkError

_COMPUTED = "hb.Network(graph) to have the weights computed"


def read_matrix(given: Any) -> tuple[CSR, np.ndarray]:
    """The links and the diagonal of a given W; an error if no run could use it."""
    try:
        array = given if sp.issparse(given) else np.asarray(given)
        shape, dtype = array.shape, array.dtype
        if dtype.kind == "c" or (dtype.kind == "O" and array.ndim != 2):
            raise TypeError
        rough = dtype.kind not in "iubO" and dtype.itemsize < 8
        values = array.astype(float)
    except (TypeError, ValueError):
        raise NetworkError(
            f"A network is made of a networkx graph or a square matrix of real numbers, "
            f"not of this {type(given).__name__}: {str(given)[:60]}"
        ) from None
    if len(shape) != 2 or shape[0] != shape[1]:
        raise NetworkError(
            f"W is not square: its shape is {tuple(shape)}. It needs one row and one column for "
            f"each agent. Use {_COMPUTED}."
        )
    if shape[0] == 0:
        raise NetworkError("W is empty: a network needs at least one agent.")
    w = sp.csr_array(values)
    w.sum_duplicates()
    # Single precision allows no tighter tolerance. W is used as given: it is not made symmetric or
    # normalised.
    tolerance, noise = (1e-5, 1e-7) if rough else (1e-8, 1e-15)
    _check_entries(w, tolerance, noise)

    # An entry below the rounding error of a row's sum is no link. A link goes in both directions,
    # even if rounding left a zero in one: otherwise one end would wait for the other.
    size = shape[0]
    both = (w + w.T).tocoo()
    linked = both.data > noise
    links = links_of(size, both.row[linked], both.col[linked])
    if links.nnz:
        links.data = _entries(w, row_numbers(links), links.indices)
    diagonal = w.diagonal().clip(min=0)
    check_connected(links, range(size), "given")
    if size > 1 and diagonal.max() <= noise:
        _check_aperiodic(links)
    return links, diagonal


def _entries(w: CSR, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    picked = w[i, j]
    return (picked.toarray() if sp.issparse(picked) else np.asarray(picked)).clip(min=0)


def _check_entries(w: CSR, tolerance: float, noise: float) -> None:
    coo = w.tocoo()
    wrong = np.flatnonzero(~np.isfinite(coo.data))
    if wrong.size:
        i, j = coo.row[wrong[0]], coo.col[wrong[0]]
        raise NetworkError(
            f"W is not finite: w[{i}, {j}] = {coo.data[wrong[0]]}, entries of this kind: "
            f"{wrong.size}. Even one spreads to every agent. Use {_COMPUTED}."
        )
    gap = abs(w - w.T).tocoo()
    if gap.nnz and gap.data.max() > tolerance:
        worst = gap.data.argmax()
        i, j = sorted((int(gap.row[worst]), int(gap.col[worst])))
        a, b = _distinct(float(w[i, j]), float(w[j, i]))
        raise NetworkError(
            f"W is not symmetric: w[{i}, {j}] = {a} but w[{j}, {i}] = {b}. The mean would drift "
            f"and no guarantee applies. Use (W + W.T) / 2 if its rows sum to 1, or {_COMPUTED}."
        )
    if coo.nnz and coo.data.min() < -noise:
        worst = coo.data.argmin()
        raise NetworkError(
            f"W has a negative entry: w[{coo.row[worst]}, {coo.col[worst]}] = "
            f"{coo.data[worst]:.4g}. Mixing would no longer be averaging and could amplify what "
            f'it should settle. Use weights="metropolis", or {_COMPUTED}.'
        )
    sums = w.sum(axis=1)
    worst = int(abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > tolerance:
        raise NetworkError(
            f"W is not doubly stochastic: row {worst} sums to {_distinct(sums[worst], 1)[0]}. "
            f'The mean would drift and no guarantee applies.\nUse weights="metropolis", or '
            f"{_COMPUTED}."
        )


def _check_aperiodic(links: CSR) -> None:
    # Without self-weights, W is periodic exactly when its double cover (each agent once for even
    # steps, once for odd ones) is disconnected.
    if connected_components(sp.block_array([[None, links], [links, None]]))[0] > 1:
        raise NetworkError(
            "W never mixes: rho = 1. Its agents form two camps with links only from one to the "
            "other, and none keeps a share of its own value, so the camps swap values for ever. "
            "Use the lazy matrix (I + W) / 2."
        )


def check_regular(degrees: np.ndarray, labels: Sequence[Any]) -> None:
    found = np.unique(degrees)
    if found.size == 1:
        return
    who = [f"{d} ({_some(np.flatnonzero(degrees == d), labels)})" for d in found[:4]]
    more = [f"{found.size - 4} more"] if found.size > 4 else []
    raise NetworkError(
        'weights="uniform" needs a graph whose agents all have equally many neighbours. Here the '
        f"degrees are {_listed(who + more)}, so 1/(1 + d) would not be symmetric. "
        'Use weights="metropolis".'
    )


def check_connected(links: CSR, labels: Sequence[Any], weights: str) -> None:
    count, part = connected_components(links, directed=False)
    if count == 1:
        return
    size = links.shape[0]
    first = np.unique(part, return_index=True)[1]
    last = size - 1 - np.unique(part[::-1], return_index=True)[1]
    parts = [f"{{{_some(np.flatnonzero(part == c), labels)}}}" for c in range(min(count, 4))]
    edges = [f"{labels[a]}-{labels[b]}" for a, b in zip(last[:3], first[1:4], strict=False)]
    if count > 4:
        parts.append(f"{count - 4:,} more")
        edges.append(f"{count - 4:,} more such")
    then = ""
    if size <= SMALL:
        i = np.concatenate([row_numbers(links), last[:-1]])
        j = np.concatenate([links.indices, first[1:]])
        # "uniform" may not fit the joined graph, and a given W has no rule.
        rule = weights if weights in RULES and weights != "uniform" else "metropolis"
        joined = rho(weigh(links_of(size, i, j), rule))
        then = f" (rho = {shown(joined)} with {rule} weights)"
    number = {2: "two", 3: "three", 4: "four"}.get(count, f"{count:,}")
    raise NetworkError(
        f"The graph has {number} parts, {_listed(parts)}: they can never agree. "
        f"{'An edge' if count == 2 else 'The edges'} {_listed(edges)} would join them{then}."
    )


def _some(agents: np.ndarray, labels: Sequence[Any]) -> str:
    named = agents if agents.size <= 8 else agents[:6]
    more = f", ... {agents.size - 6:,} more" if agents.size > 8 else ""
    return ", ".join(str(labels[k]) for k in named) + more


def _listed(words: Iterable[str]) -> str:
    *most, final = words
    return f"{', '.join(most)} and {final}" if most else final


def _distinct(a: float, b: float) -> tuple[str, str]:
    """Both numbers, with just enough digits to show that they differ."""
    pairs = [(f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in (4, 10, 17)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])
