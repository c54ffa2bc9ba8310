"""Which method is first at a target, by how much, and whether that is more than noise.

Times are compared as ratios, seed by seed: on one seed all methods have the same data, network and
first model. The mean of the logarithms has a confidence interval by Student's t.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from coterie.analysis.tuning import Axis, Space
from coterie.core.types import Json
from coterie.runs.record import RecordedRun
from coterie.runs.validate import metrics_of
from coterie.simulation.row import METRICS

CONFIDENCE = 0.95
MOST_SEEDS = 1000  # that are spoken of
RATES = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the file's learning rate
TAUS, TAU1, TAU2, GROUPS = (1, 2, 5, 10, 25), (1, 2, 5), (2, 5, 10), (2, 5, 10, 20)
COMBINED = "+combined"
GIVEN = {"algorithm.num_groups": 1}  # not read; a file may leave it open
ALONE = {**GIVEN, "algorithm.tau2": 1}


@dataclass(frozen=True)
class Method:
    """A way to group, and what is open about it."""

    about: str
    settings: Json
    searched: bool = False  # whether the number of groups is open
    grouped: bool = True


METHODS = {
    "fedavg": Method("no groups", {"algorithm.name": "fedavg", **ALONE}, grouped=False),
    "hierfavg": Method("groups are the network edges", {"algorithm.name": "hierfavg", **GIVEN}),
    **{
        name: Method(
            f"the paper's search, {what}",
            {"algorithm.name": name, "algorithm.grouping": "reference"},
            searched=True,
        )
        for name, what in (
            ("fedavg-i", "by data"),
            ("fedavg-c", "by hops"),
            ("fedavg-ic", "by both"),
        )
    },
    "random": Method(
        "groups at random",
        {"algorithm.name": "fedavg-ic", "algorithm.grouping": "random"},
        searched=True,
    ),
    "coterie": Method(
        "Coterie's search, by data and seconds",
        {"algorithm.name": "fedavg-ic", "algorithm.grouping": "coterie"},
        searched=True,
    ),
}


def space_of(method: Method, lr: float, n_nodes: int) -> Space:
    """Return what a method chooses from: learning rates, and its schedule.

    >>> [(axis.name, axis.values) for axis in space_of(METHODS["fedavg"], 0.4, 8)]
    [('train.lr', (0.1, 0.2, 0.4, 0.8, 1.6)), ('algorithm.tau1', (1, 2, 5, 10, 25))]
    >>> [axis.name for axis in space_of(METHODS["coterie"], 0.4, 8)][1:]
    ['algorithm.tau1', 'algorithm.tau2', 'algorithm.num_groups']
    >>> space_of(METHODS["coterie"], 0.4, 8)[-1].values  # groups of one node are no groups
    (2,)
    """
    rates = Axis("train.lr", tuple(float(f"{factor * lr:.6g}") for factor in RATES))
    if not method.grouped:
        return rates, Axis("algorithm.tau1", TAUS)
    axes = (rates, Axis("algorithm.tau1", TAU1), Axis("algorithm.tau2", TAU2))
    if not method.searched:
        return axes
    groups = tuple(k for k in GROUPS if 2 * k <= n_nodes) or (min(2, n_nodes),)
    return (*axes, Axis("algorithm.num_groups", groups))


@dataclass(frozen=True)
class Target:
    """What is to be reached: at least an accuracy on what is scored, or at most a training loss."""

    key: str  # of a row
    value: float

    @property
    def sign(self) -> int:
        """1 where more is better."""
        return 1 if self.key == "test_accuracy" else -1

    def first(self, rows: Sequence[Json]) -> Json | None:
        """Return the first row that reaches it after a mean; the first model is nobody's merit.

        >>> rows = [{"t": 1, "test_accuracy": None}, {"t": 2, "test_accuracy": 0.8}]
        >>> Target("test_accuracy", 0.8).first(rows), Target("test_accuracy", 0.9).first(rows)
        ({'t': 2, 'test_accuracy': 0.8}, None)
        """
        known = (row for row in rows if row[self.key] is not None and row["t"] > 0)
        return next((row for row in known if self.sign * (row[self.key] - self.value) >= 0), None)

    def nearest(self, rows: Sequence[Json]) -> float | None:
        """Return the best value of all rows.

        >>> Target("train_loss", 0.1).nearest([{"train_loss": 2.0}, {"train_loss": 0.5}])
        0.5
        """
        known = [row[self.key] for row in rows if row[self.key] is not None]
        return None if not known else (max if self.sign > 0 else min)(known)

    def __str__(self) -> str:
        """Say it in words."""
        percent = self.key == "test_accuracy"
        return f"accuracy {self.value:.1%}" if percent else f"training loss {self.value:g}"


@dataclass(frozen=True)
class Reached:
    """What a method needed to the target, seed by seed; None where it never was there."""

    method: str
    seconds: Mapping[int, float | None]
    slow_bytes: Mapping[int, float | None]
    chosen: Json

    @property
    def whole(self) -> bool:
        """Whether the target was reached on every seed."""
        return all(value is not None for value in self.seconds.values())

    @property
    def known(self) -> list[float]:
        """Seconds of the seeds that reached it."""
        return [value for value in self.seconds.values() if value is not None]


def reached(
    method: str,
    runs: Mapping[int, RecordedRun | None],
    target: Target,
    tier: str,
    chosen: Json,
) -> Reached:
    """Look up when runs of a method, by seed, first were at the target; None is one that diverged.

    >>> reached("fedavg", {0: None}, Target("test_accuracy", 0.5), "wan", {}).seconds
    {0: None}
    """
    rows = {seed: None if run is None else target.first(run.rows) for seed, run in runs.items()}
    seconds = {seed: None if row is None else float(row["seconds"]) for seed, row in rows.items()}
    slow = {
        seed: None if row is None else float(row["bytes_by_tier"].get(tier, 0))
        for seed, row in rows.items()
    }
    return Reached(method, seconds, slow, chosen)


def ends_at(runs: Sequence[RecordedRun]) -> str:
    """Say what runs of a method have in the end, in the mean.

    That is the accuracy. Of a task without one it is the first metric that all have, and with none
    the training loss.
    """
    if not runs:
        return "diverged"
    summaries = [run.summary for run in runs]
    shown = ["test_accuracy", *(f"{METRICS}{name}" for name in metrics_of(summaries[0]))]
    for key in [*shown, "train_loss"]:
        values = [summary[key] for summary in summaries if summary.get(key) is not None]
        if len(values) == len(summaries):
            return f"{mean(values):.1%}" if key == shown[0] else _named(key, mean(values))
    return "-"


def _named(key: str, value: float) -> str:
    """Write a number with its name.

    >>> _named("metrics.mse", 1.23456), _named("train_loss", 0.5)
    ('mse 1.235', 'train_loss 0.5')
    """
    return f"{key.removeprefix(METRICS)} {value:.4g}"


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its confidence interval; infinite with one value."""

    mean: float
    low: float
    high: float


