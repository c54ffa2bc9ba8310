"""IDX, the format of MNIST, Fashion-MNIST and EMNIST: a big-endian header, then the raw array."""

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Bools, Ints
from coterie.core.boundary import reader
from coterie.core.errors import DataError
from coterie.data.files import at_most, check_room, find_all
from coterie.data.targets import check_labels

UNSIGNED_BYTE = 0x08
LONGEST_HEADER = 4 + 4 * 255
MOST_DIMS, MOST = 32, 2**62  # that NumPy can have


def find_idx(folder: Path, prefix: str = "", test: str = "t10k") -> list[Path]:
    """Find images and labels of the training part, then of the test part."""
    stems = [
        f"{prefix}{part}-{kind}"
        for part in ("train", test)
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ]
    return find_all(folder, {stem: (stem, f"{stem}.gz") for stem in stems})


@reader(DataError)
def read_idx_pairs(
    files: list[Path], n_classes: int, first_label: int = 0, *, transposed: bool = False
) -> tuple[NDArray[np.uint8], Ints, Bools]:
    """Read files of images and labels in turn and pool them: x [N, 1, height, width], y [N].

    The first two files are the training part. `test` [N] says what is in the others.
    """
    images: list[NDArray[np.uint8]] = []
    labels: list[Ints] = []
    for image_file, label_file in zip(files[::2], files[1::2], strict=True):
        x, y = read_idx(image_file), read_idx(label_file)
        if x.ndim != 3 or y.ndim != 1 or len(x) != len(y) or not x.size:
            raise DataError(
                f"{image_file}: has images {list(x.shape)}, but {label_file.name} has labels "
                f"{list(y.shape)}; there must be as many"
            )
        if images and x.shape[1:] != images[0].shape[1:]:
            raise DataError(
                f"{image_file}: images must have one size, got {list(x.shape[1:])} after "
                f"{list(images[0].shape[1:])}"
            )
        numbers = y.astype(np.int64) - first_label
        check_labels(numbers, n_classes, label_file)
        images.append(x.swapaxes(1, 2) if transposed else x)
        labels.append(numbers)
    test = np.arange(sum(map(len, labels))) >= len(labels[0])
    return np.concatenate(images)[:, None], np.concatenate(labels), test


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read one IDX file of unsigned bytes, plain or gzipped, and reject anything else."""
    head = at_most(path, LONGEST_HEADER)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] != UNSIGNED_BYTE or head[3] == 0:
        raise DataError(
            f"{path}: not an IDX file of unsigned bytes; it must begin 00 00 08, got "
            f"{head[:3].hex(' ') or 'nothing'}"
        )
    n_dims = head[3]
    start = 4 + 4 * n_dims
    if len(head) < start:
        raise DataError(f"{path}: the IDX header is cut off")
    shape = struct.unpack(f">{n_dims}I", head[4:start])
    expected = math.prod(shape)
    check_room(path, expected)
    if n_dims > MOST_DIMS or math.prod(max(length, 1) for length in shape) > MOST:
        raise DataError(f"{path}: {list(shape)} is too large for an array, even for one of nothing")
    data = at_most(path, start + expected + 1)
    if len(data) - start != expected:
        has = "more" if len(data) - start > expected else f"{len(data) - start:,}"
        raise DataError(f"{path}: {list(shape)} needs {expected:,} bytes, the file has {has}")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)
