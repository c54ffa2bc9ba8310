"""How much memory there is, and what is too much for the cores."""

import os

THREADS_PER_CORE = 64  # more only wait; a config of a large machine still runs on a small one

ALWAYS_THERE = 2**29  # bytes: no machine that trains has less


def physical_memory() -> int | None:
    """Return the bytes of memory of this machine; None where that is not told.

    >>> physical_memory() is None or physical_memory() > 0
    True
    """
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
