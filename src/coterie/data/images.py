"""Your own pictures in folders: `train/<class>/*.jpg` or `.png`, and perhaps `test/<class>/*`."""

import io
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from coterie.core.boundary import reader
from coterie.core.errors import DataError
from coterie.core.regular import read_regular
from coterie.core.types import Tick
from coterie.data.archive import is_archive, members
from coterie.data.asked import Asked
from coterie.data.cache import Reader
from coterie.data.dataset import Dataset, Room, in_memory

PARTS = ("train", "test")
FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG"}
GREY = ("1", "L", "LA")
MODES = (*GREY, "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")  # eight bits a channel
MOST_SIDE = 4096
MOST_PIXELS = MOST_SIDE * MOST_SIDE  # of a picture
MOST_PICTURES = 1_000_000
MOST_FILE = 1 << 26  # bytes of a picture as it is stored
MOST_ARCHIVE = 1 << 31  # bytes of pictures in an archive, which are held in memory
MOST_BYTES = 1 << 35  # of all pictures together, unpacked
BATCH = 512  # pictures decoded before progress is told
Size = tuple[int, int, int]  # channels, height, width


@dataclass(frozen=True)
class Picture:
    """Where a picture is, which part and class it is of, and how its bytes are had."""

    where: str
    part: str
    label: str
    content: Callable[[], bytes]


def find_images(path: Path) -> list[Path]:
    """Find the pictures below train and test; or take an archive of them as it is."""
    if path.is_file():
        if not is_archive(path):
            raise DataError(f"{path}: must be a folder with train/<class>/*.jpg, or its .tar.gz")
        return [path]
    found = [file for part in PARTS for file in _in_part(path / part)]
    if not (path / PARTS[0]).is_dir() or not found:
        raise DataError(f"{path}: has no pictures in it; they must be in train/<class>/*.jpg")
    return found


def _in_part(folder: Path) -> Iterator[Path]:
    """Yield the pictures of a part, class by class; what is hidden is left out."""
    for inside in sorted(folder.iterdir()) if folder.is_dir() else []:
        if inside.name.startswith("."):
            continue
        if not inside.is_dir():
            raise DataError(f"{inside}: must be a folder, named after the class of its pictures")
        there = sorted(file for file in inside.iterdir() if not file.name.startswith("."))
        if not there:
            raise DataError(f"{inside}: has no pictures in it")
        yield from there


@reader(DataError)
def read_images(
    files: list[Path],
    side: int = 0,
    room: Room = in_memory,
    tick: Tick = lambda done, of: None,
) -> Dataset:
    """Read what `find_images` found: x [N, 3, height, width], or [N, 1, ...] if all are grey.

    Labels count the folders of train in the order of their names. With a `side`, pictures are
    resized to that many pixels in height and width; else all must have the size of the first.
    """
    pictures = _from_archive(files[0]) if _is_packed(files) else _from_files(files)
    if len(pictures) > MOST_PICTURES:
        raise DataError(f"{files[0]}: {len(pictures):,} pictures; at most {MOST_PICTURES:,}")
    labels = sorted({picture.label for picture in pictures if picture.part == PARTS[0]})
    number = {label: i for i, label in enumerate(labels)}
    for picture in pictures:
        if picture.label not in number:
            raise DataError(f"{picture.where}: its class {picture.label!r} is not in train")
    if len(labels) < 2:
        raise DataError(
            f"{pictures[0].where}: all pictures are of one class, {labels[0]!r}; there must be two "
            "or more"
        )
    y = np.array([number[picture.label] for picture in pictures], dtype=np.int64)
    test = np.array([picture.part == PARTS[1] for picture in pictures])
    x = _decoded(pictures, side, room, tick)
    return Dataset("", x, y, len(labels), test=test if test.any() else None)


def reading_images(asked: Asked) -> Reader:
    """Return a reader of pictures of the size that is asked."""

    def read(files: list[Path], room: Room, tick: Tick) -> Dataset:
        return read_images(files, asked.side, room, tick)

    return read


