"""What is soonest at a loss, found by training in simulation.

Everything that could be done has as many trials of learning rate and schedule, on the file's seed.
It begins in the middle of its lists and where it is told to, and goes on from the better one. A
trial ends where it is much slower than the best of its own so far. The three best of each are then
run with other seeds. Chosen is what is at the loss on most of these, has the steps for one more
round, and has the least geometric mean of seconds.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from coterie.analysis.fair import GIVEN, METHODS, RATES, Reached, space_of
from coterie.analysis.tuning import (
    FAILED,
    REACHED,
    Axis,
    Point,
    Score,
    Space,
    at_an_end,
    best,
    next_points,
    score,
    size,
    untried,
    values_at,
)
from coterie.config.factories import load_dataset
from coterie.config.files import changed, to_identity
from coterie.config.prepare import prepare
from coterie.config.settings import Config
from coterie.core.errors import CoterieError, GroupingError, TrainingError
from coterie.core.types import Json, Progress
from coterie.data import Dataset
from coterie.preview.advice import Advice, Candidate, Kind
from coterie.preview.kept_trials import NO_END, End, Kept, sources_of
from coterie.simulation.loop import rounds

BY_KIND: dict[Kind, str] = {"fedavg": "fedavg", "edges": "hierfavg", "groups": "coterie"}
NAMED: dict[Kind, str] = {
    "fedavg": "FedAvg",
    "edges": "grouping by edge",
    "groups": "grouping by search",
}
RATE = "train.lr"
LONGEST = 6  # times the file's steps: what a run takes at most
TAU = (1, 2, 5, 10, 25, 50, 100)  # steps between FedAvg's means
TAU1, TAU2 = (1, 2, 5, 10, 25), (2, 5, 10, 20)  # and those of groups
FINALISTS = 3  # of everything that could be done, which are run with other seeds
CUT = 1.5  # times the best so far, where a trial ends
SEEDS = 4  # the file's, and others
APART = 1000  # how far the others are from the file's, so that a run with the next one is another


@dataclass(frozen=True)
class Doing:
    """Something that could be done: what is given, what is open, and where its search begins, too.

    `combined` says by tau2 whether models are combined under edges.
    """

    name: str
    given: Json
    space: Space
    first: Point
    combined: Mapping[int, bool]

    def settings(self, point: Point) -> Json:
        """Return all that a trial sets."""
        values = {**self.given, **values_at(self.space, point)}
        how = "all" if self.combined[values["algorithm.tau2"]] else "none"
        return {**values, "network.combine": how}


@dataclass(frozen=True)
class Ran:
    """Something that was run with several seeds, none of them for longer than some steps."""

    name: str
    settings: Json
    ends: Mapping[int, End]
    longest: int

    @property
    def reached(self) -> Reached:
        """What it needed to the loss, seed by seed."""
        seconds = {seed: end.seconds for seed, end in self.ends.items()}
        moved = {seed: end.slow_bytes for seed, end in self.ends.items()}
        return Reached(self.name, seconds, moved, self.settings)

    @property
    def steps(self) -> int:
        """Steps until the loss, on the seed where it took most, and one more round."""
        round_steps = int(self.settings["algorithm.tau1"] * self.settings["algorithm.tau2"])
        return max((end.steps or 0 for end in self.ends.values()), default=0) + round_steps

    @property
    def mean(self) -> float:
        """The geometric mean of the seconds of the seeds that were there; infinite if none was."""
        known = [math.log(max(seconds, 1e-300)) for seconds in self.reached.known]
        return math.exp(math.fsum(known) / len(known)) if known else math.inf

    @property
    def rank(self) -> tuple[int, bool, float]:
        """Rank by seeds that were never there, by whether one more round is too many, by time.

        Who has no steps for one more round is never there on a seed with a little less luck.
        """
        known = self.reached.known
        return len(self.ends) - len(known), self.steps > self.longest, self.mean


@dataclass(frozen=True)
class Tried:
    """The best of everything that could be done, the first first, and what is chosen."""

    target: float
    found: tuple[Ran, ...]
    chosen: Ran | None
    notes: tuple[str, ...]


def doings(advice: Advice, config: Config) -> list[Doing]:
    """List what could be done, the most promising first, each beginning with what is advised."""
    found = []
    candidates = advice.candidates(advice.view.network)
    for kind, option in sorted(advice.options.items(), key=lambda each: -each[1].speed):
        own = [c for c in candidates if (c.kind, c.name) == (kind, option.what.name)]
        begin = {
            "algorithm.tau1": option.means.tau1,
            "algorithm.tau2": option.means.tau2,
            "algorithm.num_groups": len(option.what.grouping.servers),
        }
        ways = {tau2: _combined(own, tau2) for tau2 in (1, *TAU2)}
        found.append(doing(NAMED[kind], BY_KIND[kind], config, begin, ways))
    return found


def _combined(candidates: Sequence[Candidate], tau2: int) -> bool:
    """Whether a round is shorter where models are combined under edges."""
    return min(candidates, key=lambda c: c.global_s + (tau2 - 1) * c.group_s).combined


def doing(
    name: str, method: str, config: Config, begin: Mapping[str, int], combined: Mapping[int, bool]
) -> Doing:
    """Return something that could be done by one of fair.METHODS, with longer lists of schedules.

    It begins at the rate of the file, and at what is nearest to the settings of `begin`.
    """
    how, n = METHODS[method], config.partition.num_nodes
    longer = {"algorithm.tau1": TAU1 if how.grouped else TAU, "algorithm.tau2": TAU2}
    longest = LONGEST * config.train.steps
    axes = []
    for axis in space_of(how, config.train.lr, 10**9 if n == "auto" else n):
        values = longer.get(axis.name, axis.values)
        if axis.name == "algorithm.tau1":
            values = tuple(tau for tau in values if tau <= longest)
        if axis.name == "algorithm.num_groups":
            own = begin[axis.name], config.algorithm.usual[0]
            values = tuple(sorted({*values, *(k for k in own if k > 1)}))
        axes.append(Axis(axis.name, values))
    first = tuple(
        len(axis.values) // 2
        if axis.name not in begin
        else min(
            range(len(axis.values)),
            key=lambda at, axis=axis: abs(math.log(axis.values[at] / begin[axis.name])),  # type: ignore[misc]
        )
        for axis in axes
    )
    return Doing(name, how.settings, tuple(axes), first, combined)


def try_out(
    config: Config,
    doings: Sequence[Doing],
    slow: str,
    trials: int,
    kept: Kept,
    progress: Progress = lambda what, done, of: None,
    target: float = 0.0,
) -> Tried:
    """Try everything that could be done, and choose; `slow` is the tier whose bytes are counted.

    Without a target it is the loss of the file's steps with a mean after each.
    """
    search = _Search(config, slow, kept, progress)
    target = target or search.target()
    most = sum(min(trials, size(each.space)) for each in doings)
    scores: dict[str, dict[Point, Score]] = {each.name: {} for each in doings}
    for each in doings:
        tried = scores[each.name]
        middle = next_points(each.space, {}, trials)
        points = list(dict.fromkeys([each.first, *middle]))[:trials]
        while points:
            for point in points:
                reached = (s for s in tried.values() if s[0] == REACHED)
                within = CUT * min((seconds for _, seconds in reached), default=math.inf)
                done = sum(map(len, scores.values()))
                progress(f"trials of {each.name}", done, most)
                end = search.run(config.seed, each.settings(point), target, within)
                tried[point] = score(end.seconds, end.least, -1)
            points = next_points(each.space, tried, trials)
    return _chosen(search, doings, scores, target)


def _chosen(
    search: "_Search",
    doings: Sequence[Doing],
    scores: Mapping[str, Mapping[Point, Score]],
    target: float,
) -> Tried:
    """Run the best with other seeds, and take the soonest."""
    by_name = {each.name: each for each in doings}
    final = []
    notes = []
    for name, own in scores.items():
        order = sorted(own, key=lambda point, own=own: (own[point], point))  # type: ignore[misc]
        if own[order[0]][0] == FAILED:
            notes.append(f"{name} was left out: it diverges, or no groups keep to the limits")
            continue
        reached = [point for point in order if own[point][0] == REACHED]
        final += [(name, point) for point in (reached or order[:1])[:FINALISTS]]
    first = search.config.seed
    seeds = [first, *(first + APART + number for number in range(1, SEEDS))]
    found: dict[str, Ran] = {}
    for at, (name, point) in enumerate(final):
        chosen, ends = by_name[name].settings(point), {}
        for number, seed in enumerate(seeds):
            search.progress("other seeds", at * SEEDS + number, len(final) * SEEDS)
            ends[seed] = search.run(seed, chosen, target)
        ran = Ran(name, chosen, ends, search.longest)
        if name not in found or ran.rank < found[name].rank:
            found[name] = ran
    soonest = min(found.values(), key=lambda ran: ran.rank, default=None)
    for name in found:
        for axis, at in zip(by_name[name].space, best(scores[name]), strict=True):
            if axis.name == RATE and (line := at_an_end(axis, at)):
                notes.append(f"{name}: {line}")
    short = [name for name in found if untried(by_name[name].space, scores[name])]
    if short:
        notes.append(f"more trials may find better: {', '.join(short)}")
    return Tried(
        target,
        tuple(sorted(found.values(), key=lambda ran: ran.rank)),
        soonest if soonest is not None and soonest.reached.known else None,
        tuple(notes),
    )


@dataclass
class _Search:
    """Runs of one config, each of which is run once."""

    config: Config
    slow: str
    kept: Kept
    progress: Progress

    @cached_property
    def sources(self) -> str:
        """What decides a result beside the settings."""
        return sources_of(self.config)

    @cached_property
    def dataset(self) -> Dataset:
        """The examples, which are the same in all runs."""
        return load_dataset(self.config, self.progress)

    @property
    def longest(self) -> int:
        """Steps of a run at most."""
        return LONGEST * self.config.train.steps

    def target(self) -> float:
        """Return the loss of the file's steps with a mean after each, at the best rate."""
        found = []
        for at, factor in enumerate(RATES):
            self.progress("the target: FedAvg with a mean after each step", at, len(RATES))
            only = {**METHODS["fedavg"].settings, "algorithm.tau1": 1, "train.eval_every": 10**9}
            told = {**only, "train.lr": factor * self.config.train.lr}
            told["train.steps"] = self.config.train.steps
            end = self.run(self.config.seed, told, -math.inf)
            found.append(math.inf if end.least is None else end.least)
        if not math.isfinite(min(found)):
            raise CoterieError(
                "FedAvg diverges at every learning rate that was tried; set a smaller train.lr"
            )
        return min(found)

    def run(self, seed: int, told: Json, target: float, within: float = math.inf) -> End:
        """Train to a loss, if within some seconds."""
        steps = {"train.steps": self.longest, "train.eval_every": 1}
        config = changed(self.config, {**steps, "train.measure": ["loss"], "seed": seed, **told})
        said = f"{to_identity(config)}\n{target!r} {self.slow}\n{self.sources}"
        key = hashlib.sha256(said.encode()).hexdigest()[:32]
        known = self.kept.known.get(key)
        if known is not None and known.seconds is not None and known.seconds <= within:
            return known
        cut = key if within == math.inf else f"{key}, {within!r} s"
        if cut not in self.kept.known:
            end = trained(config, self.dataset, target, self.slow, within)
            self.kept.keep(key if end.seconds is not None else cut, end)
            return end
        return self.kept.known[cut]


def trained(
    config: Config, dataset: Dataset, target: float, slow: str, within: float = math.inf
) -> End:
    """Train to a loss, if within some seconds; what diverges, or cannot be grouped, has no end."""
    least = None
    try:
        for s in rounds(prepare(config, dataset).problem):
            loss = s.row.train_loss
            if s.row.seconds > within:
                break
            if s.t and loss is not None:
                least = loss if least is None else min(loss, least)
                if loss <= target:
                    moved = float(s.row.bytes_by_tier.get(slow, 0))
                    return End(s.row.seconds, moved, s.t, least)
    except (TrainingError, GroupingError):
        return NO_END
    return End(None, None, None, least)


def settings(tried: Tried) -> str:
    """Write what to set for a run to be as chosen, and to be seen to get to the loss."""
    assert tried.chosen is not None
    seen = {"train.measure": "accuracy,loss", "train.eval_every": 1}
    told = {**tried.chosen.settings, "train.steps": tried.chosen.steps, **seen}
    own = {key: value for key, value in told.items() if GIVEN.get(key) != value}
    return " ".join(f"--set {key}={value}" for key, value in own.items())
