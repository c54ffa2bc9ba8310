"""Who has what: labelled images, and the 3:1:1 split into train, validation and test."""

import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.data.idx import read_idx
from coterie.errors import DataError, unknown

EMBEDDED = Path(__file__).parent / "embedded" / "mnist-f-mini.npz"
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
SPLIT = (3, 1, 1)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images as bytes x [N, channels, height, width], labels y [N] in 0..n_classes-1."""

    name: str
    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    n_classes: int

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of one example."""
        channels, height, width = self.x.shape[1:]
        return channels, height, width


@dataclass(frozen=True, eq=False)
class Split:
    """Example numbers of the three parts; together they are every example once."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]


def split(y: NDArray[np.int64], rng: np.random.Generator) -> Split:
    """Split examples 3:1:1 within every class, so that each part has the classes' proportions.

    >>> parts = split(np.repeat([0, 1], 10), np.random.default_rng(0))
    >>> len(parts.train), len(parts.val), len(parts.test)
    (12, 4, 4)
    """
    parts: list[list[NDArray[np.int64]]] = [[], [], []]
    shares = np.cumsum(SPLIT) / sum(SPLIT)
    for c in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == c))
        cuts = np.rint(shares[:-1] * len(members)).astype(int)
        for part, piece in zip(parts, np.split(members, cuts), strict=True):
            part.append(piece)
    train, val, test = (np.sort(np.concatenate(part)) for part in parts)
    if not (len(train) and len(val) and len(test)):
        raise DataError(f"{len(y)} examples are too few to split 3:1:1 within every class")
    return Split(train, val, test)


def read_idx_folder(folder: Path, name: str = "mnist-f") -> Dataset:
    """Read the four files of MNIST or Fashion-MNIST and pool their train and test parts."""
    pairs = []
    for part in ("train", "t10k"):
        x = read_idx(_find(folder, f"{part}-images-idx3-ubyte"))
        y = read_idx(_find(folder, f"{part}-labels-idx1-ubyte"))
        if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
            raise DataError(f"{folder}: {part} has images {x.shape} but labels {y.shape}")
        pairs.append((x, y))
    if not all(len(x) for x, _ in pairs) or pairs[0][0].shape[1:] != pairs[1][0].shape[1:]:
        shapes = " and ".join(str(x.shape) for x, _ in pairs)
        raise DataError(f"{folder}: train and t10k must hold images of one size, got {shapes}")
    images = np.concatenate([x for x, _ in pairs])[:, None]
    labels = np.concatenate([y for _, y in pairs]).astype(np.int64)
    return Dataset(name, images, labels, int(labels.max()) + 1)


def _find(folder: Path, stem: str) -> Path:
    for candidate in (folder / stem, folder / f"{stem}.gz"):
        if candidate.is_file():
            return candidate
    raise DataError(f"{folder}: no {stem}[.gz] there")


def _embedded(path: Path | None) -> Dataset:
    if path:
        raise DataError(f"mnist-f-mini is embedded and takes no data.path, got {path}")
    try:
        with np.load(EMBEDDED, allow_pickle=False) as arrays:
            x, y = arrays["x"][:, None], arrays["y"].astype(np.int64)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{EMBEDDED}: damaged ({error}); reinstall coterie") from error
    return Dataset("mnist-f-mini", x, y, 10)


def _fashion_mnist(path: Path | None) -> Dataset:
    cache = os.environ.get("COTERIE_DATA")
    places = [path] if path else [Path(cache) / "mnist-f"] if cache else []
    for folder in [*places, *([] if path else [DEBIAN_FASHION_MNIST])]:
        if folder.is_dir():
            return read_idx_folder(folder)
    looked = f"{path}: no such folder" if path else "Fashion-MNIST is not on this machine"
    raise DataError(
        f"{looked}; set data.path to a folder with the four IDX files, or on Debian: "
        "apt-get install dataset-fashion-mnist"
    )


DATASETS: dict[str, tuple[str, Callable[[Path | None], Dataset]]] = {
    "mnist-f-mini": ("7,000 Fashion-MNIST images, embedded in the package", _embedded),
    "mnist-f": ("70,000 Fashion-MNIST images, from IDX files", _fashion_mnist),
}


def load(name: str, path: Path | None = None) -> Dataset:
    """Load a dataset by name; `path` is the folder of its files where it has any.

    >>> data = load("mnist-f-mini")
    >>> data.x.shape, np.bincount(data.y).tolist()
    ((7000, 1, 28, 28), [700, 700, 700, 700, 700, 700, 700, 700, 700, 700])
    """
    if name not in DATASETS:
        raise DataError(unknown("dataset", name, DATASETS))
    return DATASETS[name][1](path)
