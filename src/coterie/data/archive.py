"""Unpack a zip or tar archive from a stranger: plain files, inside one folder, within bounds."""

import re
import stat
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from io import FileIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

from coterie.core.errors import DataError
from coterie.data.files import most_unpacked

MAX_BYTES = 1 << 33
MAX_FILES = 1 << 18
CHUNK = 1 << 16
ZIP_DIRECTORY = 1 << 26  # bytes; zipfile takes the whole of it into memory, as it takes ...
ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # ... what another method decompresses to
UNSAFE = re.compile(r"\Z|/|.*[\\\0]|(.*/)?(\.\.(/|\Z)|[A-Za-z]:)|([^/]*/){33}", re.DOTALL)
PATH_RULE = "must be a relative path without '..', backslash, NUL or drive, 32 folders deep at most"
KIND_RULE = "must be a plain file or a folder, not a link, a device or sparse"
Member = tuple[tarfile.TarInfo, str, Iterator[bytes]]  # "file", "folder" or a fault; content
TarMode = Literal["r:", "r:gz", "r:bz2", "r:xz"]
# Debian 12's Python 3.11.2 has no filter; the rules here are whole without it.
DATA_FILTER: Any = getattr(tarfile, "data_filter", lambda info, into: info)


def is_archive(path: Path) -> bool:
    """Whether the content is a zip or tar with a member, compressed or not, whatever its name."""
    try:
        return bool(next(_batches(path), None))
    except Exception:  # readers of bytes from anyone fail in ways that they do not document
        return False


def unpack(
    archive: Path,
    into: Path,
    *,
    max_bytes: int = MAX_BYTES,
    max_files: int = MAX_FILES,
    tick: Callable[[int], None] = lambda n_bytes: None,
) -> None:
    """Unpack `archive` into `into`, a new or empty folder in one that exists, wholly or not at all.

    It is unpacked beside `into` and renamed. What could write outside of it, hide a file or fill
    the disk is refused; modes and times are ignored; macOS's `__MACOSX` and `._x` are skipped.
    """
    into, at = into.resolve(), ""
    try:
        if into.exists() and (not into.is_dir() or any(into.iterdir())):
            raise DataError(f"{into}: must be new or empty to unpack {archive.name} into it")
        with TemporaryDirectory(dir=into.parent, prefix=".unpack-") as beside:
            max_bytes = min(max_bytes, most_unpacked(archive.stat().st_size))
            (root := Path(beside) / "files").mkdir()  # `beside` is open to its owner only
            for info, kind, pieces in _checked(archive, max_bytes, max_files):
                at = f" at or after {info.name[:200]!r}"
                to = root / DATA_FILTER(info, root).name
                if kind == "folder":
                    to.mkdir(parents=True, exist_ok=True)
                else:
                    _write(to, info.size, pieces, tick)
            root.replace(into)
    except DataError:
        raise
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{archive}: cannot be unpacked{at} ({why})") from error


def members(
    archive: Path,
    wanted: Callable[[str], bool],
    *,
    max_bytes: int = MAX_BYTES,
    max_files: int = MAX_FILES,
) -> dict[str, bytes]:
    """Read the files that are wanted by name out of an archive, by the rules of `unpack`."""
    found: dict[str, bytes] = {}
    at = ""
    try:
        max_bytes = min(max_bytes, most_unpacked(archive.stat().st_size))
        for info, kind, pieces in _checked(archive, max_bytes, max_files):
            at = f" at or after {info.name[:200]!r}"
            if kind == "file" and wanted(info.name):
                found[info.name] = _content(info.size, pieces)
    except DataError:
        raise
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{archive}: cannot be unpacked{at} ({why})") from error
    return found


def _content(size: int, pieces: Iterator[bytes]) -> bytes:
    content = bytearray()
    for piece in pieces:
        content += piece
        if len(content) > size:
            break
    if len(content) != size:
        raise EOFError(f"{size} bytes are declared, {len(content)} came out")
    return bytes(content)


def _write(to: Path, size: int, pieces: Iterator[bytes], tick: Callable[[int], None]) -> None:
    left = size
    to.parent.mkdir(parents=True, exist_ok=True)
    with to.open("xb") as file:
        for piece in pieces:
            left -= len(piece)
            if left < 0:  # the declared sizes were summed, so that this bounds the disk
                break
            file.write(piece)
            tick(len(piece))
    if left:
        raise EOFError(f"{size} bytes are declared, {size - left} came out")


