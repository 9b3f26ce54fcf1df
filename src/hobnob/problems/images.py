"""Labelled images: Fashion-MNIST if it is installed, or files in its format."""

from __future__ import annotations

import gzip
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sklearn.datasets

from hobnob.ground.errors import ProblemError

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # Debian's dataset-fashion-mnist
_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


class Images(NamedTuple):
    """Pixels [n, d] from 0 to 1, labels [n] from 0, and a test set."""

    pixels: np.ndarray
    labels: np.ndarray
    test_pixels: np.ndarray
    test_labels: np.ndarray
    title: str


def load(data: str | Path | None = None, seed: int = 0) -> Images:
    """Images, in an order that `seed` shuffles.

    Args:
        data: "fashion-mnist" (70,000 of 28 x 28 pixels, from Debian's package), "digits" (1,797 of
            8 x 8, which scikit-learn ships), or a folder with the four idx files of MNIST or
            Fashion-MNIST, with or without .gz. None is Fashion-MNIST if it is installed, and
            digits otherwise; `title` says which.
        seed: of the shuffle.
    """
    if data is None:
        data = "fashion-mnist" if FASHION_MNIST.exists() else "digits"
    rng = np.random.default_rng(seed)
    if data == "digits":
        pixels, labels = map(np.asarray, sklearn.datasets.load_digits(return_X_y=True))
        order, cut = rng.permutation(len(labels)), 1400
        pixels, labels = (pixels[order] / 16).astype(np.float32), labels[order].astype(np.int32)
        return Images(pixels[:cut], labels[:cut], pixels[cut:], labels[cut:], "digits")
    folder = FASHION_MNIST if data == "fashion-mnist" else Path(data)
    if not folder.is_dir():
        raise ProblemError(
            f"There is no folder {folder} with images. Install Fashion-MNIST with `apt-get install "
            f'dataset-fashion-mnist`, name another folder, or use "digits".'
        )
    pixels, labels, test_pixels, test_labels = (_read(folder, name) for name in _FILES)
    for side, (a, t) in {"train": (pixels, labels), "t10k": (test_pixels, test_labels)}.items():
        if a.ndim != 3 or t.ndim != 1 or len(a) != len(t):
            raise ProblemError(
                f"{folder}: the {side} files hold images {list(a.shape)} and labels "
                f"{list(t.shape)}. They must be [n, height, width] and [n]."
            )
    order = rng.permutation(len(labels))
    return Images(
        _flat(pixels[order]),
        labels[order].astype(np.int32),
        _flat(test_pixels),
        test_labels.astype(np.int32),
        folder.name,
    )


def _flat(pixels: np.ndarray) -> np.ndarray:
    return (pixels.reshape(len(pixels), -1) / np.float32(255)).astype(np.float32)


def _read(folder: Path, name: str) -> np.ndarray:
    """One idx file: 0, 0, 8 for bytes, the number of axes, their lengths, then the bytes."""
    zipped, plain = folder / f"{name}.gz", folder / name
    path = zipped if zipped.exists() else plain
    try:
        content = gzip.decompress(path.read_bytes()) if path == zipped else path.read_bytes()
    except (OSError, EOFError) as error:
        raise ProblemError(f"{path} cannot be read: {error}.") from error
    axes = content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else 0
    shape = [int.from_bytes(content[4 * i : 4 * i + 4], "big") for i in range(1, 1 + axes)]
    head = 4 + 4 * axes
    if axes == 0 or len(content) != head + prod(shape):
        raise ProblemError(
            f"{path} is not an idx file of bytes: it begins with "
            f"{content[:4].hex(' ') or 'nothing'} and has {len(content):,} bytes."
        )
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)
