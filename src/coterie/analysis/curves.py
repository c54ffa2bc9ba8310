"""Curves over the seeds of a line: means, bands, and fewer points where there are many."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np

from coterie.analysis.align import Row, aligned
from coterie.runs.record import RecordedRun
from coterie.runs.validate import metrics_of
from coterie.simulation.row import METRICS

Column = list[float | None]


def deviation(values: Sequence[float]) -> float:
    """Standard deviation over the seeds; 0 of a single one."""
    return stdev(values) if len(values) > 1 else 0.0


STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": mean,
    "low": min,
    "high": max,
    "sd": deviation,
}


@dataclass(frozen=True)
class Curve:
    """Some y by some x, point by point: statistics over the seeds."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    sd: list[float]


def curve(runs: Sequence[RecordedRun], x: str, y: str, unit: float = 1.0) -> Curve:
    """Average y over runs that differ in the seed, at every step that all measured.

    x is the mean, too, as a step comes at another second for every seed; the start is left out.
    Seeds that chose their schedules are averaged between the steps that they measured, too.
    """
    measured = [
        {row["t"]: row for row in run.rows if row.get(y) is not None and x in row} for run in runs
    ]
    points = [
        (at, [unit * float(row[y]) for row in rows])
        for t, rows in aligned(runs, measured).items()
        if t and (at := mean(float(row[x]) for row in rows)) > 0
    ]
    bands = {name: [f(values) for _, values in points] for name, f in STATISTICS.items()}
    return Curve([at for at, _ in points], **bands)


def thin(bands: Sequence[Mapping[str, Column]], points: int, most: int) -> list[int]:
    """Choose at most `most` of some points: the first, the last, and the extremes of every stretch.

    >>> spiky: Column = [0.0] * 50 + [9.0] + [0.0] * 49
    >>> kept = thin([{"low": spiky, "high": spiky}], 100, 12)
    >>> len(kept) <= 12, 50 in kept, kept[0], kept[-1]
    (True, True, 0, 99)
    """
    if points <= most:
        return list(range(points))
    stretches = max(1, (most - 2) // (2 * max(len(bands), 1)))
    kept = {0, points - 1}
    for band in bands:
        low, high = (
            np.array([np.nan if v is None else v for v in band[key]]) for key in ("low", "high")
        )
        for stretch in np.array_split(np.arange(points), stretches):
            if np.isfinite(low[stretch]).any():
                kept |= {int(stretch[np.nanargmin(low[stretch])])}
                kept |= {int(stretch[np.nanargmax(high[stretch])])}
    return sorted(kept)


def metrics_of_runs(runs: Iterable[RecordedRun]) -> list[str]:
    """Names of the metrics that rows of some runs have."""
    return list(dict.fromkeys(name for run in runs for row in run.rows for name in metrics_of(row)))


def main_quantity(runs: Sequence[RecordedRun]) -> str:
    """What runs are judged by first: their accuracy, or a task's first metric without one."""
    if any(row["test_accuracy"] is not None for run in runs for row in run.rows):
        return "test_accuracy"
    names = metrics_of_runs(runs)
    return f"{METRICS}{names[0]}" if names else "test_accuracy"


def measured_accuracies(rows: Iterable[Row]) -> list[float]:
    """Test accuracies in the order in which they were measured."""
    return [row["test_accuracy"] for row in rows if row["test_accuracy"] is not None]
