"""The edge of the package: whatever goes wrong inside a reader is its own error, with the file."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from coterie.core.errors import CoterieError, words_of

P = ParamSpec("P")
R = TypeVar("R")
DEBUG = "COTERIE_DEBUG"
LONGEST = 200  # characters of what an exception says


def debugging() -> bool:
    """Whether errors that nobody foresaw are to be seen as they are: COTERIE_DEBUG=1."""
    return os.environ.get(DEBUG, "") not in ("", "0")


def reader(error: type[CoterieError]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function raise nothing but coterie's errors; its first path says what it reads.

    What its checks do not foresee becomes an `error` of one line that names the file.

    >>> @reader(CoterieError)
    ... def first_letter(path):
    ...     return ""[0]
    >>> first_letter("x.csv")
    Traceback (most recent call last):
    coterie.core.errors.CoterieError: x.csv: cannot be read (IndexError: string index out of range)
    """

    def guarded(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def read(*args: P.args, **named: P.kwargs) -> R:
            each = (*args, *named.values())
            given = (p for a in each for p in (a if isinstance(a, list) else [a]) if _is_path(p))
            with reading(next(given, function.__name__), error):
                return function(*args, **named)

        return read

    return guarded


@contextmanager
def reading(what: object, error: type[CoterieError]) -> Iterator[None]:
    """Turn whatever goes wrong, but coterie's errors, into an `error` that names what was read."""
    try:
        yield
    except CoterieError:
        raise
    except Exception as cause:
        if debugging():
            raise
        told = error(f"{what}: {_fault(cause)}")
        told.unforeseen = True
        raise told from cause


def _is_path(value: object) -> bool:
    return isinstance(value, str | Path)


def _fault(cause: Exception) -> str:
    """Say what went wrong while something was read.

    >>> _fault(MemoryError()), _fault(OSError(5, "Input/output error", "x"))
    ('needs more memory than there is', 'cannot be read (Input/output error)')
    >>> _fault(RecursionError("maximum recursion depth exceeded"))
    'is nested too deeply'
    """
    if isinstance(cause, MemoryError):
        return "needs more memory than there is"
    if isinstance(cause, RecursionError):
        return "is nested too deeply"
    if isinstance(cause, OSError) and cause.strerror:
        return f"cannot be read ({cause.strerror})"
    return f"cannot be read ({in_a_line(cause)})"


def in_a_line(error: BaseException) -> str:
    r"""Name an exception, with what it says, in one line that is not long.

    >>> in_a_line(KeyError("lr")), in_a_line(ValueError("one\ntwo")), in_a_line(TimeoutError())
    ("KeyError: 'lr'", 'ValueError: one two', 'TimeoutError')
    """
    kind, said = type(error).__name__, " ".join(words_of(error).split())
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]}..."
    return f"{kind}: {said}" if said else kind
