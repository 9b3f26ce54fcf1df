"""From links to a mixing matrix: the weight rules, and how W is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

# A float64 scipy.sparse.csr_array. scipy has no types that a checker could follow.
CSR: TypeAlias = Any

# (degrees, i, j) -> w_ij for the links i-j. The diagonal takes up the rest.
Rule = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

RULES: dict[str, Rule] = {
    "metropolis": lambda d, i, j: 1 / (1 + np.maximum(d[i], d[j])),
    "lazy": lambda d, i, j: 0.5 / (1 + np.maximum(d[i], d[j])),
    "max-degree": lambda d, i, j: np.full(i.size, 1 / (1 + d.max())),
    "uniform": lambda d, i, j: 1 / (1 + d[i]),
}


def links_of(size: int, rows: np.ndarray, cols: np.ndarray) -> CSR:
    """Both directions of every edge, once and without loops."""
    rows, cols = rows[rows != cols], cols[rows != cols]
    ends = np.concatenate([rows, cols]), np.concatenate([cols, rows])
    return sp.csr_array((np.ones(ends[0].size), ends), shape=(size, size))


def row_numbers(a: CSR) -> np.ndarray:
    """The row of each stored entry; `a.indices` has the columns."""
    return np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))


def weigh(links: CSR, rule: str) -> CSR:
    """The mixing matrix that a rule gives to these links."""
    values = RULES[rule](np.diff(links.indptr), row_numbers(links), links.indices)
    weighed = sp.csr_array((values, links.indices, links.indptr), shape=links.shape)
    return store(weighed, 1 - weighed.sum(axis=1))


def store(links: CSR, diagonal: np.ndarray) -> CSR:
    """W as a network keeps it: sorted, every diagonal entry stored even if zero, read-only."""
    own = np.arange(links.shape[0])
    ends = np.concatenate([row_numbers(links), own]), np.concatenate([links.indices, own])
    w = sp.csr_array((np.concatenate([links.data, diagonal]), ends), shape=links.shape)
    w.sort_indices()
    # rho, the fingerprint and the dense copy are cached, so what they came from must not change.
    for part in (w.data, w.indices, w.indptr):
        part.flags.writeable = False
    return w
