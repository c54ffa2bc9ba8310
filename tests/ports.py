"""Ports for servers of tests: below those that the system gives to whoever asks for any."""

import os
import socket
from collections.abc import Iterator

FIRST, LAST = 11000, 31000


def free(port: int) -> bool:
    """Whether nobody has a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_blocks(size: int) -> Iterator[int]:
    """First of so many free ports in a row, again and again; others for every process."""
    own = range(FIRST + 1000 * (os.getpid() % 20), LAST + 1000, size)
    for first in own:
        if all(map(free, range(first, first + size))):
            yield first
