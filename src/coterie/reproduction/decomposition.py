"""Why a speed-up is what it is: fewer steps, dearer steps, and what the printed figures fit."""

from dataclasses import replace

from coterie.record import RecordedRun
from coterie.reproduction.efficiency import PRINTED, cell_of, runs_of, timed, whole_targets
from coterie.reproduction.runs import (
    FEDAVG,
    HIERFAVG,
    OURS,
    THEIRS,
    Runs,
    budgets,
    mean_of,
    mixed,
    times,
    with_group_means_of,
    without_group_means,
)
from coterie.reproduction.tables import NOT_RUN, Table, figure, times_faster, verdict

PARTS = (
    *("steps to target", "fewer steps", "ms a step", "dearer steps"),
    *("given time", "speed-up"),
)


def free_group_means(runs: Runs) -> list[Table]:
    """Set the printed table beside the paper's clock with group means that take no time."""
    found = Table(
        "If group means took no time, by the paper's clock otherwise",
        ("work", "n", "algorithm", "paper", "measured", "verdict"),
        foot="Targets and verdicts as in the efficiency table. Only global means are on the clock.",
    )
    for (kind, model), cell in PRINTED.items():
        some = runs_of(runs, kind, model)
        if not some.of(FEDAVG).members:
            continue
        free = without_group_means(mixed(some))
        for name in (HIERFAVG, THEIRS):
            took, ratio = timed(free, name)
            judged = verdict(ratio, cell.speed_up(name)) if took.by_seed else NOT_RUN
            told = [f"{kind} {model}", f"{len(budgets(some))}", name, cell.told(name)]
            found.rows.append([*told, cell_of(took, ratio), judged])
    return [found] if found.rows else []


def within_reach(runs: Runs) -> list[Table]:
    """Set the printed speed-ups beside ours with cheaper group means: could other groups do it?"""
    found = Table(
        "What other groups could reach, honest",
        ("work", "n", "paper", "our planner", "group means as HierFAVG's", "group means free"),
        foot="Speed-ups of FedAvg-IC with as many steps as our planner's groups need, had their "
        "means taken as long as those of the network's edges (HierFAVG), or no time. Groups that "
        "learn as well and are as near as an edge would reach the former; with this tau1 and "
        "tau2, none that learn no better can pass the latter.",
    )
    for (kind, model), cell in PRINTED.items():
        some = runs_of(runs, kind, model)
        if not some.of(OURS).members:
            continue
        clocks = (some, with_group_means_of(some, HIERFAVG), without_group_means(some))
        ratios = [timed(each, OURS)[1] if each.of(FEDAVG).members else None for each in clocks]
        told = [f"{kind} {model}", f"{len(budgets(some))}", times_faster(cell.speed_up(THEIRS))]
        found.rows.append([*told, *map(times_faster, ratios)])
    return [found] if found.rows else []


def decomposed(runs: Runs) -> list[Table]:
    """Take speed-ups apart: fewer steps, what a step costs, and the time FedAvg was given."""
    found = Table(
        "What speed-ups are made of, honest",
        ("work", "n", "algorithm", *PARTS),
        foot="Speed-up = fewer steps / dearer steps x given time: FedAvg needs so many times the "
        "steps to the target in whole percent, a step with its share of the means takes so many "
        "times FedAvg's, and FedAvg is given more time than it needs to get there first.",
    )
    for kind, model in PRINTED:
        some = runs_of(runs, kind, model)
        base = _steps(some, FEDAVG)
        if base is None:
            continue
        first = times(some, FEDAVG, whole_targets(some))
        given = first.over(budgets(some))
        for name in some.labels:
            mine, (took, ratio) = _steps(some, name), timed(some, name)
            row = [f"{kind} {model}", f"{len(budgets(some))}", name]
            if mine is None or took.mean is None or first.mean is None or given is None:
                found.rows.append([*row, "never", *["-"] * 5])
                continue
            each, theirs = took.mean / mine, first.mean / base
            cells = [f"{mine:.0f}", times_faster(base / mine), figure(mean_of([each]), 1e3)]
            found.rows.append([*row, *cells, *map(times_faster, (each / theirs, given, ratio))])
    return [found] if found.rows else []


def _steps(runs: Runs, name: str) -> float | None:
    """Mean steps to the target over the seeds that get there; None unless more than half do."""
    steps = Runs(tuple(_by_steps(run) for run in runs.members))
    return times(steps, name, whole_targets(runs)).mean if runs.of(FEDAVG).members else None


def _by_steps(run: RecordedRun) -> RecordedRun:
    return replace(run, rows=[{**row, "seconds": float(row["t"])} for row in run.rows])
