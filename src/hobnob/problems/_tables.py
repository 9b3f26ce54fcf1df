"""Tables of features with two classes: load, check, scale, split and deal them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sklearn.datasets

from hobnob.ground.errors import ProblemError
from hobnob.problems import _checks

CLASSIFICATION = ("breast_cancer", "digits", "iris", "wine")
REGRESSION = ("diabetes", "linnerud")
LARGEST = 2 * 10**8  # numbers in a table: it is kept dense


class Table(NamedTuple):
    """`features` [n, d], `labels` [n] of +1 or -1, and names to show."""

    features: np.ndarray
    labels: np.ndarray
    names: list[str]
    title: str


class Shard(NamedTuple):
    features: np.ndarray
    labels: np.ndarray


def load(data: Any, positive: Any = None) -> Table:
    """A table from a scikit-learn name, a LIBSVM file or a pair (features, labels)."""
    if isinstance(data, str | Path):
        if data in CLASSIFICATION:
            return _shipped(str(data), positive)
        if data in REGRESSION:
            raise ProblemError(
                f"The data set {data!r} is a regression set: its targets are amounts, not two "
                f"classes. There are: {', '.join(CLASSIFICATION)}."
            )
        return _file(Path(data), positive)
    try:
        features, labels = data
        features = np.asarray(features, np.float64)
    except (TypeError, ValueError) as error:
        raise ProblemError(
            "data must be the name of a data set, the path of a LIBSVM file or a pair of arrays "
            f"(features, labels): {error}."
        ) from error
    return _table(features, np.asarray(labels), positive, "given arrays")


def own_table(agent: int, given: Any, features: int, positive: Any) -> Table:
    """The table of one agent, which may have records of one class alone.

    A LIBSVM file leaves out zeros, so its last features may be missing: they are 0.
    """
    try:
        found, labels = given
        found, labels = np.asarray(found, np.float64), np.asarray(labels)
    except (TypeError, ValueError) as error:
        raise ProblemError(
            f"data({agent}) must return a pair of arrays (features, labels): {error}."
        ) from error
    title = f"the records of agent {agent}"
    if found.ndim == 2 and found.shape[1] > features:
        raise ProblemError(f"{title} have {found.shape[1]} features, and there are {features}.")
    if found.ndim == 2:
        found = np.pad(found, ((0, 0), (0, features - found.shape[1])))
    if positive is None and not np.isin(labels, (-1, 0, 1)).all():
        raise ProblemError(
            f"{title} have labels that are neither 1 nor -1 (or 0). No agent sees the classes of "
            f"all, so name the one that is +1 with `positive`."
        )
    _check_table(found, labels, title)
    shown = np.array([_show(code) for code in labels.tolist()], str)
    signs = np.where(shown == _show(1 if positive is None else positive), 1.0, -1.0)
    return Table(found, signs, [f"x{i + 1}" for i in range(features)], title)


def scaled(features: np.ndarray, scaling: str) -> np.ndarray:
    """Scale each feature over all records. A constant feature becomes 0, not NaN."""
    _checks.one_of("scaling", scaling, ("minmax", "standard", "none"))
    if scaling == "none":
        return features
    if scaling == "minmax":
        low, high = features.min(axis=0), features.max(axis=0)
        centre, spread = (low + high) / 2, (high - low) / 2
    else:
        centre, spread = features.mean(axis=0), features.std(axis=0)
    # The mean of equal numbers has a rounding error, which a spread of 1e-17 would amplify.
    constant = features.max(axis=0) == features.min(axis=0)
    return np.where(constant, 0, (features - centre) / np.where(constant, 1, spread))


def split(table: Table, share: float, rng: np.random.Generator) -> tuple[Shard, Shard]:
    """Shuffled training and validation records; `share` of them for validation."""
    _checks.number("validation", share, 0, below=1, excluded=True)
    order = rng.permutation(len(table.labels))
    cut = len(order) - round(share * len(order))
    train, validation = (Shard(table.features[i], table.labels[i]) for i in np.split(order, [cut]))
    return train, validation


def deal(records: Shard, agents: int, manner: str, title: str) -> list[Shard]:
    """One shard per agent; their sizes differ by at most one.

    "even" takes the records in their order. "by label" sorts them first, as in the paper: the first
    agents have only -1, then one has both, the rest have only +1.
    """
    _checks.one_of("deal", manner, ("even", "by label"))
    if len(records.labels) < agents:
        raise ProblemError(
            f"{title}: {len(records.labels)} records cannot be dealt to {agents} agents, each "
            f"needs one at least. Take fewer agents, or change `validation`."
        )
    if manner == "by label":
        order = np.argsort(records.labels, kind="stable")
        records = Shard(records.features[order], records.labels[order])
    parts = (np.array_split(array, agents) for array in records)
    return [Shard(*part) for part in zip(*parts, strict=True)]


def _shipped(name: str, positive: Any) -> Table:
    found = getattr(sklearn.datasets, f"load_{name}")()
    labels = np.asarray(found.target_names)[found.target]
    # In the order of codes, not names: of two classes, the larger code is +1.
    classes = [str(c) for c in found.target_names]
    return _table(found.data, labels.astype(str), positive, name, classes, found.feature_names)


def _file(path: Path, positive: Any) -> Table:
    if not path.exists():
        raise ProblemError(
            f"There is neither a data set nor a file {str(path)!r} (looked in {Path.cwd()}). Data "
            f"sets: {', '.join(CLASSIFICATION)}. A file must be in LIBSVM format."
        )
    return _table(*read_libsvm(path), positive, path.stem)


def read_libsvm(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features [records, features] and labels [records] of a file, as they are."""
    try:
        features, labels = sklearn.datasets.load_svmlight_file(str(path))[:2]
    except (ValueError, OSError, EOFError) as error:
        raise ProblemError(
            f"{path}{_first_bad_line(path)} is not in LIBSVM format: {error}. A line must read "
            f"'label index:value index:value ...' with numbers and rising indices."
        ) from error
    if features.shape[0] == 0 or features.nnz == 0:
        raise ProblemError(f"{path} holds {features.shape[0]} records and no features.")
    if np.prod(features.shape, dtype=float) > LARGEST:
        raise ProblemError(
            f"{path} holds {features.shape[0]} records of {features.shape[1]} features. That is "
            f"too large for a dense table (the limit is {LARGEST:.0e} numbers): select features."
        )
    return features.toarray(), labels