def _checked(archive: Path, max_bytes: int, max_files: int) -> Iterator[Member]:
    """Yield the members to write, a batch only when all of its names, kinds and sizes are right."""
    seen: dict[str, tuple[str, str]] = {}
    n_members = n_bytes = 0
    for batch in _batches(archive):
        good: list[Member] = []
        for info, kind, pieces in batch:
            name, n_members, n_bytes = info.name, n_members + 1, n_bytes + info.size
            parts = [part for part in name.split("/") if part not in ("", ".")]
            skip = any(part == "__MACOSX" or part.startswith("._") for part in parts)
            broken = PATH_RULE if UNSAFE.match(name) or (kind != "folder" and not parts) else ""
            if n_members > max_files:
                broken = f"is one member more than the {max_files} allowed"
            elif info.size < 0 or n_bytes > max_bytes:
                broken = f"makes it {n_bytes} bytes, {max_bytes} are allowed"
            elif not broken and not skip:
                broken = _misplaced(parts, kind, seen)
            if broken:
                raise DataError(f"{archive}: {name[:200]!r} {broken}")
            if parts and not skip:
                info.name = "/".join(parts)
                good.append((info, kind, pieces))
        yield from good


def _misplaced(parts: list[str], kind: str, seen: dict[str, tuple[str, str]]) -> str:
    """Note a member and the folders on its way; say what is wrong with its kind or its place."""
    for n in range(1, len(parts) + 1):
        path, this = "/".join(parts[:n]), kind if n == len(parts) else "way"
        key = unicodedata.normalize("NFC", path).casefold()
        other, was = seen.get(key, (path, ""))
        if other != path or (was and {was, this} not in ({"way"}, {"way", "folder"})):
            return f"must not meet {other!r}: a path is one file or one folder in any letter case"
        seen[key] = (path, was if this == "way" and was else this)
    return "" if kind in ("file", "folder") else kind


def _batches(archive: Path) -> Iterator[list[Member]]:
    modes: dict[bytes, TarMode] = {b"\x1f\x8b": "r:gz", b"BZ": "r:bz2", b"\xfd7": "r:xz"}
    with archive.open("rb") as file:
        magic = file.read(4)
    is_zip = magic in (b"PK\3\4", b"PK\5\6")
    return _zip(archive) if is_zip else _tar(archive, modes.get(magic[:2], "r:"))


def _pieces(opened: Callable[..., Any], *args: Any) -> Iterator[bytes]:
    with opened(*args) as source:
        yield from iter(lambda: source.read(CHUNK), b"")


def _zip(archive: Path) -> Iterator[list[Member]]:
    def member(info: zipfile.ZipInfo) -> Member:
        header = tarfile.TarInfo(info.orig_filename)
        header.size, kind = info.file_size, "folder" if header.name.endswith("/") else "file"
        if info.flag_bits & 1:
            kind = "must not be encrypted"
        elif info.compress_type not in ZIP_METHODS:
            kind = f"must be stored or deflated, not compressed by method {info.compress_type}"
        elif stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            kind = KIND_RULE
        elif kind == "folder" and info.file_size:
            kind = "must not be a folder with content"
        return header, kind, _pieces(zipped.open, info)

    with _ZipSource(archive) as file, zipfile.ZipFile(file) as zipped:
        yield [member(info) for info in zipped.infolist()]


class _ZipSource(FileIO):
    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > ZIP_DIRECTORY:
            raise ValueError(f"a directory of {size} bytes")
        return super().read(size)


def _tar(archive: Path, mode: TarMode) -> Iterator[list[Member]]:
    with tarfile.open(archive, mode, tarinfo=_TarHeader) as tar:
        while (info := tar.next()) is not None:
            vars(tar)["members"].clear()  # or tarfile keeps all headers in memory
            if not getattr(info, "checked", False):
                raise ValueError("this Python reads tar archives in a way that is not known")
            plain = info.isreg() and not info.issparse()
            kind = "folder" if info.isdir() else "file" if plain else KIND_RULE
            yield [(info, kind, _pieces(tar.extractfile, info))]
        for _ in islice(_pieces(lambda: tar.fileobj), 256):
            pass  # the checksum of a compressed file comes after the padding


class _TarHeader(tarfile.TarInfo):
    """A header that is checked before tarfile reads what it announces."""

    checked = False

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tar)
        except tarfile.HeaderError as error:
            if isinstance(error, vars(tarfile)["EOFHeaderError"]):
                raise  # zeros: the end; tarfile would also take what is damaged or missing for it
            raise ValueError(f"cut off, damaged or no archive: {error}") from error

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        if self.size < 0 or (self.type in b"gxXLK" and self.size > CHUNK):
            raise ValueError(f"a header of {self.size} bytes")  # of any size, tarfile would read it
        self.checked = True
        parent: Any = super()
        return parent._proc_member(tar)
