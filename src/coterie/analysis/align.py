"""Rows of several seeds at the same steps, so that they can be averaged."""

from bisect import bisect
from collections.abc import Sequence
from typing import Any

from coterie.runs.record import RecordedRun

Row = dict[str, Any]
ByStep = dict[int, Row]


def chose(run: RecordedRun) -> bool:
    """Whether a run chose its schedule, so that another seed of it measured at other steps."""
    return "tuned" in run.summary


def aligned(runs: Sequence[RecordedRun], measured: Sequence[ByStep]) -> dict[int, list[Row]]:
    """Return the rows of all runs, in their order, at every step that all have measured.

    Runs that chose their schedules measured at steps of their own: each then has a row wherever one
    of them has one, on the straight line between two of its own.
    """
    if not measured or not all(measured):
        return {}
    if any(map(chose, runs)):
        low, high = max(map(min, measured)), min(map(max, measured))
        steps = sorted(t for t in set().union(*measured) if low <= t <= high)
        measured = [at_steps(rows, steps) for rows in measured]
    else:
        steps = sorted(set(measured[0]).intersection(*measured[1:]))
    return {t: [rows[t] for rows in measured] for t in steps}


def at_steps(rows: ByStep, steps: Sequence[int]) -> ByStep:
    """Return rows of some steps, or between their neighbours; None is between None and anything.

    >>> at_steps({0: {"t": 0, "seconds": 1.0, "loss": 2.0}, 4: {"t": 4, "seconds": 3.0}}, [1])
    {1: {'t': 1.0, 'seconds': 1.5, 'loss': None}}
    """
    own = sorted(rows)
    return {t: rows[t] if t in rows else _between(rows, own, t) for t in steps}


def _between(rows: ByStep, own: Sequence[int], t: int) -> Row:
    at = bisect(own, t)
    before, after = rows[own[at - 1]], rows[own[at]]
    part = (t - own[at - 1]) / (own[at] - own[at - 1])
    return {key: _part_way(value, after.get(key), part) for key, value in before.items()}


def _part_way(a: Any, b: Any, part: float) -> float | None:
    if not all(isinstance(value, int | float) for value in (a, b)):
        return None
    return float(a + part * (b - a))
