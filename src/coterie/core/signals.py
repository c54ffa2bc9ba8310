"""Short work that a signal does not cut in two."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C, and what tells a process to end, wait until this is done.

    Only the main thread answers signals. What a signal of the system's own does is left as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[int, Callable[..., Any]] = {}

    def later(number: int, _: object) -> None:
        came.append(number)

    try:
        for number in (getattr(signal, name) for name in NAMES if hasattr(signal, name)):
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, later)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)
