"""CelebA as it is distributed: aligned JPEGs, who is in each, and forty attributes.

As in LEAF, the label is Smiling, a user is a celebrity with at least five pictures, and pictures
are resized to 84x84.
"""

import io
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Ints
from coterie.core.errors import DataError
from coterie.core.types import Tick
from coterie.data.dataset import Room, in_memory
from coterie.data.files import unpacked

IMAGES, IDENTITIES, ATTRIBUTES = "img_align_celeba", "identity_CelebA.txt", "list_attr_celeba.txt"
LABEL, N_ATTRIBUTES = "Smiling", 40
SIDE = 84
FEWEST_PICTURES = 5
MOST_TEXT_BYTES = 1 << 30
MOST_PIXELS = 4096 * 4096
BATCH = 512  # pictures decoded before progress is told


def find_celeba(folder: Path) -> list[Path]:
    """Find the two lists, then every picture in the order of its name."""
    found: dict[str, list[Path]] = {IDENTITIES: [], ATTRIBUTES: [], IMAGES: []}
    pictures: list[str] = []
    seen: set[tuple[int, int]] = set()
    for at, below, names in os.walk(folder, followlinks=True):  # once, as there are 200,000 files
        here = Path(at)
        stat = here.stat()
        if (stat.st_dev, stat.st_ino) in seen:  # links may lead back, or to one folder twice
            below.clear()
            continue
        seen.add((stat.st_dev, stat.st_ino))
        below.sort(key=lambda name: (Path(at, name).is_symlink(), name))
        for name in {IDENTITIES, ATTRIBUTES}.intersection(names):
            found[name].append(here / name)
        jpegs = [name for name in names if name.endswith(".jpg")]
        if here.name == IMAGES and jpegs:
            found[IMAGES].append(here)
            pictures = sorted(jpegs)
    if missing := [name for name, places in found.items() if not places]:
        raise DataError(
            f"{folder}: has no {', '.join(missing)} in it; {IMAGES} is a folder of .jpg files"
        )
    for places in found.values():
        if len(places) > 1:
            raise DataError(f"{folder}: has both {places[0]} and {places[1]}; keep one")
    (identities,), (attributes,), (images,) = found.values()
    return [identities, attributes, *(images / name for name in pictures)]


def read_celeba(
    files: list[Path], room: Room = in_memory, tick: Tick = lambda done, of: None
) -> tuple[NDArray[np.uint8], Ints, Ints, tuple[str, ...]]:
    """Read what `find_celeba` found: x [N, 3, 84, 84], smiling y [N], celebrities [N], their ids.

    `room` makes the array for x, which may be larger than memory. Pictures are sorted by
    celebrity, then by name.
    """
    identities, attributes, *pictures = files
    celebrity_of, smiles = _read_identities(identities), _read_label(attributes)
    there = {path.name: path for path in pictures}
    _check_same(celebrity_of, smiles, f"{attributes}: has no line for")
    _check_same(smiles, celebrity_of, f"{identities}: has no line for")
    _check_same(celebrity_of, there, f"{identities}: names a picture that is not there,")
    _check_same(there, celebrity_of, f"{identities}: has no line for")
    ids = np.array(list(celebrity_of.values()), dtype=np.int64)
    known, number, count = np.unique(ids, return_inverse=True, return_counts=True)
    if not (count >= FEWEST_PICTURES).any():
        raise DataError(f"{identities}: nobody has {FEWEST_PICTURES} pictures or more")
    names = list(celebrity_of)
    kept = sorted(
        (i for i in range(len(names)) if count[number[i]] >= FEWEST_PICTURES),
        key=lambda i: (ids[i], names[i]),
    )
    x = room((len(kept), 3, SIDE, SIDE))
    _decode_all([there[names[i]] for i in kept], x, tick)
    users, owners = np.unique(number[kept], return_inverse=True)
    y = np.array([smiles[names[i]] for i in kept], dtype=np.int64)
    return x, y, owners.astype(np.int64), tuple(str(known[u]) for u in users)


def _read_identities(path: Path) -> dict[str, int]:
    """Read lines of `000001.jpg 2880`."""
    found: dict[str, int] = {}
    for number, line in _lines(path):
        words = line.split()
        if len(words) != 2 or not _is_number(words[1]):
            raise DataError(f"{path}: line {number} must be a picture and a number, got {line!r}")
        _add(found, words[0], int(words[1]), path, number)
    return found


def _read_label(path: Path) -> dict[str, int]:
    """Read the count, the attributes' names, then lines of a picture and forty times 1 or -1."""
    lines = _lines(path)
    (_, count), (_, header) = (*islice(lines, 2), (1, ""), (2, ""))[:2]
    names = header.split()
    if not _is_number(count.strip()) or len(names) != N_ATTRIBUTES or LABEL not in names:
        raise DataError(f"{path}: must begin with a count and {N_ATTRIBUTES} names, {LABEL!r} too")
    column = 1 + names.index(LABEL)
    found: dict[str, int] = {}
    for number, line in lines:
        words = line.split()
        if len(words) != 1 + N_ATTRIBUTES or words[column] not in ("1", "-1"):
            raise DataError(
                f"{path}: line {number} must be a picture and {N_ATTRIBUTES} times 1 or -1, got "
                f"{line[:40]!r}"
            )
        _add(found, words[0], int(words[column] == "1"), path, number)
    if len(found) != int(count):
        raise DataError(f"{path}: says {count.strip()} pictures, has {len(found)}")
    return found


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 9


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = unpacked(path, MOST_TEXT_BYTES).decode("ascii")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file ({error})") from error
    return ((n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip())


def _add(found: dict[str, int], name: str, value: int, path: Path, number: int) -> None:
    if name in found:
        raise DataError(f"{path}: line {number} names {name} again")
    found[name] = value


def _check_same(left: Mapping[str, object], right: Mapping[str, object], says: str) -> None:
    if missing := left.keys() - right.keys():
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise DataError(f"{says} {min(missing)}{more}")


def _decode_all(paths: list[Path], x: NDArray[np.uint8], tick: Tick) -> None:
    """Decode pictures into x on every core; the decoder leaves Python's lock alone."""
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), BATCH):
            tick(start, len(paths))
            for i, picture in enumerate(pool.map(_decode, paths[start : start + BATCH])):
                x[start + i] = picture
    tick(len(paths), len(paths))


def _decode(path: Path) -> NDArray[np.uint8]:
    """Decode one JPEG as LEAF does: resize by Pillow's default (bicubic), then RGB [3, 84, 84]."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(path.read_bytes()), formats=("JPEG",)) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise DataError(f"{path}: {picture.width}x{picture.height} is too large a picture")
            small = picture.resize((SIDE, SIDE)).convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: not a whole JPEG ({error})") from error
    return np.asarray(small).transpose(2, 0, 1)
