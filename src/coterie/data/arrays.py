"""Your own data: an .npz, or a folder of .npy files, with `x`, `y` and perhaps `user`, `test`."""

import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Ints
from coterie.core.boundary import reader
from coterie.core.errors import DataError
from coterie.data.dataset import Dataset, Values, check_dataset, refuse_masks
from coterie.data.files import PACKED_MOST, most_unpacked
from coterie.data.npy import claimed_bytes, open_npy
from coterie.data.targets import CHUNK

NAMES = ("x", "y", "user", "test")
CHANNELS = (1, 3, 4)
CLASSES = "np.unique(y, return_inverse=True)[1]"
SURROGATES = (0xD800, 0xDFFF)  # halves of characters, which are none


def find_arrays(path: Path) -> list[Path]:
    """Find the one .npz, or x.npy, y.npy and perhaps user.npy, test.npy in a folder."""
    if path.is_file():
        if path.suffix == ".npy":
            raise DataError(f"{path}: give an .npz, or the folder that x.npy and y.npy are in")
        return [path]
    found = [path / f"{name}.npy" for name in NAMES if (path / f"{name}.npy").is_file()]
    if {"x", "y"} <= {p.stem for p in found}:
        return found
    packed = sorted(path.glob("*.npz"))
    if len(packed) == 1 and not found:
        return packed
    raise DataError(f"{path}: must be an .npz file, or a folder with one or with x.npy and y.npy")


@reader(DataError)
def read_arrays(files: list[Path], name: str = "arrays") -> Dataset:
    """Read x (bytes or floats), y (whole numbers from 0), user (whole numbers or names) and test.

    Where `test` is true, the example is in the data's own test part.
    """
    found = _read_npz(files[0]) if files[0].suffix != ".npy" else {p.stem: _npy(p) for p in files}
    where = files[0] if len(files) == 1 else files[0].parent
    _check_names(found, where)
    y = _labels(found["y"], found["x"], where)
    n_classes = int(y.max()) + 1
    users, names = _users(found["user"], len(y), where) if "user" in found else (None, ())
    x, test = _values(found["x"], where), found.get("test")
    read = Dataset(str(where), x, y, n_classes, users, names, test)
    return replace(check_dataset(read), name=name)


def from_pair(x: NDArray[Any], y: NDArray[Any]) -> Dataset:
    """Make a dataset of an array of examples and one of their labels, by the rules of a file.

    >>> from_pair(np.zeros((4, 3)), np.array([0, 1, 0, 1])).x.dtype
    dtype('float32')
    """
    where = "dataset (x, y)"
    refuse_masks({"x": x, "y": y}, where)
    labels = _labels(y, x, where)
    made = Dataset(where, _values(x, where), labels, int(labels.max()) + 1)
    return replace(check_dataset(made), name="arrays")


def _values(x: NDArray[Any], where: object) -> Values:
    """Return x as bytes or 32-bit floats, images as [N, channels, height, width]."""
    if x.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):  # what is infinite then is refused
            x = x.astype(np.float32, copy=False)
        if x.ndim > 2 and 0 <= x.min() and 1 < x.max() <= 255 and (x[:CHUNK] % 1 == 0).all():
            raise DataError(f"{where}: x looks like pixels; store x.astype(np.uint8)")
    elif x.dtype != np.uint8:
        raise DataError(
            f"{where}: x must be pixels, x.astype(np.uint8), or numbers, x.astype(np.float32); got "
            f"{x.dtype}{'; tokens need a coterie.Dataset in Python' * (x.dtype.kind in 'iu')}"
        )
    if x.ndim == 4 and x.shape[-1] in CHANNELS and x.shape[1] not in CHANNELS:
        raise DataError(
            f"{where}: x looks like [N, height, width, channels], got {list(x.shape)}; store "
            "x.transpose(0, 3, 1, 2)"
        )
    return x[:, None] if x.ndim == 3 else x


