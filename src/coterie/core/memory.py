"""How much memory there is, and what is too much for the cores."""

import ctypes
import os

THREADS_PER_CORE = 64  # more only wait; a config of a large machine still runs on a small one

ALWAYS_THERE = 2**29  # bytes: no machine that trains has less

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def physical_memory() -> int | None:
    """Return the bytes of memory of this machine; None where that is not told.

    >>> physical_memory() is None or physical_memory() > 0
    True
    """
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def keep_pages() -> None:
    """Let the C library keep what is freed, up to 256 MB, for the next batch asks for it again.

    glibc gives the top of its heap back to the system, and takes it anew page by page. Where there
    is no `mallopt`, nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_TRIM_THRESHOLD, 256 << 20)
    mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
