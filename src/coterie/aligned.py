"""Rows of several seeds at the same steps, so that they can be averaged."""

from bisect import bisect
from collections.abc import Sequence
from typing import Any

from coterie.record import RecordedRun

Row = dict[str, Any]
ByStep = dict[int, Row]


def chose(run: RecordedRun) -> bool:
    """Whether a run chose its schedule, so that another seed of it measured at other steps."""
    return "tuned" in run.summary


def aligned(runs: Sequence[RecordedRun], measured: Sequence[ByStep]) -> list[ByStep]:
    """Return the measured rows of every run, by step, at steps that all have.

    Runs that chose their schedules measured at steps of their own: each then has a row wherever one
    of them has one, on the straight line between two of its own.
    """
    if not all(measured):
        return [{} for _ in measured]
    if not any(map(chose, runs)):
        shared = sorted(set(measured[0]).intersection(*measured[1:]))
        return [{t: rows[t] for t in shared} for rows in measured]
    low, high = max(map(min, measured)), min(map(max, measured))
    steps = sorted(t for t in set().union(*measured) if low <= t <= high)
    return [{t: at_step(rows, t) for t in steps} for rows in measured]


def at_step(rows: ByStep, t: int) -> Row:
    """Return the row of step t, or one between its neighbours; None is between None and anything.

    >>> at_step({0: {"t": 0, "seconds": 1.0, "loss": 2.0}, 4: {"t": 4, "seconds": 3.0}}, 1)
    {'t': 1.0, 'seconds': 1.5, 'loss': None}
    """
    if t in rows:
        return rows[t]
    steps = sorted(rows)
    at = bisect(steps, t)
    before, after = rows[steps[at - 1]], rows[steps[at]]
    part = (t - steps[at - 1]) / (steps[at] - steps[at - 1])
    return {key: _between(value, after.get(key), part) for key, value in before.items()}


def _between(a: Any, b: Any, part: float) -> float | None:
    if not all(isinstance(value, int | float) for value in (a, b)):
        return None
    return float(a + part * (b - a))
