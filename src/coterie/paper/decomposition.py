"""Why a speed-up is what it is: fewer steps, dearer steps, and what the printed figures fit."""

from dataclasses import replace
from functools import partial

from coterie.paper.efficiency import but_fedavg, cell_of, printed_cells, timed, whole_targets
from coterie.paper.runs import (
    CHOSEN,
    FEDAVG,
    HIERFAVG,
    OTHER_TAUS,
    OURS,
    THEIRS,
    Runs,
    accuracy_at,
    budgets,
    mean_of,
    mixed,
    times,
    with_group_means_of,
    without_group_means,
    without_planning,
)
from coterie.paper.tables import (
    NOT_RUN,
    Table,
    figure,
    holds,
    percent,
    points,
    times_faster,
    verdict,
)
from coterie.runs.record import RecordedRun

NEAR = 0.03  # of accuracy; FedAvg as near the printed one is where the paper has it
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
    for work, n, some, cell in printed_cells(runs):
        free = without_group_means(mixed(some))
        for name in (HIERFAVG, THEIRS):
            took, ratio = timed(free, name)
            judged = verdict(ratio, cell.speed_up(name)) if took.by_seed else NOT_RUN
            found.rows.append([work, n, name, cell.told(name), cell_of(took, ratio), judged])
    return [found] if found.rows else []


def at_printed_seconds(runs: Runs) -> list[Table]:
    """Set FedAvg's accuracy beside the printed one when the printed seconds are over."""
    found = Table(
        "FedAvg (%) at the paper's seconds, by the paper's clock",
        ("work", "n", "seconds", "paper", "here", "difference", "verdict"),
        foot=f"As last measured by then. Reproduced: within {100 * NEAR:.0f} points.",
    )
    for work, n, some, cell in printed_cells(runs):
        then = mixed(some.of(FEDAVG)).average(partial(accuracy_at, seconds=cell.fedavg))
        gap = then.value - cell.accuracy if then else None
        told = [f"{cell.fedavg:g}", f"{100 * cell.accuracy:.0f}", percent(then), points(gap)]
        near = None if gap is None else abs(gap) <= NEAR
        found.rows.append([work, n, *told, holds(near, f"{points(gap)} points")])
    return [found] if found.rows else []


def within_reach(runs: Runs) -> list[Table]:
    """Set the printed speed-ups beside ours with cheaper group means: could other groups do it?"""
    found = Table(
        "What other groups could reach, honest",
        ("work", "n", "paper", "our planner", "as near as an edge", "free"),
        foot="Speed-ups of FedAvg-IC with as many steps as our planner's groups need, had planning "
        "taken no time and group means as long as those of the network's edges (HierFAVG), or no "
        "time either. With this tau1 and tau2, groups that learn no better cannot pass the last.",
    )
    for work, n, some, cell in printed_cells(runs, OURS):
        unplanned = without_planning(some)
        clocks = (some, with_group_means_of(unplanned, HIERFAVG), without_group_means(unplanned))
        ratios = [timed(each, OURS)[1] if each.of(FEDAVG).members else None for each in clocks]
        found.rows.append([work, n, *map(times_faster, (cell.speed_up(THEIRS), *ratios))])
    return [found] if found.rows else []


def to_printed(runs: Runs) -> list[Table]:
    """Time FedAvg-IC to the accuracies that the paper prints, which FedAvg may not have here."""
    found = Table(
        "Seconds (speed-up) to the accuracy that the paper prints",
        ("work", "n", "target", "algorithm", "paper", "as mixed", "group means free", "honest"),
        foot="Over the time that FedAvg was given, as in the efficiency table; FedAvg's own row "
        "says when it first got there.",
    )
    for work, n, some, cell in printed_cells(runs):
        by_mix = mixed(some)
        clocks = (by_mix, without_group_means(by_mix), some)
        for name in (FEDAVG, *OTHER_TAUS, THEIRS, OURS, CHOSEN):
            if some.of(name).members or name in OTHER_TAUS:
                row = [work, n, f"{100 * cell.accuracy:.0f}%"]
                told = cell.told(name) if name in (FEDAVG, THEIRS) else ""
                took = [_seconds_to(cell.accuracy, each, name) for each in clocks]
                found.rows.append([*row, name, told, *took])
    return [found] if found.rows else []


def _seconds_to(accuracy: float, runs: Runs, name: str) -> str:
    if not runs.of(name).members:
        return NOT_RUN if name in OTHER_TAUS else "-"  # chosen by another clock
    given = budgets(runs)
    took = times(runs, name, dict.fromkeys(given, accuracy))
    return cell_of(took, took.over(given))


def decomposed(runs: Runs) -> list[Table]:
    """Take speed-ups apart: fewer steps, what a step costs, and the time FedAvg was given."""
    found = Table(
        "What speed-ups are made of, honest",
        ("work", "n", "algorithm", *PARTS),
        foot="Speed-up = fewer steps / dearer steps x given time: FedAvg needs so many times the "
        "steps to the target in whole percent, a step with its share of the means takes so many "
        "times FedAvg's, and FedAvg is given more time than it needs to get there first.",
    )
    for work, n, some, _ in printed_cells(runs):
        base = _steps(some, FEDAVG)
        if base is None:
            continue
        first = times(some, FEDAVG, whole_targets(some))
        given = first.over(budgets(some))
        for name in (FEDAVG, *but_fedavg(some)):
            mine, (took, ratio) = _steps(some, name), timed(some, name)
            row = [work, n, name]
            if not took.by_seed:
                found.rows.append([*row, NOT_RUN, *["-"] * 5])
                continue
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
    return times(steps, name, whole_targets(runs)).mean


def _by_steps(run: RecordedRun) -> RecordedRun:
    return replace(run, rows=[{**row, "seconds": float(row["t"])} for row in run.rows])
