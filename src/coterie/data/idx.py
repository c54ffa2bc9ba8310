"""IDX, the format of MNIST and Fashion-MNIST: a big-endian header, then the raw array."""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.errors import DataError

UNSIGNED_BYTE = 0x08
GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read one IDX file of unsigned bytes, plain or gzipped, and reject anything else."""
    try:
        raw = path.read_bytes()
        data = gzip.decompress(raw) if raw[:2] == GZIP_MAGIC else raw
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != UNSIGNED_BYTE or data[3] == 0:
        raise DataError(f"{path}: not an IDX file of unsigned bytes")
    n_dims = data[3]
    start = 4 + 4 * n_dims
    if len(data) < start:
        raise DataError(f"{path}: the IDX header is cut off")
    shape = struct.unpack(f">{n_dims}I", data[4:start])
    expected = int(np.prod(shape, dtype=np.int64))
    if len(data) - start != expected:
        raise DataError(f"{path}: {shape} needs {expected} bytes, the file has {len(data) - start}")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)
