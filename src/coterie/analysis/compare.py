"""Runs side by side: accuracy over seeds, and simulated time to the accuracy of a baseline."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any

from coterie.analysis.lines import (
    ALONE,
    BASELINE,
    PLAIN,
    Arranged,
    Naming,
    View,
    arrange,
    baseline_of,
    label,
    name_of,
    pooled,
)
from coterie.analysis.score import Score, accuracy_of
from coterie.core.types import Json
from coterie.runs.record import RecordedRun
from coterie.runs.validate import metrics_of

NAMES = {BASELINE: "FedAvg"}  # as people write them


@dataclass(frozen=True)
class Line:
    """One line of a table; means over its seeds, `sd` their standard deviations.

    Seconds throughout, delays too; `group_sizes` are the first seed's. `speed_up` is the ratio of
    two means, and its `sd` that of the seeds' own ratios.
    """

    algorithm: str  # what the line is called
    seeds: int
    accuracy: float | None  # None of a task without one
    accuracy_sd: float | None
    seconds: float
    target_s: float | None  # mean over the seeds that reached the target
    reached: int
    speed_up: float | None  # over the baseline, on seeds where both reached it
    d_local: float
    d_group: float | None
    d_global: float
    Delta: float | None
    delta: float | None
    group_sizes: list[int]  # of the first seed
    seconds_sd: float | None = None
    target_s_sd: float | None = None
    speed_up_sd: float | None = None
    d_local_sd: float | None = None
    d_group_sd: float | None = None
    d_global_sd: float | None = None
    Delta_sd: float | None = None
    delta_sd: float | None = None
    pooled: bool = False  # an upper bound, not a competitor
    best: dict[str, Any] = field(default_factory=dict)  # settings chosen by the validation part
    node_mean: float | None = None  # of the nodes' accuracies, where all runs measure them
    node_sd: float | None = None  # over nodes, not over seeds
    node_worst: float | None = None  # mean of the worst tenth
    node_worst_sd: float | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)  # in the end, by name
    metrics_sd: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """Runs that differ only in what names their lines, and in the seed."""

    setting: dict[str, Any]  # what tells this block from the others
    target: str
    lines: list[Line]
    repeated: int = 0  # runs left out, since another has the same settings and seed
    baseline: str | None = None  # the line that targets and speed-ups refer to
    score: str = "last"  # what the accuracy of a run is
    named_by: tuple[str, ...] = ()  # settings that name lines; none: label or algorithm
    notes: tuple[str, ...] = ()  # what a reader should know before the figures are used


def compare(
    runs: Sequence[RecordedRun], target: float | None = None, view: View = PLAIN
) -> list[Block]:
    """Make the table of complete runs.

    The target of each seed is the baseline's accuracy on it, FedAvg's, unless one is given.
    """
    return [block_of(each, target, view) for each in arrange(runs, view)]


def first_reaching(run: RecordedRun, target: float) -> dict[str, Any] | None:
    """Return the first row with at least that test accuracy; None if a run never has it."""
    pairs = ((row["test_accuracy"], row) for row in run.rows)
    return next((row for value, row in pairs if value is not None and value >= target), None)


def seconds_to(run: RecordedRun, target: float) -> float | None:
    """Simulated seconds until a run's test accuracy first reaches target; None if it never does."""
    row = first_reaching(run, target)
    return None if row is None else float(row["seconds"])


def block_of(arranged: Arranged, target: float | None, view: View = PLAIN) -> Block:
    """Work out the lines of a block."""
    baseline = baseline_of(arranged.lines, view)
    targets = targets_of(arranged.shown, target, view, arranged.naming)
    base = {run.config["seed"]: run for run in arranged.lines.get(baseline or "", [])}
    base_s = {seed: seconds_to(run, targets[seed]) for seed, run in base.items() if seed in targets}
    lines = [
        _line(name, runs, targets, base_s, view.score, arranged.chosen.get(name, {}))
        for name, runs in arranged.lines.items()
    ]
    said = target_words(target, baseline, view, several=len(lines) > 1)
    if without_accuracy(arranged.shown):
        said = "none; this task has no accuracy to reach"
    return Block(
        arranged.setting,
        said,
        lines,
        arranged.repeated,
        baseline,
        str(view.score),
        view.lines,
        tuple(_at_the_ends(arranged)),
    )


def _at_the_ends(arranged: Arranged) -> Iterator[str]:
    """Say of which settings the best value may be beyond those that were tried."""
    for key in arranged.naming.best:
        ends = {"least": min, "largest": max}
        at = dict.fromkeys(ends, 0)
        for line, tried in arranged.tried.items():
            values = {each[key] for each in tried if type(each[key]) in (int, float)}
            for end, of in ends.items():
                at[end] += len(values) > 1 and arranged.chosen[line][key] == of(values)
        for end, count in at.items():
            if count:
                whose = "1 line" if count == 1 else f"{count} lines"
                yield f"the best {key} of {whose} is the {end} in the list; lengthen it"


def target_words(
    target: float | None, baseline: str | None, view: View = PLAIN, *, several: bool = False
) -> str:
    """Say what the target of a block is.

    >>> target_words(None, "fedavg")
    "FedAvg's final accuracy, seed by seed"
    """
    if target is not None:
        return f"{target:.1%}"
    if baseline is None:
        way_out = ", --baseline names another" if several else ""
        return f"none; no line is called {view.baseline or BASELINE}{way_out}"
    return f"{accuracy_words(baseline, view.score)}, seed by seed"


