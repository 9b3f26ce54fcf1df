"""Image sets: idx files are read as written, and other files are refused."""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hobnob as hb
from hobnob.problems import images

pytestmark = pytest.mark.slow

zipped = partial(gzip.compress, mtime=0)  # every process must see the same bytes


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


def write(folder: Path, as_gzip: bool = True) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {
        "train-images-idx3-ubyte": rng.integers(0, 256, (6, 3, 4)),
        "train-labels-idx1-ubyte": np.arange(6),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (2, 3, 4)),
        "t10k-labels-idx1-ubyte": np.array([7, 8]),
    }
    for name, array in arrays.items():
        if as_gzip:
            (folder / f"{name}.gz").write_bytes(zipped(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))
    return arrays


@pytest.mark.parametrize("as_gzip", [True, False])
def test_idx_files_round_trip(tmp_path: Path, as_gzip: bool) -> None:
    arrays = write(tmp_path, as_gzip)
    found = images.load(tmp_path)
    assert found.title == tmp_path.name
    assert sorted(found.labels) == list(range(6))
    assert found.labels.tolist() != list(range(6)), "not shuffled"
    # Pixels stay with their label.
    expected = arrays["train-images-idx3-ubyte"].reshape(6, 12)[found.labels]
    assert (np.round(found.pixels * 255) == expected).all()
    assert (found.test_labels == [7, 8]).all()
    assert found.pixels.dtype == found.test_pixels.dtype == np.float32
    again = images.load(tmp_path, seed=1)
    assert again.labels.tolist() != found.labels.tolist()


def test_digits_stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(images, "FASHION_MNIST", tmp_path / "not installed")
    found = images.load()
    assert found.title == "digits"
    assert found.pixels.shape == (1400, 64)
    assert len(found.test_labels) == 397
    assert found.pixels.min() == 0
    assert found.pixels.max() == 1
    with pytest.raises(hb.ProblemError, match=r"no folder .*not installed.*apt-get install"):
        images.load("fashion-mnist")


@pytest.mark.skipif(not images.FASHION_MNIST.exists(), reason="dataset-fashion-mnist is missing")
def test_fashion_mnist_is_whole() -> None:
    found = images.load()
    assert found.title == "fashion-mnist"
    assert found.pixels.shape == (60_000, 784)
    assert (np.bincount(found.labels) == 6_000).all()
    assert (np.bincount(found.test_labels) == 1_000).all()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte.gz", b"no gzip", "cannot be read"),
        ("train-images-idx3-ubyte.gz", zipped(b""), "begins with nothing and has 0 bytes"),
        ("train-labels-idx1-ubyte.gz", zipped(b"\0\0\x0d\1"), "not an idx file of bytes"),
        ("train-labels-idx1-ubyte.gz", zipped(b"\0\0\x08\1\0\0"), "not an idx file"),
        ("train-labels-idx1-ubyte.gz", zipped(idx(np.arange(9))[:-1]), "16 bytes"),
        ("train-labels-idx1-ubyte.gz", zipped(idx(np.arange(9))), r"labels \[9\]"),
        ("t10k-images-idx3-ubyte.gz", zipped(idx(np.ones((2, 3)))), r"t10k .* \[2, 3\]"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    write(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(hb.ProblemError, match=message):
        images.load(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(hb.ProblemError, match="t10k-labels-idx1-ubyte cannot be read"):
        images.load(tmp_path)