def _is_packed(files: list[Path]) -> bool:
    return len(files) == 1 and files[0].suffix.lower() not in FORMATS


def _from_files(files: list[Path]) -> list[Picture]:
    return [
        Picture(str(f), f.parents[1].name, f.parent.name, partial(read_regular, f, MOST_FILE))
        for f in files
    ]


def _from_archive(archive: Path) -> list[Picture]:
    """Take the pictures of an archive, in the order of their names; all are in one folder's."""
    found = members(archive, _is_placed, max_bytes=MOST_ARCHIVE)
    tops = sorted({name.rpartition(f"{'/'.join(_place(name))}")[0] for name in found})
    if len(tops) > 1:
        raise DataError(f"{archive}: has train or test in {tops[0]!r} and in {tops[1]!r}; keep one")
    if not any(_place(name)[0] == PARTS[0] for name in found):
        raise DataError(f"{archive}: has no pictures in it; they must be in train/<class>/*.jpg")
    order = sorted(found, key=lambda name: (PARTS.index(_place(name)[0]), *_place(name)[1:]))
    return [
        Picture(f"{archive}: {name}", *_place(name)[:2], partial(found.__getitem__, name))
        for name in order
    ]


def _place(name: str) -> tuple[str, str, str]:
    part, label, file = PurePosixPath(name).parts[-3:]
    return part, label, file


def _is_placed(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return len(parts) > 2 and parts[-3] in PARTS and not parts[-1].startswith(".")


def _decoded(pictures: list[Picture], side: int, room: Room, tick: Tick) -> NDArray[np.uint8]:
    """Decode all pictures on every core, each as the first is."""
    from PIL import Image

    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        first = _decode(pictures[0], side, None)
        size: Size = (first.shape[0], first.shape[1], first.shape[2])
        if (needed := len(pictures) * first.size) > MOST_BYTES:
            raise DataError(
                f"{pictures[0].where}: {len(pictures):,} pictures of {_by(size)} make {needed:,} "
                f"bytes, at most {MOST_BYTES:,}; set data.side to make them smaller"
            )
        x = room((len(pictures), *size))
        one = partial(_decode, side=side, size=size)
        for start in range(0, len(pictures), BATCH):
            tick(start, len(pictures))
            for i, picture in enumerate(pool.map(one, pictures[start : start + BATCH])):
                x[start + i] = picture
    tick(len(pictures), len(pictures))
    return x


def _decode(picture: Picture, side: int, size: Size | None) -> NDArray[np.uint8]:
    """Decode a picture as RGB [3, height, width]; as [1, ...] if it, or the first, is grey."""
    from PIL import Image

    where = picture.where
    suffix = PurePosixPath(where).suffix.lower()
    if suffix not in FORMATS:
        raise DataError(f"{where}: must be a .jpg, .jpeg or .png")
    try:
        with Image.open(io.BytesIO(picture.content()), formats=(FORMATS[suffix],)) as opened:
            high, wide, mode = opened.height, opened.width, opened.mode
            if high * wide > MOST_PIXELS:
                raise DataError(f"{where}: {high}x{wide} is too large a picture")
            if mode not in MODES:
                raise DataError(f"{where}: its pixels are {mode!r}, which have not eight bits each")
            grey = mode in GREY if size is None else size[0] == 1
            if grey and mode not in GREY:
                raise DataError(
                    f"{where}: is in colour, and the first picture is grey; make one so"
                )
            if size and not side and (high, wide) != size[1:]:
                raise DataError(
                    f"{where}: has {high}x{wide} pixels, the first picture {size[1]}x{size[2]}; "
                    "set data.side to resize all of them"
                )
            shown = opened.convert("L" if grey else "RGB")
            pixels = np.asarray(shown.resize((side, side)) if side else shown)
    except DataError:
        raise
    except Image.DecompressionBombWarning as error:
        raise DataError(f"{where}: is too large a picture") from error
    except Exception as error:  # decoders of bytes from anyone fail in ways not documented
        why = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{where}: not a whole {FORMATS[suffix]} ({why[:200]})") from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _by(size: Size) -> str:
    return "x".join(map(str, size))
