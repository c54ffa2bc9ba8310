"""NumPy's .npy, read only after its header agrees with the bytes that follow it.

NumPy believes a header: one of items without bytes ends the process, one of many asks for memory
that no file backs. Here the header is parsed first, and only plain numbers and text are taken.
"""

import ast
import math
import os
import re
import struct
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import short

MAGIC = b"\x93NUMPY"
LENGTHS = {(1, 0): "<H", (2, 0): "<I"}  # by version: how the length of the header is written
MOST_HEADER = 10_000
MOST_DIMS, MOST = 32, 2**62  # that NumPy can have, even of nothing
PLAIN = re.compile(r"[<>|=]?[biufU][1-9]\d{0,9}")  # truth values, numbers and text, all with bytes
KEYS = {"descr", "fortran_order", "shape"}


def claimed_bytes(file: IO[bytes], name: str) -> int:
    r"""Read a header and return how many bytes of array must follow; a ValueError if it is none.

    >>> import io
    >>> claimed_bytes(io.BytesIO(b"\x93NUMPY\x01\x00\x02\x00{}"), "x.npy")
    Traceback (most recent call last):
    ValueError: x.npy: its header must have descr, fortran_order, shape
    """
    begins = file.read(8)
    if begins[:6] != MAGIC:
        raise ValueError(f"{name} does not begin as an .npy does")
    version = tuple(begins[6:])
    if version not in LENGTHS:
        raise ValueError(f"{name}: version {version} of .npy is not known")
    form = LENGTHS[version]
    stated = file.read(struct.calcsize(form))
    length = struct.unpack(form, stated)[0] if len(stated) == struct.calcsize(form) else 0
    text = file.read(length) if length <= MOST_HEADER else b""
    if not length or len(text) < length:
        raise ValueError(f"{name}: its header is cut off, or of more than {MOST_HEADER:,} bytes")
    try:
        header = ast.literal_eval(text.decode("latin-1"))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"{name}: its header is broken") from error
    if not isinstance(header, dict) or set(header) != KEYS:
        raise ValueError(f"{name}: its header must have {', '.join(sorted(KEYS))}")
    itemsize = _itemsize(header["descr"], name)
    return math.prod(_shape(header["shape"], name), start=itemsize)


def _shape(shape: object, name: str) -> tuple[int, ...]:
    if (
        isinstance(shape, tuple)
        and len(shape) <= MOST_DIMS
        and all(type(n) is int and n >= 0 for n in shape)
        and math.prod(max(n, 1) for n in shape) <= MOST
    ):
        return shape
    raise ValueError(f"{name}: its shape must be counts of an array, got {short(shape)}")


def _itemsize(descr: object, name: str) -> int:
    if descr in ("|O", "O"):
        raise ValueError(f"{name} holds Python objects; store numbers, or text as dtype str")
    if not isinstance(descr, str) or not PLAIN.fullmatch(descr):
        raise ValueError(f"{name}: its type must be of numbers or text, got {short(descr)}")
    try:
        return int(np.dtype(descr).itemsize)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: its type is not known, got {descr}") from error


def open_npy(path: Path, *, mapped: bool) -> NDArray[Any]:
    """Read or map an .npy whose file holds just what its header says; a ValueError if not."""
    with path.open("rb") as file:
        size = claimed_bytes(file, path.name)
        room = os.fstat(file.fileno()).st_size - file.tell()
    if size != room:
        raise ValueError(f"{path.name} claims {size:,} bytes and has {room:,}")
    is_mapped = mapped and size > 0  # nothing cannot be mapped
    array: NDArray[Any] = np.load(path, mmap_mode="r" if is_mapped else None, allow_pickle=False)
    return array
