"""How many threads a linear algebra library may use."""

from contextlib import AbstractContextManager
from functools import cache

import numpy  # noqa: F401  its library must be there before it can be limited
from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    """Look for the libraries, once."""
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Keep products of matrices to one thread.

    The planner's are small: a second thread takes as much processor time as it saves, or waits.

    >>> with one_thread():
    ...     pass
    """
    found: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return found
