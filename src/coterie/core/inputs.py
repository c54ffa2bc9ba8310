"""Files that are read to their end: what has none is refused before it is opened."""

import errno
import stat
from pathlib import Path

THROUGH = (Path("/dev/fd"), Path("/proc/self/fd"))  # where a shell puts what a program writes


def with_an_end(path: Path) -> Path:
    """Return the path of a file, and raise an OSError for a device, or a pipe that has a name.

    A device such as /dev/zero never ends, and a pipe may have nobody who writes. What a shell
    offers, `<(command)` or /dev/stdin, is read.

    >>> with_an_end(Path("/dev/zero"))
    Traceback (most recent call last):
    OSError: [Errno 22] a device or pipe is no file: '/dev/zero'
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # whoever opens it says what is wrong
        return path
    offered = path.parent in THROUGH or path == Path("/dev/stdin")
    piped = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    endless = stat.S_ISCHR(mode) and path != Path("/dev/null")
    if stat.S_ISBLK(mode) or (piped and not offered) or (endless and not offered):
        raise OSError(errno.EINVAL, "a device or pipe is no file", str(path))
    return path
