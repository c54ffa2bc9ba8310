"""CIFAR in its official layout, made up: what is read, and what is refused."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from coterie.core.errors import DataError
from coterie.data import load
from coterie.data.cifar import find_cifar10, find_cifar100, read_cifar10, read_cifar100
from coterie.data.dataset import Dataset, in_memory
from datafiles import cifar10_files, cifar100_files, cifar_bytes, tar_gz, write_all

RECORD = 1 + 3 * 32 * 32


def read(path: Path) -> Dataset:
    return read_cifar10(find_cifar10(path), in_memory, lambda done, of: None)


def test_every_record_is_its_label_and_red_green_and_blue_row_by_row(tmp_path: Path) -> None:
    files = cifar10_files()
    data = read(write_all(tmp_path / "cifar-10-batches-bin", files))
    assert data.x.shape == (120, 3, 32, 32)
    assert data.x.dtype == np.uint8
    assert data.y.tolist() == [i % 10 for i in range(20)] * 6
    assert data.test is not None
    assert np.flatnonzero(data.test).tolist() == list(range(100, 120))
    second = files["data_batch_2.bin"]
    assert data.x[20, 0, 0, :3].tolist() == list(second[1:4])  # red, its first row
    assert data.x[20, 0, 1, 0] == second[1 + 32]
    assert data.x[20, 2, 31, 31] == second[RECORD - 1]  # blue, its last row


def test_the_archive_is_read_as_the_folder_is_in_whatever_order(tmp_path: Path) -> None:
    files = cifar10_files()
    folder = write_all(tmp_path / "bin", files)
    inside = {f"cifar-10-batches-bin/{name}": files[name] for name in sorted(files, reverse=True)}
    inside["cifar-10-batches-bin/readme.html"] = b"<p>"
    archive = tmp_path / "cifar-10-binary.tar.gz"
    archive.write_bytes(tar_gz(inside))
    plain, packed = read(folder), read(archive)
    assert np.array_equal(plain.x, packed.x)
    assert np.array_equal(plain.y, packed.y)
    (folder / "test_batch.bin").unlink()
    (folder / "test_batch.bin.gz").write_bytes(gzip.compress(files["test_batch.bin"]))
    assert np.array_equal(read(folder).x, packed.x)


def test_of_cifar_100_the_fine_label_is_taken(tmp_path: Path, cache: Path) -> None:
    data = load("cifar100", write_all(tmp_path, cifar100_files()))
    assert (data.n_classes, data.x.shape) == (100, (200, 3, 32, 32))
    assert data.y.tolist() == list(range(100)) * 2
    assert data.x[0, 0, 0, 0] == cifar100_files()["train.bin"][2]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("data_batch_3.bin", b"", r"data_batch_3\.bin: must hold records of 3,073 bytes, has 0"),
        ("test_batch.bin", bytes(RECORD + 1), r"test_batch\.bin: .* 3,074 bytes, which is 1\.00"),
        ("data_batch_1.bin", cifar_bytes([[3], [10]]), r"0 to 9, got 10 in record 1"),
        ("data_batch_5.bin", None, r"has no data_batch_5\.bin \(or \.gz\) in it"),
    ],
)
def test_files_that_are_not_cifar_are_refused(
    tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    folder = write_all(tmp_path, cifar10_files())
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read(folder)
    assert "\n" not in str(caught.value)


def test_archives_that_are_not_cifar_are_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    files = cifar10_files(2)
    twice = {f"a/{name}": content for name, content in files.items()}
    for inside, says in (
        (
            {"a/data_batch_1.bin": b"x"},
            r"a\.tar\.gz: has no data_batch_2\.bin, .*, test_batch",
        ),
        (twice | {"b/test_batch.bin": b"x"}, "has a file twice in a/data_batch_1"),
        (twice | {"a/test_batch.bin": b"x"}, r"a\.tar\.gz: test_batch\.bin: must hold records"),
    ):
        archive.write_bytes(tar_gz(inside))
        with pytest.raises(DataError, match=says):
            read(archive)
    archive.write_bytes(tar_gz(twice)[:-3000])
    with pytest.raises(DataError, match="cannot be unpacked at or after 'a/"):
        read(archive)
    archive.write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"must be a folder with data_batch_1\.bin, or the \.tar"):
        read(archive)


def test_cifar_100_is_not_taken_for_cifar_10(tmp_path: Path) -> None:
    folder = write_all(tmp_path, cifar100_files(5))
    with pytest.raises(DataError, match=r"has no data_batch_1\.bin"):
        read(folder)
    made = read_cifar100(find_cifar100(folder), in_memory, lambda done, of: None)
    assert made.y.tolist() == [0, 1, 2, 3, 4] * 2
