"""What is said of an exception that nobody foresaw: one line, and a file for the rest."""

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from coterie.core.boundary import DEBUG, debugging, in_a_line
from coterie.core.errors import CoterieError, OwnCodeError
from coterie.core.plugins import is_theirs, reason

SEE = f"{DEBUG}=1 shows where"


class UnexpectedError(CoterieError):
    """An exception that no check foresaw: the program is to blame, not who runs it."""

    unforeseen = True


@contextmanager
def foreseen() -> Iterator[None]:
    """Turn what nobody foresaw into an error that says so, unless COTERIE_DEBUG asks for it."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, CoterieError) or debugging():
            raise
        raise in_our_words(error) from error


def in_our_words(error: BaseException) -> CoterieError:
    """Return the error that tells, in a line, of an exception that no check foresaw.

    What the system refuses, such as a full disk or a deleted folder, is no fault of the program,
    and neither is a user's code that ends it.

    >>> in_our_words(OSError(28, "No space left on device", "runs/my"))
    CoterieError('runs/my: No space left on device; COTERIE_DEBUG=1 shows where')
    """
    if not isinstance(error, Exception):  # SystemExit, or a kind of a user's own
        return CoterieError(f"code that is not coterie's ended the program: {reason(error)}")
    if is_theirs(error) and not isinstance(error, MemoryError):
        return OwnCodeError(f"code that is not coterie's failed: {reason(error)}; {SEE}")
    if isinstance(error, FileNotFoundError) and not _has_folder():
        return CoterieError("the current folder was deleted; change to another one")
    if isinstance(error, MemoryError):
        return CoterieError(f"there is not enough memory for it; {SEE}")
    if isinstance(error, OSError) and error.strerror:
        what = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return CoterieError(f"{what}{error.strerror}; {SEE}")
    told = f"coterie {version('coterie')} failed: {in_a_line(error)}"
    return UnexpectedError(f"{told}; please report it, with {_written_down(error)}")


def _written_down(error: Exception) -> str:
    """Write the traceback into a file that only its owner reads, and say where it is."""
    where = f"Python {platform.python_version()}, {platform.platform()}"
    lines = [
        f"coterie {version('coterie')}, {where}\n",
        f"command: {sys.argv!a}\n",
        *traceback.format_exception(error),
    ]
    try:
        handle, name = tempfile.mkstemp(prefix="coterie-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(lines)
    except OSError:
        return f"what {DEBUG}=1 shows"
    return name


def _has_folder() -> bool:
    """Whether the current folder is still there."""
    try:
        return bool(os.getcwd())  # noqa: PTH109
    except FileNotFoundError:
        return False
