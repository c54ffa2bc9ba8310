"""Files of a dataset, plain or gzipped, read without trusting what they say of their size."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

from coterie.core.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"
# Of real files LEAF's JSON unpacks to most, 25 times its size; deflate can go up to 1,032 times.
# What is small may: labels that are sorted (840 times), pictures that are empty (1,028).
PACKED_MOST, PACKED_FREE = 100, 1 << 24
PIECE = 1 << 20


def most_unpacked(size: int) -> int:
    """Return the most bytes that a packed file of this size may unpack to.

    >>> most_unpacked(100), most_unpacked(10**6)
    (16777216, 100000000)
    """
    return max(PACKED_FREE, PACKED_MOST * size)


def is_gzip(path: Path) -> bool:
    """Tell a gzipped file by its first two bytes, whatever its name."""
    with _opened(path, as_it_is=True) as file:
        return file.read(2) == GZIP_MAGIC


def check_room(path: Path, needed: int) -> None:
    """Refuse, before it takes memory, a file that is too small to hold so many bytes in earnest."""
    size, packed = path.stat().st_size, is_gzip(path)
    if packed and needed > most_unpacked(size):
        raise DataError(
            f"{path}: unpacks to {needed:,} bytes or more, over {PACKED_MOST} times its {size:,}; "
            "if that is right, gunzip it first"
        )
    if not packed and needed > size:
        raise DataError(f"{path}: needs {needed:,} bytes, the file has {size:,}")


def unpacked(path: Path, limit: int) -> bytearray:
    """Read a file, gunzipped if need be; one that holds more than `limit` bytes is refused."""
    if is_gzip(path):
        limit = min(limit, most_unpacked(path.stat().st_size))
    content = at_most(path, limit + 1)
    if len(content) > limit:
        check_room(path, len(content))
        raise DataError(f"{path}: holds more than {limit:,} bytes")
    return content


def at_most(path: Path, size: int) -> bytearray:
    """Read no more than so many bytes of a file's unpacked content."""
    content = bytearray()  # read(size) at once would take the memory for all of them
    with _opened(path) as file:
        while size > 0 and (piece := file.read(min(size, PIECE))):
            content += piece
            size -= len(piece)
    return content


def content_sha256(path: Path) -> str:
    """Hash what a file holds: of a gzipped one the unpacked bytes, so that packing does not matter.

    >>> content_sha256(Path(__file__)) == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    True
    """
    digest, size = hashlib.sha256(), 0
    with _opened(path) as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            size += len(piece)
            if size > PACKED_FREE:
                check_room(path, size)
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Hash the bytes of a file as they are."""
    with _opened(path, as_it_is=True) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


@contextmanager
def _opened(path: Path, *, as_it_is: bool = False) -> Iterator[BufferedIOBase]:
    """Open a file, gunzipped if need be unless as it is; say which one cannot be read."""
    try:
        with path.open("rb") as file:
            packed = not as_it_is and file.read(2) == GZIP_MAGIC
            file.seek(0)
            yield gzip.GzipFile(fileobj=file) if packed else file
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataError(f"{path}: cannot be read ({reason})") from error