def without_accuracy(runs: Sequence[RecordedRun]) -> bool:
    """Whether runs have measured, and never an accuracy."""
    seen = [row["test_accuracy"] for run in runs for row in run.rows]
    return bool(seen) and all(value is None for value in seen)


def accuracy_words(baseline: str, score: Score) -> str:
    """Say whose accuracy a target is, and which.

    >>> accuracy_words("SCAFFOLD", Score("mean", 5))
    "SCAFFOLD's accuracy, mean of the last 5 evaluations"
    """
    whose = f"{NAMES.get(baseline, baseline)}'s"
    if score.kind == "mean":
        return f"{whose} accuracy, mean of the last {score.count} evaluations"
    return f"{whose} {'final' if score.kind == 'last' else 'best'} accuracy"


def first_at_target(lines: Sequence[Line]) -> Line | None:
    """Return who reaches the target soonest; None if nobody does.

    Those that do with all seeds come before others, whose mean may be over the easier seeds. A run
    on all data in one place is a bound, and does not compete.
    """
    timed = [line for line in lines if line.target_s is not None and not line.pooled]
    most = max((line.seeds for line in lines), default=0)
    sure = [line for line in timed if line.reached == most]
    return min(sure or timed, key=lambda line: line.target_s or 0.0, default=None)


def targets_of(
    runs: Sequence[RecordedRun],
    target: float | None,
    view: View = PLAIN,
    naming: Naming = ALONE,
) -> dict[int, float]:
    """Target accuracy of the seeds of a block; one that the baseline lacks has the others' mean.

    A seed on which the baseline has begun and is not complete has none yet. Without an accuracy
    there is no target.
    """
    if without_accuracy(runs):
        return {}
    seeds = dict.fromkeys(run.config["seed"] for run in runs)
    if target is not None:
        return dict.fromkeys(seeds, target)
    names = [name_of(run.config, naming) for run in runs]
    baseline = baseline_of(names, view)
    own = [run for run, name in zip(runs, names, strict=True) if name == baseline]
    final: dict[int, float] = {}
    for run in own:
        accuracy = accuracy_of(run, view.score) if label(run, naming) == baseline else None
        if accuracy is not None:
            final.setdefault(run.config["seed"], accuracy)
    if not final:
        return {}
    begun = {run.config["seed"] for run in own}
    known = [seed for seed in seeds if seed in final or seed not in begun]
    return {seed: final.get(seed, mean(final.values())) for seed in known}


def _line(
    name: str,
    runs: list[RecordedRun],
    targets: dict[int, float],
    base_s: dict[int, float | None],
    score: Score,
    best: Json,
) -> Line:
    accuracies = [accuracy_of(run, score) for run in runs]
    seeds = [run.config["seed"] for run in runs]
    hits = [
        seconds_to(run, targets[seed]) if seed in targets else None
        for run, seed in zip(runs, seeds, strict=True)
    ]
    pairs = [
        (b, s)
        for seed, s in zip(seeds, hits, strict=True)
        if s and (b := base_s.get(seed)) is not None
    ]
    of = {
        key: [run.summary[key] for run in runs]
        for key in ("seconds", "d_local", "d_group", "d_global", "Delta", "delta")
    }
    metrics, nodes = _metrics(runs), _nodes(runs)
    return Line(
        algorithm=name,
        seeds=len(runs),
        accuracy=_mean_or_none(accuracies),
        accuracy_sd=_sd_or_none(accuracies),
        seconds=mean(of["seconds"]),
        seconds_sd=_sd_or_none(of["seconds"]),
        target_s=_mean_or_none(hits),
        target_s_sd=_sd_or_none(hits),
        reached=sum(s is not None for s in hits),
        speed_up=mean(b for b, _ in pairs) / mean(s for _, s in pairs) if pairs else None,
        speed_up_sd=_sd_or_none([b / s for b, s in pairs]),
        d_local=mean(of["d_local"]),
        d_local_sd=_sd_or_none(of["d_local"]),
        d_group=_mean_or_none(of["d_group"]),
        d_group_sd=_sd_or_none(of["d_group"]),
        d_global=mean(of["d_global"]),
        d_global_sd=_sd_or_none(of["d_global"]),
        Delta=_mean_or_none(of["Delta"]),
        Delta_sd=_sd_or_none(of["Delta"]),
        delta=_mean_or_none(of["delta"]),
        delta_sd=_sd_or_none(of["delta"]),
        group_sizes=sorted(runs[0].summary["group_sizes"], reverse=True),
        pooled=all(map(pooled, runs)),
        best=best,
        metrics={name: _mean_or_none(values) for name, values in metrics.items()},
        metrics_sd={name: _sd_or_none(values) for name, values in metrics.items()},
        **nodes,
    )


def _metrics(runs: Sequence[RecordedRun]) -> dict[str, list[float | None]]:
    """Return the metrics of a line's runs in the end, by name."""
    each = [metrics_of(run.summary) for run in runs]
    return {name: [figures.get(name) for figures in each] for figures in each for name in figures}


def _nodes(runs: Sequence[RecordedRun]) -> dict[str, float | None]:
    """Return what a line says about nodes; nothing if one of its runs says nothing."""
    keys = ("node_mean", "node_sd", "node_worst")
    of = {key: [run.summary.get(key) for run in runs] for key in keys}
    if any(value is None for values in of.values() for value in values):
        return {}
    means = {key: _mean_or_none(values) for key, values in of.items()}
    return {**means, "node_worst_sd": _sd_or_none(of["node_worst"])}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean_or_none(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return mean(known) if known else None


def _sd_or_none(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return stdev(known) if len(known) > 1 else None
