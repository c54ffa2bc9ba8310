"""Libraries that print by themselves, kept from it."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def quiet() -> Iterator[None]:
    """Drop what native code prints to standard output meanwhile.

    >>> with quiet():
    ...     _ = os.write(1, b"from a library")
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is none
        yield
        return
    flush = getattr(_libc(), "fflush", None)
    try:
        if flush is not None:
            flush(None)
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 1)
        yield
    finally:
        if flush is not None:
            flush(None)
        os.dup2(kept, 1)
        os.close(kept)


def _libc() -> ctypes.CDLL | None:
    """Return the C library of this process, where it can be had."""
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):
        return None
