"""Files that are whole or not there: written beside their place and renamed; and who has one."""

import errno
import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any

from coterie.core.errors import RecordError

PLAIN = {int, float, str, bool, type(None)}
READER_S = 3.0  # how long a pipe may have no reader yet, as when both begin at once


@contextmanager
def replacing(path: Path, mode: int = 0o644) -> Iterator[Path]:
    """Give the path of an empty file beside `path`, which takes its place unless something fails.

    Readers see all of it or none, whatever fails; when this ends it is on the disk.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        os.close(handle)
        yield Path(name)
        with Path(name).open("r+b") as file:
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
        _sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_atomically(path: Path, *content: bytes, mode: int = 0o644) -> None:
    """Write a file so that readers see all of it or none; until then only its owner reads it."""
    with replacing(path, mode) as beside, beside.open("wb") as file:
        file.writelines(content)


def write_out(path: Path, content: bytes) -> None:
    """Write a file that a user named: a link stays, what it leads to is replaced as a whole.

    What is no regular file, such as a device, a pipe or /dev/stdout, is written through. A pipe
    that nobody reads is an OSError.
    """
    if (stream := standard_stream(path)) is not None:
        with suppress(AttributeError, ValueError):  # a stream that was closed, or taken away
            (sys.stdout, sys.stderr)[stream - 1].flush()
        with os.fdopen(os.dup(stream), "wb") as file:  # opened anew it would begin at its start
            file.write(content)
    elif is_special(path):
        with open(path, "wb", opener=_when_read) as file:
            file.write(content)
    else:
        place = Path(os.path.realpath(path))
        if place.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        write_atomically(place, content)


def _when_read(path: str, flags: int) -> int:
    """Open a pipe or device for writing; opening a pipe would wait for ever where nobody reads."""
    deadline = time.monotonic() + READER_S
    while True:
        try:
            handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > deadline:
                raise OSError(error.errno, "nobody reads this pipe", path) from error
            time.sleep(0.02)
        else:
            os.set_blocking(handle, True)
            return handle


def is_special(path: Path) -> bool:
    """Whether a path leads to what is neither a regular file nor a folder."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def standard_stream(path: Path) -> int | None:
    """Return 1 or 2 where a path leads to what this process has as stdout or stderr."""
    for stream in (1, 2):
        with suppress(OSError, ValueError):
            if os.path.samestat(path.stat(), os.fstat(stream)):
                return stream
    return None


def write_json(path: Path, content: object) -> None:
    """Write JSON under a temporary name and rename it into place."""
    write_atomically(path, json_bytes(content))


def json_bytes(content: object) -> bytes:
    r"""Return JSON as files have it: a space a level, and numbers that are numbers.

    >>> json_bytes({"z": [0, 1], "status": "complete"})
    b'{\n "z": [\n  0,\n  1\n ],\n "status": "complete"\n}\n'
    """
    if isinstance(content, dict) and content and {type(key) for key in content} == {str}:
        parts = (f"{json.dumps(key)}: {_indented(value)}" for key, value in content.items())
        text = "{\n " + ",\n ".join(parts) + "\n}"
    else:
        text = json.dumps(content, indent=1, allow_nan=False)
    return (text + "\n").encode()


def _indented(value: object) -> str:
    """Return JSON a level in; long lists of a million nodes by the encoder that cannot indent."""
    if type(value) is list and value:
        kinds = set(map(type, value))
        if kinds <= PLAIN:
            return f"[\n  {_joined(value, '  ')[1:-1]}\n ]"
        if kinds == {list} and all(value) and set(map(type, chain.from_iterable(value))) == {int}:
            rows = _joined(value, "   ")[2:-2].replace("],\n   [", "\n  ],\n  [\n   ")
            return f"[\n  [\n   {rows}\n  ]\n ]"
    # no string has a line's end that is not escaped
    return json.dumps(value, indent=1, allow_nan=False).replace("\n", "\n ")


def _joined(values: list[Any], pad: str) -> str:
    return json.dumps(values, separators=(f",\n{pad}", ": "), allow_nan=False)


@contextmanager
def writing(path: Path, way_out: str = "") -> Iterator[None]:
    """Say in one line that a file or folder cannot be written, and what to do about it."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise RecordError(f"{path}: cannot be written ({reason}){way_out}") from error


def lock(file: IO[bytes], folder: Path, wait_s: float = 0.0) -> None:
    """Take a file of a folder for as long as it stays open; refuse if another process has it."""
    if sys.platform == "win32":
        return
    import fcntl

    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                file.close()
                raise RecordError(
                    f"{folder}: another process is running it; wait for that one or stop it"
                ) from error
            time.sleep(0.1)
        except OSError:  # a file system without locks
            return
        else:
            return


def _sync_folder(folder: Path) -> None:
    """Wait until a folder's names are on the disk, where the file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