def _first_bad_line(path: Path) -> str:
    """Find the line; scikit-learn says what is malformed, not where."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return ""
    for number, line in enumerate(lines, 1):
        try:
            sklearn.datasets.load_svmlight_file(BytesIO(line))
        except ValueError:
            return f", line {number}"
    return ""


def _table(
    features: np.ndarray,
    labels: np.ndarray,
    positive: Any,
    title: str,
    classes: list[str] | None = None,
    names: Any = None,
) -> Table:
    _check_table(features, labels, title)
    if classes is None:
        codes = np.unique(labels)
        classes = [_show(code) for code in codes]
        labels = np.asarray(classes)[np.searchsorted(codes, labels)]
    chosen = _positive_class(classes, positive, title)
    names = list(names) if names is not None else [f"x{i + 1}" for i in range(features.shape[1])]
    return Table(features, np.where(labels == chosen, 1.0, -1.0), names, title)


def _check_table(features: np.ndarray, labels: np.ndarray, title: str) -> None:
    if features.ndim != 2 or labels.shape != features.shape[:1] or features.size == 0:
        raise ProblemError(
            f"{title}: features must be [records, features] and labels [records], not "
            f"{list(features.shape)} and {list(labels.shape)}."
        )
    bad = ~np.isfinite(features)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ProblemError(
            f"{title}: {int(bad.sum())} features are NaN or infinite, the first in record {row}, "
            f"feature {column} (counted from 0). Remove or fill them."
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = int(np.argmax(~np.isfinite(labels)))
        raise ProblemError(f"{title}: the label of record {row} (counted from 0) is not finite.")


def _show(code: Any) -> str:
    """A label as text. LIBSVM labels are read as 1.0 and shown as 1."""
    whole = isinstance(code, float | np.floating) and float(code).is_integer()
    return str(int(code)) if whole else str(code)


def _positive_class(classes: list[str], positive: Any, title: str) -> str:
    """The class that is +1; of two classes the larger, unless `positive` names one."""
    shown = ", ".join(classes[:20]) + (", ..." if len(classes) > 20 else "")
    if len(classes) == 1:
        raise ProblemError(f"{title}: all records have the label {shown}. Two classes are needed.")
    if positive is not None:
        if _show(positive) not in classes:
            raise ProblemError(f"{title}: there is no class {positive!r}. There are: {shown}.")
        return _show(positive)
    if len(classes) > 2:
        raise ProblemError(
            f"{title} has {len(classes)} classes: {shown}. Name the one that is to be told from "
            f"the rest with `positive`."
        )
    return classes[1]
