"""Files of arrays: safetensors, with the rest as JSON in the header, and sums of both.

What was altered on the disk is noticed, and told in one line. Sizes that a file declares are held
against its own before any memory is asked for.
"""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from coterie.core.convert import convert
from coterie.core.errors import short
from coterie.core.files import write_atomically
from coterie.core.types import Json
from coterie.flower.messages import Arrays

KEY, SUMS = "coterie", "sums"
LENGTH = 8  # bytes at the start of a file that say how long its header is
LONGEST = 100_000_000  # bytes of a header, as safetensors has it
MOST = 2**53  # beyond this a whole number is not exact as a float


def write_tensors(path: Path, arrays: Arrays, about: Mapping[str, Any]) -> None:
    """Write arrays and what is to be known about them, whole or not at all."""
    from safetensors.numpy import save

    whole = {key: np.asarray(array, order="C") for key, array in arrays.items()}
    plain: Json = json.loads(json.dumps(dict(about), default=repr))
    plain[SUMS] = [_sum_of(plain), digest_of(whole)]
    write_atomically(path, save(whole, {KEY: json.dumps(plain)}))


def read_about(path: Path, kind: type[object]) -> Json:
    """Return what is to be known about the arrays of a file, in which all is as `kind` has it.

    A file that is not there is a FileNotFoundError, one that is not as it was written a ValueError.
    """
    with _opened(path) as file:
        return _about(_header(file), kind)[0]


def read_tensors(path: Path, kind: type[object]) -> tuple[Json, Arrays]:
    """Read a file whole; see `read_about`."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    with _opened(path) as file:
        header = _header(file)
        about, sums = _about(header, kind)
        file.seek(0)
        try:
            arrays: Arrays = load(file.read())
        except (SafetensorError, AttributeError, KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"its arrays cannot be read: {short(str(error))}") from error
        except MemoryError as error:
            raise ValueError("there is no memory for its arrays") from error
    if sums is not None and sums[1] != digest_of(arrays):
        raise ValueError("its arrays are not those that were written")
    return about, arrays


def digest_of(arrays: Arrays, more: str = "") -> str:
    """Name arrays, and a text: the same name for the same ones, and for no others."""
    digest = hashlib.sha256(more.encode(errors="surrogatepass"))
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        kind = f"{array.dtype.str}{array.shape}"
        digest.update(f"\0{name}\0{kind}".encode(errors="surrogatepass"))
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _opened(path: Path) -> BinaryIO:
    """Open a regular file; others, such as a pipe, might never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is no regular file")
    return path.open("rb")


def _header(file: BinaryIO) -> Json:
    """Read the header of a file whose arrays end where the file does."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(LENGTH), "little")
    if size < LENGTH or not 2 <= length <= min(size - LENGTH, LONGEST):
        raise ValueError(f"its header cannot have {length:,} of {size:,} bytes")
    header = _object(file.read(length).decode("utf-8"), "header")
    ends = [_end(part) for name, part in header.items() if name != "__metadata__"]
    if max(ends, default=0) != size - LENGTH - length:
        raise ValueError(f"its arrays do not end where the file does, at {size:,} bytes")
    return header


def _end(part: object) -> int:
    """Return where an array ends, -1 if that is not told."""
    offsets = part.get("data_offsets") if isinstance(part, dict) else None
    if isinstance(offsets, list) and len(offsets) == 2 and isinstance(offsets[1], int):
        return offsets[1]
    return -1


def _about(header: Json, kind: type[object]) -> tuple[Json, list[str] | None]:
    """Return what a header says about the arrays, and its sums; older files have none."""
    words = header.get("__metadata__")
    if not isinstance(words, dict) or list(words) != [KEY] or not isinstance(words[KEY], str):
        raise ValueError("nothing is told of its arrays")
    about = _object(words[KEY], KEY)
    sums = about.pop(SUMS, None)
    convert(about, kind, KEY)
    if sums is None:
        return about, None
    convert(sums, tuple[str, str], SUMS)
    if sums[0] != _sum_of(about):
        raise ValueError("what is told of its arrays is not what was written")
    return about, sums


def _object(text: str, where: str) -> Json:
    """Read a JSON object."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"{where} is nested too deep") from error
    if not isinstance(found, dict):
        raise ValueError(f"{where} is no object")
    return found


def _sum_of(about: Json) -> str:
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()
