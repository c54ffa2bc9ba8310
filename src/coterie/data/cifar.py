"""CIFAR-10 and CIFAR-100 as their authors distribute them: binary records of label and pixels."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from coterie.core.boundary import reader
from coterie.core.errors import DataError
from coterie.core.types import Tick
from coterie.data.archive import is_archive, members
from coterie.data.dataset import Dataset, Room, in_memory
from coterie.data.files import find_all, unpacked

SHAPE = (3, 32, 32)  # red, then green, then blue, each row by row
PIXELS = 3 * 32 * 32
MOST_RECORDS = 1_000_000  # of a file; the official ones have 10,000 or 50,000


@dataclass(frozen=True)
class Layout:
    """The files of a dataset, tests last, and the bytes of a record that are no pixels."""

    files: tuple[str, ...]
    labels: int  # bytes before the pixels, of which the last is the label
    n_classes: int


CIFAR10 = Layout((*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"), 1, 10)
CIFAR100 = Layout(("train.bin", "test.bin"), 2, 100)


def find_cifar(path: Path, layout: Layout) -> list[Path]:
    """Find the files of a layout in a folder; or take an archive that they are in, as it is."""
    if not path.is_file():
        return find_all(path, {name: (name, f"{name}.gz") for name in layout.files})
    if not is_archive(path):
        raise DataError(f"{path}: must be a folder with {layout.files[0]}, or the .tar.gz of it")
    return [path]


@reader(DataError)
def read_cifar(
    files: list[Path], layout: Layout, room: Room = in_memory, tick: Tick = lambda done, of: None
) -> Dataset:
    """Read what `find_cifar` found: x [N, 3, 32, 32], labels, and which of them are for tests.

    Of CIFAR-100's two labels it is the fine one of 100.
    """
    parts = [(where, _records(content, layout, where)) for where, content in _each(files, layout)]
    x = room((sum(len(records) for _, records in parts), *SHAPE))
    y = np.empty(len(x), dtype=np.int64)
    start = 0
    for done, (where, records) in enumerate(parts):
        tick(done, len(parts))
        end = start + len(records)
        y[start:end] = _labels(records, layout, where)
        x[start:end] = records[:, layout.labels :].reshape(-1, *SHAPE)
        start = end
    tick(len(parts), len(parts))
    test = np.arange(len(x)) >= len(x) - len(parts[-1][1])
    return Dataset("", x, y, layout.n_classes, test=test)


def _each(files: list[Path], layout: Layout) -> list[tuple[str, bytes | bytearray]]:
    """Return the name and the content of every file, from a folder or out of an archive."""
    size = MOST_RECORDS * (layout.labels + PIXELS)
    if len(files) > 1:
        return [(str(path), unpacked(path, size)) for path in files]
    archive = files[0]
    found = members(archive, lambda name: PurePosixPath(name).name in layout.files, max_files=64)
    by_name = {PurePosixPath(name).name: content for name, content in found.items()}
    if missing := [name for name in layout.files if name not in by_name]:
        raise DataError(f"{archive}: has no {', '.join(missing)} in it")
    if len(by_name) < len(found):
        raise DataError(f"{archive}: has a file twice in {', '.join(sorted(found))}")
    return [(f"{archive}: {name}", by_name[name]) for name in layout.files]


def _records(content: bytes | bytearray, layout: Layout, where: str) -> NDArray[np.uint8]:
    """Return a row for every record [n, labels and pixels]."""
    width = layout.labels + PIXELS
    if not content or len(content) % width:
        raise DataError(
            f"{where}: must hold records of {width:,} bytes, has {len(content):,} bytes, which is "
            f"{len(content) / width:.2f} records; it is cut off, or another file"
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(-1, width)


def _labels(records: NDArray[np.uint8], layout: Layout, where: str) -> NDArray[np.uint8]:
    labels = records[:, layout.labels - 1]
    if (wrong := np.flatnonzero(labels >= layout.n_classes)).size:
        raise DataError(
            f"{where}: labels must be 0 to {layout.n_classes - 1}, got {labels[wrong[0]]} in "
            f"record {wrong[0]}"
        )
    return labels


def _read(files: list[Path], room: Room, tick: Tick, *, layout: Layout) -> Dataset:
    return read_cifar(files, layout, room, tick)


find_cifar10, read_cifar10 = partial(find_cifar, layout=CIFAR10), partial(_read, layout=CIFAR10)
find_cifar100, read_cifar100 = partial(find_cifar, layout=CIFAR100), partial(_read, layout=CIFAR100)
