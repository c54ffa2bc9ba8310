"""LEAF's JSON: `users`, `num_samples`, and for each user pictures `x` and labels `y`."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Bools, Ints
from coterie.core.boundary import reader
from coterie.core.errors import DataError
from coterie.core.printable import printable
from coterie.core.types import Tick
from coterie.data.files import content_sha256, unpacked
from coterie.data.targets import check_labels

MOST_JSON_BYTES = 1 << 29  # LEAF writes FEMNIST in files of about 120 MB
PARTS = ("train", "test")
PIXEL_ERROR = 1e-3  # of a byte
BLOCK = 256  # pictures decoded together; a number takes 32 bytes until it is a byte


class _User(msgspec.Struct, forbid_unknown_fields=True):
    x: msgspec.Raw  # lists of numbers, which would take 16 times the memory of the text at once
    y: list[int]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    users: list[str]
    num_samples: list[int]
    user_data: dict[str, _User]
    hierarchies: msgspec.Raw = msgspec.Raw()  # not used


def find_leaf(folder: Path) -> list[Path]:
    """Find the .json and .json.gz in LEAF's train and test below a folder, or else in one folder.

    LEAF leaves the same examples in other folders beside these, such as all_data.
    """
    files = sorted(p for p in folder.rglob("*.json*") if p.is_file() and _is_json(p))
    files = [p for p in files if p.parent.name in PARTS] or files
    if not files:
        raise DataError(f"{folder}: no .json or .json.gz of LEAF's in it")
    folders = sorted({p.parent for p in files})
    if len(folders) > (2 if folders[0].name in PARTS else 1):
        raise DataError(f"{folder}: has files in {folders[0]} and {folders[1]}; give one of them")
    twice = [p for p in files if p.suffix == ".gz" and p.with_suffix("") in files]
    if twice:
        raise DataError(f"{twice[0]}: is there unpacked as well; keep one")
    return files


def _is_json(path: Path) -> bool:
    return path.suffixes[-1:] == [".json"] or path.suffixes[-2:] == [".json", ".gz"]


@reader(DataError)
def read_leaf(
    files: list[Path], n_classes: int, shape: tuple[int, ...], tick: Tick = lambda done, of: None
) -> tuple[NDArray[np.uint8], Ints, Ints, tuple[str, ...], Bools | None]:
    """Read files and pool them: pixels x [N, *shape], y [N], users [N], the users' names.

    A user whose examples are in several files, as in LEAF's train and test, is one user. Where
    there are both of these folders, `test` [N] says which examples are in the second.
    """
    xs, ys, owners, tested = [], [], [], []
    number_of: dict[str, int] = {}
    same: dict[str, Path] = {}
    for done, path in enumerate(files):
        tick(done, len(files))
        if (other := same.setdefault(content_sha256(path), path)) != path:
            raise DataError(f"{path}: is the same as {other}; keep one")
        content = _decode(path)
        for user in content.users:
            part = content.user_data[user]
            where = f"{path}: user {user!r}"
            x, y = _pixels(part.x, shape, where), _labels(part.y, n_classes, where)
            number = number_of.setdefault(user, len(number_of))
            if not len(y):  # four arrays of nothing would take 2 kB
                continue
            xs.append(x)
            ys.append(y)
            owners.append(np.full(len(part.y), number, dtype=np.int64))
            tested.append(np.full(len(part.y), path.parent.name == PARTS[1]))
    tick(len(files), len(files))
    if not sum(len(y) for y in ys):
        raise DataError(f"{files[0].parent}: the files have no examples")
    has_both = {path.parent.name for path in files} == set(PARTS)
    test = np.concatenate(tested) if has_both else None
    return np.concatenate(xs), np.concatenate(ys), np.concatenate(owners), tuple(number_of), test


def _decode(path: Path) -> _File:
    """Parse one file and check that its lists agree."""
    try:
        content = msgspec.json.decode(unpacked(path, MOST_JSON_BYTES), type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: not a LEAF file ({printable(str(error))})") from error
    if len(content.users) != len(content.num_samples):
        raise DataError(
            f"{path}: {len(content.users)} users but {len(content.num_samples)} num_samples"
        )
    if sorted(content.users) != sorted(content.user_data):
        odd = sorted(set(content.users) ^ set(content.user_data)) or ["one listed twice"]
        raise DataError(f"{path}: users and user_data differ, first in {odd[0]!r}")
    for user, claimed in zip(content.users, content.num_samples, strict=True):
        part = content.user_data[user]
        n_rows = bytes(part.x).count(b"[") - 1
        if not n_rows == len(part.y) == claimed:
            raise DataError(
                f"{path}: user {user!r} has num_samples {claimed}, but {n_rows} x and "
                f"{len(part.y)} y"
            )
    return content


def _pixels(raw: msgspec.Raw, shape: tuple[int, ...], where: str) -> NDArray[np.uint8]:
    """Turn the JSON of rows of k/255 into bytes k."""
    size = int(np.prod(shape))
    rows, pixels = _rows(bytes(raw), size, shape, where), bytearray()
    while block := list(islice(rows, BLOCK)):
        try:
            numbers = msgspec.json.decode(b"[" + b",".join(block) + b"]", type=list[float])
        except msgspec.MsgspecError as error:
            raise DataError(f"{where}: x must be lists of numbers ({error})") from error
        with np.errstate(over="ignore"):  # 1e308 becomes inf, which is no pixel
            values = np.array(numbers, dtype=np.float64) * 255
        pixels += _whole(values, where).tobytes()
    return np.frombuffer(pixels, dtype=np.uint8).reshape(-1, *shape)


def _rows(text: bytes, size: int, shape: tuple[int, ...], where: str) -> Iterator[bytes]:
    """Yield what is between the brackets of each row, which must be as many values as asked."""
    at, gap = 1, b""
    if text[:1] + text[-1:] != b"[]":
        raise DataError(f"{where}: x must be lists of numbers")
    while (start := text.find(b"[", at)) >= 0 and gap.strip() in (b"", b","):
        end = text.find(b"]", start)
        row, gap, at = text[start + 1 : end], text[at:start], end + 1
        count = row.count(b",") + 1 if row.strip() else 0
        if count != size:
            raise DataError(f"{where} has an x of {count} numbers; {size} make {list(shape)}")
        yield row
    if gap.strip() not in (b"", b",") or text[at:].strip() != b"]":
        raise DataError(f"{where}: x must be lists of numbers")


def _whole(values: NDArray[np.float64], where: str) -> NDArray[np.uint8]:
    """Return values that are bytes, but for rounding, as bytes."""
    with np.errstate(invalid="ignore"):
        exact = np.rint(values)
        fine = (exact >= 0) & (exact <= 255) & (np.abs(values - exact) <= PIXEL_ERROR)
    if not fine.all():
        bad = float(values[~fine][0] / 255)
        raise DataError(f"{where} has a pixel {bad:g}; it must be a byte divided by 255")
    return exact.astype(np.uint8)


def _labels(values: list[int], n_classes: int, where: str) -> Ints:
    try:
        y = np.array(values, dtype=np.int64)
    except OverflowError as error:
        raise DataError(f"{where}: labels must be 0 to {n_classes - 1} ({error})") from error
    check_labels(y, n_classes, where)
    return y
