"""Recorded runs as a reproduction asks about them: by algorithm, setting and seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from coterie.comparison import label, seconds_to
from coterie.record import RecordedRun

OURS = "fedavg-ic"  # with our planner
THEIRS = "fedavg-ic (reference)"  # grouped as the authors' simulator does
FEDAVG, HIERFAVG = "fedavg", "hierfavg"


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, its standard deviation, and how many there are."""

    value: float
    sd: float | None
    seeds: int


def mean_of(values: Sequence[float]) -> Mean | None:
    """Average what there is; None of nothing."""
    if not values:
        return None
    return Mean(mean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True, eq=False)
class Runs:
    """Some runs, to be narrowed down."""

    members: tuple[RecordedRun, ...]

    def where(self, **settings: Any) -> "Runs":
        """Keep runs with some settings; a dot in a key is written as two underscores."""
        wanted = {key.replace("__", "."): value for key, value in settings.items()}
        return Runs(tuple(run for run in self.members if wanted.items() <= run.settings.items()))

    def of(self, algorithm: str) -> "Runs":
        """Keep the runs of one algorithm, named as in the table of a comparison."""
        return Runs(tuple(run for run in self.members if label(run) == algorithm))

    def each(self, key: str) -> "list[tuple[Any, Runs]]":
        """Tell runs apart by a setting, in the order of their first."""
        values = dict.fromkeys(run.settings[key] for run in self.members)
        return [(value, self.where(**{key.replace(".", "__"): value})) for value in values]

    @property
    def labels(self) -> list[str]:
        """Algorithms among the runs, in the order of their first."""
        return list(dict.fromkeys(label(run) for run in self.members))

    def seeds(self) -> dict[int, RecordedRun]:
        """Runs of one algorithm in one setting, by seed."""
        return {run.config["seed"]: run for run in self.members}

    def average(self, what: Callable[[RecordedRun], float | None]) -> Mean | None:
        """Average something over the runs that have it."""
        values = [what(run) for run in self.members]
        return mean_of([value for value in values if value is not None])


def accuracy(run: RecordedRun) -> float:
    """Test accuracy at the end."""
    return float(run.summary["test_accuracy"])


def accuracy_at(run: RecordedRun, seconds: float) -> float:
    """Test accuracy as last measured by a simulated time."""
    last = 0.0
    for row in run.rows:
        if row["seconds"] > seconds * (1 + 1e-9):
            break
        last = last if row["test_accuracy"] is None else row["test_accuracy"]
    return float(last)


def targets(runs: Runs) -> dict[int, float]:
    """Accuracy that FedAvg ends with, by seed."""
    return {seed: accuracy(run) for seed, run in runs.of(FEDAVG).seeds().items()}


def times(runs: Runs, algorithm: str, wanted: dict[int, float]) -> dict[int, float | None]:
    """Simulated seconds of an algorithm to each seed's target; None where it never gets there."""
    found = runs.of(algorithm).seeds()
    return {seed: seconds_to(found[seed], wanted[seed]) for seed in wanted if seed in found}


def speed_up(base: dict[int, float | None], mine: dict[int, float | None]) -> float | None:
    """FedAvg's mean seconds over another's, on the seeds that both reached; None if on none.

    >>> speed_up({0: 4.0, 1: 6.0, 2: 5.0}, {0: 1.0, 1: 4.0, 2: None})
    2.0
    """
    both = [(b, m) for seed, m in mine.items() if (b := base.get(seed)) and m]
    return mean(b for b, _ in both) / mean(m for _, m in both) if both else None