def _labels(y: NDArray[Any], x: NDArray[Any], where: object) -> Ints:
    """Return y as whole numbers 0 to C-1, each of which there is."""
    if x.ndim == 0 or not len(x):
        raise DataError(f"{where}: x has no examples, got {list(x.shape)}")
    if y.shape != x.shape[:1]:
        raise DataError(
            f"{where}: y must be one label for each example of x, [{len(x)}], got {list(y.shape)}"
            f"{_other_tasks(y, x)}"
        )
    known, numbers = np.unique(y, return_inverse=True)
    if y.dtype.kind not in "iu" or not np.array_equal(known, np.arange(len(known))):
        few = ", ".join(str(v) for v in known[:4].tolist()) + (", ..." if len(known) > 4 else "")
        raise DataError(
            f"{where}: labels must be whole numbers from 0 without gaps, got {few}"
            f"{_ways_out(y, known)}"
        )
    if len(known) < 2:
        raise DataError(f"{where}: all labels are {known[0]}; there must be two classes or more")
    return numbers.astype(np.int64)


def _other_tasks(y: NDArray[Any], x: NDArray[Any]) -> str:
    """Say what takes targets that have columns."""
    if y.ndim != 2 or len(y) != len(x):
        return ""
    if y.dtype.kind == "f":
        return f"; {_python('regression')}"
    if y.shape == x.shape and x.dtype.kind in "iu":
        return f"; {_python('next-token')}"
    return f"; {_python('multi-label')}, or 'regression'"


def _ways_out(y: NDArray[Any], known: NDArray[Any]) -> str:
    """Say how these become classes, and what takes them as numbers where they may be some."""
    if y.dtype.kind == "f" and (known % 1 != 0).any():
        return f"; {_python('regression')}"
    number = "" if y.dtype.kind not in "iuf" else f"; {_python('regression')} if they are amounts"
    return f"; store {CLASSES}{number}"


def _python(task: str) -> str:
    return f"in Python use coterie.Dataset(..., task={task!r})"


def _users(values: NDArray[Any], n: int, where: Path) -> tuple[Ints, tuple[str, ...]]:
    if values.dtype.kind not in "iuU" or values.shape != (n,):
        raise DataError(
            f"{where}: user must be a whole number or name for each example of x, [{n}], got "
            f"{values.dtype} {list(values.shape)}"
        )
    if values.dtype.kind == "U":
        _check_text(values, where)
    known, numbers = np.unique(values, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(name) for name in known)


def _check_text(values: NDArray[Any], where: Path) -> None:
    """Refuse names with numbers in them that are no characters, which NumPy does not look at."""
    native = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    codes = native.view(np.uint32)
    wrong = (codes > sys.maxunicode) | ((codes >= SURROGATES[0]) & (codes <= SURROGATES[1]))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        example = at * len(values) // len(codes)
        raise DataError(f"{where}: user of example {example} is no text, it has 0x{codes[at]:x}")


def _npy(path: Path) -> NDArray[Any]:
    with _reading(path):
        return open_npy(path, mapped=True)


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an .npz, all refused if their headers claim what they do not hold."""
    found: dict[str, NDArray[Any]] = {}
    with _reading(path), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_names([member.filename.removesuffix(".npy") for member in members], path)
        size = sum(_claimed(archive, member) for member in members)
        if size > most_unpacked(packed := path.stat().st_size):
            raise ValueError(
                f"unpacks to {size:,} bytes, over {PACKED_MOST} times its {packed:,}; if that is "
                "right, write it by np.savez"
            )
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in found:
                raise ValueError(f"{member.filename} is there twice")
            with archive.open(member) as file:
                found[name] = np.lib.format.read_array(file, allow_pickle=False)
    return found


def _claimed(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Return how many bytes of array a member claims, which must be what it has."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename} is packed in a way that NumPy does not use")
    with archive.open(member) as file:
        size = claimed_bytes(file, member.filename)
        room = member.file_size - file.tell()
    if size != room:
        raise ValueError(f"{member.filename} claims {size:,} bytes and has {room:,}")
    return size


def _check_names(names: Iterable[str], where: Path) -> None:
    """Refuse arrays of other names than x, y and perhaps user, test, before any is read."""
    if not {"x", "y"} <= set(names) <= set(NAMES):
        known = sorted(set(names))
        has = ", ".join(repr(name[:40]) for name in known[:8]) or "nothing"
        more = f" and {len(known) - 8:,} more" if len(known) > 8 else ""
        raise DataError(f"{where}: must hold 'x', 'y' and perhaps 'user', 'test', has {has}{more}")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except (
        *(OSError, EOFError, ValueError, TypeError, RuntimeError, NotImplementedError),
        *(zipfile.BadZipFile, zlib.error, MemoryError, OverflowError, KeyError),
    ) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{path}: not arrays as NumPy writes them ({reason})") from error
