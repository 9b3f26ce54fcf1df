"""The mixing matrix W: how links are weighted, how W is stored, and its rho.

rho is the squared norm of W - 11'/K, computed by the cheapest exact method for each matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

# A float64 scipy.sparse.csr_array. scipy has no types for it.
CSR: TypeAlias = Any

# (degrees, i, j) -> w_ij for the links i-j. The diagonal makes rows sum to 1.
Rule = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

RULES: dict[str, Rule] = {
    "metropolis": lambda d, i, j: 1 / (1 + np.maximum(d[i], d[j])),
    "lazy": lambda d, i, j: 0.5 / (1 + np.maximum(d[i], d[j])),
    "max-degree": lambda d, i, j: np.full(i.size, 1 / (1 + d.max())),
    "uniform": lambda d, i, j: 1 / (1 + d[i]),
}


def links_of(size: int, rows: np.ndarray, cols: np.ndarray) -> CSR:
    """Both directions of every edge, without repeats and loops."""
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
    # rho, the fingerprint and the dense copy are cached, so W must not change.
    for part in (w.data, w.indices, w.indptr):
        part.flags.writeable = False
    return w


# --- rho ---------------------------------------------------------------------------------------

SMALL = 500  # agents: up to here all eigenvalues of a dense matrix take milliseconds


def rho(w: CSR) -> float:
    if w.shape[0] == 1:
        return 0.0
    if w.shape[0] <= SMALL:
        return by_eigenvalues(w)
    row = circulant_row(w)
    if row is not None:
        return by_fourier(row)
    try:
        return by_lanczos(w)
    except ArpackError:
        return by_inverse(w)


def shown(value: float) -> str:
    """rho in few digits, but never shown as 1 if it is less."""
    return f"{value:.2f}" if value < 0.995 else f"1 - {1 - value:.1e}"


def by_eigenvalues(w: CSR) -> float:
    return float(abs(np.linalg.eigvalsh(w.toarray() - 1 / w.shape[0])).max() ** 2)


def circulant_row(w: CSR) -> np.ndarray | None:
    """Row 0, if every row is the row above shifted by one place."""
    size, stored = w.shape[0], np.diff(w.indptr)
    if stored.min() != stored.max():
        return None
    shifts = (w.indices.reshape(size, -1) - np.arange(size)[:, None]) % size
    order = shifts.argsort(axis=1)
    shifts = np.take_along_axis(shifts, order, axis=1)
    values = np.take_along_axis(w.data.reshape(size, -1), order, axis=1)
    if (shifts != shifts[0]).any() or abs(values - values[0]).max() > 1e-14:
        return None
    row = np.zeros(size)
    row[shifts[0]] = values[0]
    return row


def by_fourier(row: np.ndarray) -> float:
    # The Fourier modes are the eigenvectors; the first is the mean, which does not count.
    return float(abs(np.fft.rfft(row).real[1:]).max() ** 2)


def by_lanczos(w: CSR) -> float:
    return _largest(lambda x: w @ x - x.mean(), w.shape[0], maxiter=60) ** 2


def by_inverse(w: CSR) -> float:
    """For long thin networks, whose eigenvalues crowd near 1: computes the gap 1 - lambda.

    The largest eigenvalue of the pseudo-inverse of I - W is 1 / gap, well apart from the others.
    Grounding one agent (dropping its row and column) makes I - W positive definite, so that it can
    be factorised.
    """
    size = w.shape[0]
    grounded = _factorise(sp.eye_array(size - 1) - w[1:, 1:])

    def pseudo_inverse(x: np.ndarray) -> np.ndarray:
        y = np.concatenate([[0.0], grounded.solve((x - x.mean())[1:])])
        return y - y.mean()

    top = 1 - 1 / _largest(pseudo_inverse, size)
    # Gershgorin: no eigenvalue is below 2 min w_ii - 1, so the other end is rarely needed.
    if 1 - 2 * w.diagonal().min() > top:
        top = max(top, 1 - 1 / _largest(_factorise(sp.eye_array(size) + w).solve, size))
    return float(top**2)


def _factorise(a: Any) -> Any:
    options = {"SymmetricMode": True}
    return splu(a.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)


def _largest(apply: Any, size: int, maxiter: int | None = None) -> float:
    # ARPACK's default start is random, and rho must not vary from call to call.
    start = np.random.default_rng(0).standard_normal(size)
    settings: Any = {"ncv": min(size, 40), "maxiter": maxiter, "tol": 1e-13}
    operator: Any = LinearOperator((size, size), matvec=apply, dtype=float)  # pyright: ignore
    found = eigsh(operator, k=1, v0=start - start.mean(), return_eigenvectors=False, **settings)
    return float(abs(found[0]))
