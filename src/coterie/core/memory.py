"""How much memory there is."""

import os


def physical_memory() -> int | None:
    """Return the bytes of memory of this machine; None where that is not told.

    >>> physical_memory() is None or physical_memory() > 0
    True
    """
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
