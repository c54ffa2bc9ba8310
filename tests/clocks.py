"""Clocks for tests: time passes with what is done, whatever the machine does beside it."""

from collections.abc import Callable
from itertools import count


def ticking(by_s: float) -> Callable[[], float]:
    """Return a clock that goes on by so much whenever it is looked at."""
    ticks = count()
    return lambda: by_s * next(ticks)


def stopped() -> float:
    """Tell the time of a clock that stands."""
    return 0.0