def quantile(confidence: float, n: int) -> float:
    """Return how many standard errors of n values an interval reaches to either side.

    >>> round(quantile(0.95, 5), 3), quantile(0.95, 1)
    (2.776, inf)
    """
    if n < 2:
        return math.inf
    from scipy.stats import t

    return float(t.ppf(0.5 + confidence / 2, n - 1))


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of values with its confidence interval.

    >>> found = interval([1.0, 2.0, 3.0])  # 2 +- 4.303 * 1 / sqrt(3)
    >>> found.mean, round(found.low, 3), round(found.high, 3)
    (2.0, -0.484, 4.484)
    """
    middle, n = mean(values), len(values)
    half = math.inf if n < 2 else quantile(confidence, n) * stdev(values) / math.sqrt(n)
    return Interval(middle, middle - half, middle + half)


def ratio(slower: Reached, faster: Reached, confidence: float = CONFIDENCE) -> Interval | None:
    """Return how many times as long one takes as the other, where both are there on a seed.

    >>> one = Reached("a", {0: 8.0, 1: 18.0}, {}, {})
    >>> two = Reached("b", {0: 2.0, 1: 2.0, 2: 5.0}, {}, {})
    >>> round(ratio(one, two).mean, 9)  # the geometric mean of 4 and 9
    6.0
    """
    logs = _logs(slower, faster)
    if not logs:
        return None
    found = interval(logs, confidence)
    return Interval(*(_exp(x) for x in (found.mean, found.low, found.high)))


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def _logs(slower: Reached, faster: Reached) -> list[float]:
    pairs = [(slower.seconds.get(seed), s) for seed, s in faster.seconds.items()]
    return [math.log(a / b) for a, b in pairs if a and b]


def seeds_to_tell(logs: Sequence[float], confidence: float = CONFIDENCE) -> int | None:
    """Return how many seeds would tell a mean from 0, if mean and deviation stayed as they are.

    None with one value, which has no deviation, and where more than MOST_SEEDS are needed.

    >>> seeds_to_tell([0.1, 0.3])  # 0.2 against 0.1414: t(5) * 0.1414 / sqrt(5) = 0.176
    5
    """
    if len(logs) < 2:
        return None
    middle, sd = abs(mean(logs)), stdev(logs)
    if not middle:
        return None
    enough = (n for n in range(2, MOST_SEEDS + 1) if quantile(confidence, n) * sd < middle * n**0.5)
    return next(enough, None)


@dataclass(frozen=True)
class Against:
    """The first method against another: how many times as long that takes, and whether it tells."""

    method: str
    times: Interval | None  # None where they are at the target on no seed together
    outside: bool  # the noise
    seeds: int | None  # that would tell, where these do not


@dataclass(frozen=True)
class Verdict:
    """Who is first; None where nobody is there on every seed."""

    first: str | None
    others: tuple[Against, ...]

    @property
    def ties(self) -> list[str]:
        """Methods that are not told from the first."""
        return [each.method for each in self.others if each.times and not each.outside]


def judge(methods: Sequence[Reached]) -> Verdict:
    """Say who is first, and which differences are outside the noise.

    Who is first has the least geometric mean of all that are there on every seed. It is held
    against each other method; with m of those, each interval has confidence 1 - 0.05 / m, so that
    all hold together with 95% (Bonferroni).
    """
    whole = [each for each in methods if each.whole and each.seconds]
    if not whole:
        return Verdict(None, ())
    first = min(whole, key=lambda each: mean(math.log(s) for s in each.known))
    others = [each for each in methods if each is not first]
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(others))
    found = []
    for other in others:
        times = ratio(other, first, confidence)
        outside = times is not None and times.low > 1
        seeds = None if outside else seeds_to_tell(_logs(other, first), confidence)
        found.append(Against(other.method, times, outside, seeds))
    return Verdict(first.method, tuple(found))


def in_words(verdict: Verdict, methods: Sequence[Reached], target: Target) -> list[str]:
    """Say a verdict in lines.

    >>> nobody = Reached("fedavg", {0: None}, {}, {})
    >>> in_words(judge([nobody]), [nobody], Target("test_accuracy", 0.99))
    ['no method reaches accuracy 99.0% on every seed; lower the target, or raise train.steps']
    """
    if verdict.first is None:
        never = f"no method reaches {target} on every seed"
        return [f"{never}; lower the target, or raise train.steps"]
    seeds = len(methods[0].seconds)
    if seeds < 2:
        return [f"{verdict.first} is first, and one seed cannot tell that from noise: --seeds 3"]
    lines = []
    of = {each.method: each for each in methods}
    for other in verdict.others:
        name, times = other.method, other.times
        there = len(of[name].known)
        if times is None:
            lines.append(f"{name} never reaches {target}")
            continue
        told = f"{name} takes {times.mean:.2f} times as long ({times.low:.2f} to {times.high:.2f})"
        if there < seeds:
            lines.append(f"{told}, where it is there at all: on {there} of {seeds} seeds")
        elif other.outside:
            lines.append(f"{told}: outside the noise")
        else:
            more = f"{other.seeds:,} seeds" if other.seeds else f"more than {MOST_SEEDS:,} seeds"
            lines.append(f"{told}: no difference beyond noise; {more} would tell")
    ties = verdict.ties
    head = f"{verdict.first} is first"
    if ties:
        head = f"{verdict.first} is first, and not told from {', '.join(ties)}"
    return [head, *lines]
