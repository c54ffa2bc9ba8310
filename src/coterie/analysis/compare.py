"""Runs side by side: accuracy over seeds, and simulated time to the accuracy FedAvg ends with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from coterie.config.settings import AlgorithmConfig
from coterie.runs.record import RecordedRun
from coterie.simulation.algorithms import ALGORITHMS
from coterie.simulation.search import Search

BASELINE = "fedavg"
DEFAULT_GROUPING = Search().method
OPEN = ("num_groups", "tau1", "tau2")  # what a run may choose itself
TARGETS = ("target_accuracy", "target_loss", "max_gbytes", "retune")  # and by what
USUAL = {key: getattr(AlgorithmConfig(), key) for key in (*OPEN, *TARGETS)}


@dataclass(frozen=True)
class Line:
    """One algorithm in one setting; means over its seeds, `sd` their standard deviations.

    Seconds throughout, delays too; `group_sizes` are the first seed's.
    """

    algorithm: str
    seeds: int
    accuracy: float
    accuracy_sd: float | None
    seconds: float
    target_s: float | None  # mean over the seeds that reached the target
    reached: int
    speed_up: float | None  # over FedAvg, on seeds where both reached it
    d_local: float
    d_group: float | None
    d_global: float
    Delta: float | None
    delta: float | None
    group_sizes: list[int]  # of the first seed


@dataclass(frozen=True)
class Block:
    """Runs that differ only in algorithm and seed."""

    setting: dict[str, Any]  # what tells this block from the others
    target: str
    lines: list[Line]
    repeated: int = 0  # runs left out, since another has the same settings and seed


def compare(runs: Sequence[RecordedRun], target: float | None = None) -> list[Block]:
    """Make the table of complete runs.

    The target of each seed is FedAvg's final accuracy on it unless one is given.
    """
    settings = [_setting(run) for run in runs]
    keys = differing(settings)
    blocks: dict[str, tuple[dict[str, Any], list[RecordedRun]]] = {}
    for run, setting in zip(runs, settings, strict=True):
        told = {key: setting.get(key) for key in keys}
        blocks.setdefault(str(told), (told, []))[1].append(run)
    return [_block(told, members, target) for told, members in blocks.values()]


def differing(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all tables.

    >>> differing([{"lr": 0.1, "seed": 0}, {"lr": 0.1, "seed": 1, "tau1": 5}])
    ['seed', 'tau1']
    """
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if len({str(table.get(key)) for table in tables}) > 1]


def members_of(runs: Sequence[RecordedRun], block: Block) -> list[RecordedRun]:
    """Return the runs of a block, found by the settings that tell it from the others."""
    told = str(block.setting)

    def mine(run: RecordedRun) -> bool:
        setting = _setting(run)
        return str({key: setting.get(key) for key in block.setting}) == told

    return [run for run in runs if mine(run)]


def first_reaching(run: RecordedRun, target: float) -> dict[str, Any] | None:
    """Return the first row with at least that test accuracy; None if a run never has it."""
    pairs = ((row["test_accuracy"], row) for row in run.rows)
    return next((row for value, row in pairs if value is not None and value >= target), None)


def seconds_to(run: RecordedRun, target: float) -> float | None:
    """Simulated seconds until a run's test accuracy first reaches target; None if it never does."""
    row = first_reaching(run, target)
    return None if row is None else float(row["seconds"])


def label(run: RecordedRun) -> str:
    """Name a run's line: the algorithm, and its grouping where that is not the default.

    A run that is not complete is named so, and is therefore on a line of its own.
    """
    name, status = name_of(run.config), run.summary["status"]
    return name if status == "complete" else f"{name} ({status})"


def name_of(config: dict[str, Any]) -> str:
    """Name the line of a run of some settings."""
    algorithm = config["algorithm"]
    name, grouping = str(algorithm["name"]), algorithm.get("grouping", DEFAULT_GROUPING)
    grouped = name in ALGORITHMS and ALGORITHMS[name].searched
    more = [grouping] if grouped and grouping != DEFAULT_GROUPING else []
    if any(algorithm.get(key) == "auto" for key in OPEN):
        more += ["auto", *(f"{key} = {value}" for key, value in _told(algorithm).items())]
    return f"{name} ({', '.join(more)})" if more else name


