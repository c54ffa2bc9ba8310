"""Recorded runs as a reproduction asks about them: by algorithm, setting, seed and clock."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

from coterie.analysis.align import chose
from coterie.analysis.compare import seconds_to
from coterie.analysis.lines import label
from coterie.models import REFERENCE_FLOPS
from coterie.runs.record import RecordedRun
from coterie.runs.retime import retime
from coterie.simulation.schedule import Event

OURS = "fedavg-ic"  # with our planner
CHOSEN = "fedavg-ic (auto)"  # with our planner, which also chose how many groups and how often
THEIRS = "fedavg-ic (reference)"  # grouped as the authors' simulator does
FEDAVG, HIERFAVG = "fedavg", "hierfavg"
OTHER_TAUS = tuple(f"fedavg (tau {tau})" for tau in (1, 2, 10))  # as efficiency.toml labels them

# As the paper mixed it: operations as its profiler saw them, 10,240 bytes scaled and doubled, TCP
# of its ns-3 on one path, and models combined for free under an edge, for FedAvg-I, -C and -IC.
PAPER_CLOCK = (
    "compute.flops=reference",
    "network.procedure=reference",
    "network.combine=searched",
    "network.tcp=ns-3.30",
    "network.routing=single",
    "algorithm.charge_grouping=false",
)


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

    def of(self, *algorithms: str) -> "Runs":
        """Keep the runs of some algorithms, named as in the table of a comparison."""
        return Runs(tuple(run for run in self.members if label(run) in algorithms))

    def each(self, key: str) -> "list[tuple[Any, Runs]]":
        """Tell runs apart by a setting; numbers by size, words in the order of their first."""
        values = list(dict.fromkeys(run.settings[key] for run in self.members))
        if all(isinstance(value, int | float) for value in values):
            values.sort()
        return [(value, self.where(**{key.replace(".", "__"): value})) for value in values]

    def level(self, key: str | None = None) -> "Runs":
        """Keep the seeds that every algorithm has, and at every value of a setting if one is named.

        What is averaged and compared is then averaged over the same seeds.
        """
        parts = [some for _, some in self.each(key)] if key else [self]
        each = [set(part.of(name).seeds()) for part in parts for name in part.labels]
        common = set.intersection(*each) if each else set()
        return Runs(tuple(run for run in self.members if run.config["seed"] in common))

    def timed(self, overrides: Sequence[str]) -> "Runs":
        """Return the same training by another clock."""
        return Runs(tuple(retime(run, overrides) for run in self.members))

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


def mixed(runs: Runs, *more: str) -> Runs:
    """Return runs by the paper's clock, but for operations of a model that it did not profile.

    Runs that chose their schedule did so by their own clock, and are left out.
    """

    def clock(run: RecordedRun) -> list[str]:
        profiled = run.config["model"]["name"] in REFERENCE_FLOPS
        return [word for word in PAPER_CLOCK if profiled or not word.startswith("compute.flops")]

    given = [run for run in runs.members if not chose(run)]
    return Runs(tuple(retime(run, (*clock(run), *more)) for run in given))


def without_group_means(runs: Runs) -> Runs:
    """Return runs as if group means took no time."""
    return Runs(tuple(_with_group_means_of(run, 0.0) for run in runs.members))


def with_group_means_of(runs: Runs, other: str) -> Runs:
    """Return runs as if group means took as long as another algorithm's, where that was run."""
    took = {seed: run.summary["d_group"] for seed, run in runs.of(other).seeds().items()}
    given = [run for run in runs.members if took.get(run.config["seed"]) is not None]
    return Runs(tuple(_with_group_means_of(run, took[run.config["seed"]]) for run in given))


def _with_group_means_of(run: RecordedRun, seconds: float) -> RecordedRun:
    took, saved, rows = run.summary["d_group"], 0.0, []
    each = seconds if took is None else took
    for row in run.rows:
        saved += (each - seconds) * (row["event"] == Event.GROUP)
        rows.append({**row, "seconds": row["seconds"] - saved})
    return replace(run, rows=rows, summary={**run.summary, "seconds": rows[-1]["seconds"]})


def without_planning(runs: Runs) -> Runs:
    """Return runs that planned once, before the first step, as if that had taken no time."""

    def unplanned(run: RecordedRun) -> RecordedRun:
        took = run.summary.get("grouping_s") or 0.0
        rows = [{**row, "seconds": row["seconds"] - took * (row["t"] > 0)} for row in run.rows]
        return replace(run, rows=rows, summary={**run.summary, "seconds": rows[-1]["seconds"]})

    return Runs(tuple(map(unplanned, runs.members)))


def honest(runs: Runs, *more: str) -> Runs:
    """Return runs by the clock that they were run with: counted operations, whole transfers."""
    return runs.timed(more) if more else runs


CLOCKS: dict[str, Callable[..., Runs]] = {"by the paper's clock": mixed, "honest": honest}


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


def budgets(runs: Runs) -> dict[int, float]:
    """Seconds that FedAvg takes for all its steps, by seed: the paper's given time."""
    return {seed: run.summary["seconds"] for seed, run in runs.of(FEDAVG).seeds().items()}


def targets(runs: Runs) -> dict[int, float]:
    """Accuracy that FedAvg ends with, by seed."""
    return {seed: accuracy(run) for seed, run in runs.of(FEDAVG).seeds().items()}


@dataclass(frozen=True)
class Times:
    """Seconds to a target by seed, None where it is never reached; empty: not run."""

    by_seed: dict[int, float | None]

    @property
    def reached(self) -> dict[int, float]:
        """Seeds that got there, and when."""
        return {seed: took for seed, took in self.by_seed.items() if took is not None}

    @property
    def mean(self) -> float | None:
        """Mean seconds over the seeds that got there; None unless more than half did."""
        got = self.reached
        return mean(got.values()) if 2 * len(got) > len(self.by_seed) else None

    def over(self, base: dict[int, float]) -> float | None:
        """Speed-up over a base, on the seeds that got there; None unless more than half did.

        >>> Times({0: 1.0, 1: 4.0, 2: None}).over({0: 4.0, 1: 6.0, 2: 5.0})
        2.0
        """
        both = [(base[seed], took) for seed, took in self.reached.items() if seed in base]
        if self.mean is None or not both:
            return None
        return mean(b for b, _ in both) / mean(took for _, took in both)


def times(runs: Runs, algorithm: str, wanted: dict[int, float]) -> Times:
    """Simulated seconds of an algorithm to each seed's target."""
    found = runs.of(algorithm).seeds()
    return Times({seed: seconds_to(found[seed], wanted[seed]) for seed in wanted if seed in found})


def spoken(runs: Runs) -> str:
    """Say what was run: data, model, how much of it, and which seeds.

    What a table says of its own rows, as data and model there, is said again: one line tells all.
    """

    def values(key: str) -> str:
        return ", ".join(f"{value}" for value, _ in runs.each(key))

    parts = [values("data.name"), values("model.name")]
    samples = [value for value, _ in runs.each("data.sample")]
    parts += [f"{share:.0%} of the examples" for share in samples if share < 1]
    parts += [f"{values('train.steps')} steps", f"lr {values('train.lr')}"]
    parts += [f"seeds {ranges(run.config['seed'] for run in runs.members)}"]
    return "Run: " + "; ".join(parts) + "."


def ranges(numbers: Iterable[int]) -> str:
    """Write whole numbers shortly.

    >>> ranges([0, 1, 2, 4]), ranges([3])
    ('0-2, 4', '3')
    """
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in found)
