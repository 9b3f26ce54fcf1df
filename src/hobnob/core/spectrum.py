"""rho, the squared norm of W - 11'/K, by the cheapest way that is exact for the matrix at hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

from hobnob.core.weights import CSR

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
    """rho in few digits, yet never as 1 when it is less."""
    return f"{value:.2f}" if value < 0.995 else f"1 - {1 - value:.1e}"


def by_eigenvalues(w: CSR) -> float:
    return float(abs(np.linalg.eigvalsh(w.toarray() - 1 / w.shape[0])).max() ** 2)


def circulant_row(w: CSR) -> np.ndarray | None:
    """Row 0, if every row is the one above shifted by one place."""
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
    """For long thin networks, whose eigenvalues crowd at 1: there the gap 1 - lambda is found.

    The largest eigenvalue of the pseudo-inverse of I - W is 1 / gap, well apart from the others.
    Grounding one agent (dropping its row and column) makes I - W positive definite to factorise.
    """
    size = w.shape[0]
    grounded = _factorise(sp.eye_array(size - 1) - w[1:, 1:])

    def pseudo_inverse(x: np.ndarray) -> np.ndarray:
        y = np.concatenate([[0.0], grounded.solve((x - x.mean())[1:])])
        return y - y.mean()

    top = 1 - 1 / _largest(pseudo_inverse, size)
    # Gershgorin: no eigenvalue is below 2 min w_ii - 1, so the other end rarely has to be found.
    if 1 - 2 * w.diagonal().min() > top:
        top = max(top, 1 - 1 / _largest(_factorise(sp.eye_array(size) + w).solve, size))
    return float(top**2)


def _factorise(a: Any) -> Any:
    options = {"SymmetricMode": True}
    return splu(a.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)


def _largest(apply: Any, size: int, maxiter: int | None = None) -> float:
    # ARPACK starts from a random vector unless told: rho must not vary from call to call.
    start = np.random.default_rng(0).standard_normal(size)
    settings: Any = {"ncv": min(size, 40), "maxiter": maxiter, "tol": 1e-13}
    operator: Any = LinearOperator((size, size), matvec=apply, dtype=float)  # pyright: ignore
    found = eigsh(operator, k=1, v0=start - start.mean(), return_eigenvectors=False, **settings)
    return float(abs(found[0]))
