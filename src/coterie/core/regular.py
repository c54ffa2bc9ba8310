"""Files of folders that may come from anybody: regular ones only, and none that is too large.

A pipe that nobody writes to would keep its reader waiting, and a device never ends.
"""

import errno
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from coterie.core.types import Json

MOST_BYTES = 2**30  # of one file
KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}
FLAGS = ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")  # as far as the system has them


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to be read; what is none is an OSError, and is never waited for."""
    _check(path, path.stat().st_mode)
    flags = sum(getattr(os, name, 0) for name in FLAGS)
    file = os.fdopen(os.open(path, os.O_RDONLY | flags), "rb")
    try:
        _check(path, os.fstat(file.fileno()).st_mode)  # it may have been replaced since
    except OSError:
        file.close()
        raise
    return file


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return what a regular file holds now; more than `most` bytes are an OSError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            rule = f"must have at most {most:,} bytes, has {size:,}"
            raise OSError(errno.EFBIG, rule, str(path))
        return file.read(size)


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """Return the text that a regular file holds now; what is no UTF-8 is a ValueError."""
    try:
        return read_regular(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: not UTF-8, at byte {error.start:,}") from error


def read_mapping(path: Path) -> Json:
    """Read a JSON object that one can do without: empty if it is not there, or is not one."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(read_text(path))
        return content if isinstance(content, dict) else {}
    return {}


def _check(path: Path, mode: int) -> None:
    kind = KINDS.get(stat.S_IFMT(mode), "")
    if kind:
        raise OSError(errno.EINVAL, f"must be a regular file, is {kind}", str(path))
