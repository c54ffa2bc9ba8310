"""Files of a dataset, plain or gzipped, read without trusting what they say of their size."""

import gzip
import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from coterie.core.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"
DEFLATE_MOST = 1032  # no deflate stream unpacks to more than this many times its size
PIECE = 1 << 20
T = TypeVar("T")


def is_gzip(path: Path) -> bool:
    """Tell a gzipped file by its first two bytes, whatever its name."""
    return _reading(path, lambda: _first(path, 2)) == GZIP_MAGIC


def most_bytes(path: Path) -> int:
    """Return how many bytes the file can unpack to, judging by its size alone."""
    size = path.stat().st_size
    return size * DEFLATE_MOST if is_gzip(path) else size


def unpacked(path: Path, limit: int) -> bytes:
    """Read a file, gunzipped if need be; one that holds more than `limit` bytes is refused."""
    content = at_most(path, limit + 1)
    if len(content) > limit:
        raise DataError(f"{path}: holds more than {limit:,} bytes")
    return content


def at_most(path: Path, size: int) -> bytes:
    """Read no more than so many bytes of a file's unpacked content."""
    if not is_gzip(path):
        return _reading(path, lambda: _first(path, size))
    return _reading(path, lambda: _gunzip(path, size))


def content_sha256(path: Path) -> str:
    """Hash what a file holds: of a gzipped one the unpacked bytes, so that packing does not matter.

    >>> content_sha256(Path(__file__)) == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    True
    """
    digest = hashlib.sha256()

    def read() -> None:
        with gzip.open(path) if is_gzip(path) else path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)

    _reading(path, read)
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Hash the bytes of a file as they are."""

    def read() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return _reading(path, read)


def find_all(folder: Path, wanted: dict[str, tuple[str, ...]]) -> list[Path]:
    """Find one file for each entry below a folder, by its names, of which an earlier goes first."""
    places: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            places.setdefault(path.name, []).append(path)
    found = [
        next((places[name] for name in names if name in places), []) for names in wanted.values()
    ]
    if missing := [what for what, there in zip(wanted, found, strict=True) if not there]:
        raise DataError(f"{folder}: has no {', '.join(missing)} (or .gz) in it")
    for there in found:
        if len(there) > 1:
            raise DataError(f"{folder}: has both {there[0]} and {there[1]}; keep one")
    return [path for (path,) in found]


def _gunzip(path: Path, most: int) -> bytes:
    """Unpack all members of a gzip file, at most so many bytes, without a copy for each member."""
    pieces: list[bytes] = []
    room, stream, between = most, zlib.decompressobj(wbits=31), True
    with path.open("rb") as file:
        while room > 0 and (raw := file.read(PIECE)):
            while raw and room > 0:
                raw = raw.lstrip(b"\0") if between else raw  # padding is allowed after a member
                if not raw:
                    break
                pieces.append(stream.decompress(raw, room))
                room -= len(pieces[-1])
                between = stream.eof
                raw = stream.unused_data if between else stream.unconsumed_tail
                if between:
                    stream = zlib.decompressobj(wbits=31)
    if room > 0 and not between:
        raise EOFError("the gzip file is cut off")
    return b"".join(pieces)


def _first(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _reading(path: Path, read: Callable[[], T]) -> T:
    """Say which file could not be read."""
    try:
        return read()
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataError(f"{path}: cannot be read ({reason})") from error