def _told(algorithm: dict[str, Any]) -> dict[str, Any]:
    """Return what a run that chooses was told: what is not open, and targets not as by default."""
    given = {key: algorithm.get(key, usual) for key, usual in USUAL.items()}
    return {
        key: value
        for key, value in given.items()
        if value != ("auto" if key in OPEN else USUAL[key])
    }


def _setting(run: RecordedRun) -> dict[str, Any]:
    """Return a run's settings without what varies inside a block; what it chose, as by default."""
    table = run.settings
    if any(table.get(f"algorithm.{key}") == "auto" for key in OPEN):
        table = {**table, **{f"algorithm.{key}": value for key, value in USUAL.items()}}
    return {k: v for k, v in table.items() if k not in ("algorithm.name", "algorithm.grouping")}


def lines_of(runs: Sequence[RecordedRun]) -> dict[str, list[RecordedRun]]:
    """Return the runs of every line of a block by seed, in the order of its table.

    Of runs with the same label and seed, which are equal, the first counts.
    """
    found: dict[str, dict[int, RecordedRun]] = {}
    for run in runs:
        found.setdefault(label(run), {}).setdefault(run.config["seed"], run)
    known = list(ALGORITHMS)
    order = sorted(found, key=lambda name: (known.index(name.split(" ")[0]), name))
    return {name: [found[name][seed] for seed in sorted(found[name])] for name in order}


def _block(told: dict[str, Any], runs: list[RecordedRun], target: float | None) -> Block:
    own = lines_of(runs)
    targets = targets_of(runs, target)
    base = {run.config["seed"]: run for run in own.get(BASELINE, []) if targets}
    base_s = {seed: seconds_to(run, targets[seed]) for seed, run in base.items()}
    lines = [_line(name, members, targets, base_s) for name, members in own.items()]
    said = "FedAvg's final accuracy, seed by seed" if targets else "none without a fedavg run"
    repeated = len(runs) - sum(map(len, own.values()))
    return Block(told, f"{target:.1%}" if target is not None else said, lines, repeated)


def targets_of(runs: Sequence[RecordedRun], target: float | None) -> dict[int, float]:
    """Target accuracy of the seeds of a block; one that FedAvg did not run has the others' mean.

    A seed on which FedAvg has begun and is not complete has none yet.
    """
    seeds = dict.fromkeys(run.config["seed"] for run in runs)
    if target is not None:
        return dict.fromkeys(seeds, target)
    final: dict[int, float] = {}
    for run in runs:
        if label(run) == BASELINE:
            final.setdefault(run.config["seed"], float(run.summary["test_accuracy"]))
    if not final:
        return {}
    begun = {run.config["seed"] for run in runs if name_of(run.config) == BASELINE}
    known = [seed for seed in seeds if seed in final or seed not in begun]
    return {seed: final.get(seed, mean(final.values())) for seed in known}


def _line(
    name: str,
    runs: list[RecordedRun],
    targets: dict[int, float],
    base_s: dict[int, float | None],
) -> Line:
    accuracies = [float(run.summary["test_accuracy"]) for run in runs]
    seeds = [run.config["seed"] for run in runs]
    hits = [
        seconds_to(run, targets[seed]) if seed in targets else None
        for run, seed in zip(runs, seeds, strict=True)
    ]
    reached = [s for s in hits if s is not None]
    pairs = [
        (b, s)
        for seed, s in zip(seeds, hits, strict=True)
        if s and (b := base_s.get(seed)) is not None
    ]
    return Line(
        algorithm=name,
        seeds=len(runs),
        accuracy=mean(accuracies),
        accuracy_sd=stdev(accuracies) if len(runs) > 1 else None,
        seconds=mean(run.summary["seconds"] for run in runs),
        target_s=mean(reached) if reached else None,
        reached=len(reached),
        speed_up=mean(b for b, _ in pairs) / mean(s for _, s in pairs) if pairs else None,
        d_local=mean(run.summary["d_local"] for run in runs),
        d_group=_mean_or_none([run.summary["d_group"] for run in runs]),
        d_global=mean(run.summary["d_global"] for run in runs),
        Delta=_mean_or_none([run.summary["Delta"] for run in runs]),
        delta=_mean_or_none([run.summary["delta"] for run in runs]),
        group_sizes=sorted(runs[0].summary["group_sizes"], reverse=True),
    )


def _mean_or_none(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return mean(known) if known else None
