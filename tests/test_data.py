import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.data import DEBIAN_FASHION_MNIST, load, read_idx_folder, split
from coterie.data.idx import read_idx
from coterie.errors import DataError


def idx_bytes(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def test_the_embedded_images_are_the_ones_that_were_cut() -> None:
    data = load("mnist-f-mini")
    digest = hashlib.sha256(data.x[:, 0].tobytes() + data.y.tobytes()).hexdigest()
    assert digest == "9c6ad46cd7908eecaea054baed09260deb24572b4824039d35adfc3b0b3a0001"
    assert np.bincount(data.y).tolist() == [700] * 10


@pytest.mark.skipif(not DEBIAN_FASHION_MNIST.is_dir(), reason="needs dataset-fashion-mnist")
def test_the_full_fashion_mnist_has_seventy_thousand_balanced_images() -> None:
    data = load("mnist-f")
    assert data.x.shape == (70_000, 1, 28, 28)
    assert np.bincount(data.y).tolist() == [7_000] * 10


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_an_idx_file_reads_back(tmp_path: Path, pack: type[bytes]) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "file").write_bytes(pack(idx_bytes(array)))
    assert (read_idx(tmp_path / "file") == array).all()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not an IDX file"),
        (b"\0\0\x0d\1\0\0\0\1\0\0\0\0", "not an IDX file of unsigned bytes"),
        (b"\0\0\x08\3\0\0", "header is cut off"),
        (b"\0\0\x08\1\0\0\0\5abc", "needs 5 bytes, the file has 3"),
        (b"\x1f\x8bnot gzip", "cannot be read"),
    ],
)
def test_what_is_not_idx_is_rejected(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match=says):
        read_idx(tmp_path / "file")


def test_images_and_labels_must_agree(tmp_path: Path) -> None:
    for part in ("train", "t10k"):
        images, labels = np.zeros((2, 3, 3), np.uint8), np.zeros(5, np.uint8)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    with pytest.raises(DataError, match=r"images \(2, 3, 3\) but labels \(5,\)"):
        read_idx_folder(tmp_path)


@pytest.mark.parametrize("sizes", [((0, 3, 3), (2, 3, 3)), ((2, 3, 3), (2, 4, 4))])
def test_images_of_no_or_several_sizes_are_refused(
    tmp_path: Path, sizes: tuple[tuple[int, ...], ...]
) -> None:
    for part, shape in zip(("train", "t10k"), sizes, strict=True):
        images, labels = np.zeros(shape, np.uint8), np.zeros(shape[0], np.uint8)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    with pytest.raises(DataError, match="must hold images of one size"):
        read_idx_folder(tmp_path)


def test_too_few_examples_to_split_are_refused() -> None:
    with pytest.raises(DataError, match="3 examples are too few"):
        split(np.arange(3), np.random.default_rng(0))


def test_a_missing_dataset_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such folder; set data\.path"):
        load("mnist-f", tmp_path / "nowhere")
    with pytest.raises(DataError, match="did you mean 'mnist-f'"):
        load("mnist-ff")
    with pytest.raises(DataError, match=r"takes no data\.path"):
        load("mnist-f-mini", tmp_path)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=70), st.integers(0, 99))
def test_a_split_is_every_example_once_and_three_to_one_to_one_per_class(
    labels: list[int], seed: int
) -> None:
    y = np.repeat(labels, 5)
    parts = split(y, np.random.default_rng(seed))
    together = np.concatenate([parts.train, parts.val, parts.test])
    assert np.array_equal(np.sort(together), np.arange(len(y)))
    for c in np.unique(y):
        n = (y == c).sum()
        assert abs((y[parts.train] == c).sum() - 0.6 * n) <= 0.5
        assert abs((y[parts.val] == c).sum() - 0.2 * n) <= 1
