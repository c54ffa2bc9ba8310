"""The efficiency table: seconds to FedAvg's final accuracy, by the paper's clock and honest."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from coterie.analysis.align import chose
from coterie.analysis.format import number
from coterie.analysis.lines import label
from coterie.paper.runs import (
    CHOSEN,
    FEDAVG,
    HIERFAVG,
    OTHER_TAUS,
    OURS,
    THEIRS,
    Runs,
    Times,
    accuracy,
    budgets,
    mixed,
    spoken,
    targets,
    times,
    without_group_means,
)
from coterie.paper.tables import (
    NOT_RUN,
    WITHIN,
    Dots,
    Table,
    at_least,
    percent,
    seconds,
    times_faster,
    verdict,
)


@dataclass(frozen=True)
class Cell:
    """What the paper prints of a model and a diversity: accuracy, and seconds (None: never)."""

    accuracy: float
    fedavg: float
    hierfavg: float | None
    ic: float

    def speed_up(self, algorithm: str) -> float | None:
        """Return the printed speed-up over FedAvg; None: never reached."""
        took = {FEDAVG: self.fedavg, HIERFAVG: self.hierfavg, THEIRS: self.ic}[algorithm]
        return self.fedavg / took if took else None

    def told(self, algorithm: str) -> str:
        """Write what is printed of an algorithm."""
        ratio = self.speed_up(algorithm)
        return f"{self.fedavg / ratio:.0f} ({times_faster(ratio)})" if ratio else "-"


PRINTED = {
    ("Dtt", "sr"): Cell(0.84, 50, 29, 6),
    ("Dtt", "2nn"): Cell(0.73, 300, None, 47),
    ("Dtt", "cnn"): Cell(0.83, 300, None, 149),
    ("Dhh", "sr"): Cell(0.86, 100, 29, 18),
    ("Dhh", "2nn"): Cell(0.90, 600, 468, 291),
    ("Dhh", "cnn"): Cell(0.96, 600, None, 543),
}
COLUMNS = (
    *("work", "n", "algorithm", "paper"),
    *("as mixed", "verdict", "honest", "verdict"),
    *("our planner", "verdict", "its schedule, too", "verdict"),
)
FOOT = (
    "Seconds (speed-up over FedAvg) to the accuracy that FedAvg ends with, in whole percent "
    "(rounded down), mean over the seeds that get there; more than half must. FedAvg's seconds are "
    "the time it was given, as in the paper, and in brackets when it first got there. As mixed: "
    "the paper's clock. Honest: counted operations, whole transfers both ways, models combined for "
    "everybody, the planner's upload charged; grouped as the authors do. Our planner: honest, "
    "grouped by it, judged by whether it is at least the paper's. Its schedule, too: it also chose "
    "how many groups and how often to average, by a pilot on the clock. FedAvg averages every five "
    "steps, and by another tau every so many. That, and schedules that were chosen, are shown "
    "where all seeds of the others were run. n: seeds that all others have. "
    f"Reproduced: a speed-up within {WITHIN:.0%} of the printed one and on the same side of 1; "
    "where the paper has a dash, later than FedAvg or never. In the picture, group means free: as "
    "mixed, but group means take no time."
)
OTHERS = "-: a schedule that was chosen by the honest clock cannot be timed by another."
STRICT = (
    "Speed-ups if FedAvg, too, is timed when it first gets there, each seed to its own final "
    "accuracy to the last digit: no given time, no rounding."
)


def efficiency(runs: Runs) -> list[Table]:
    """Set the printed table beside what was measured."""
    dots = Dots("speed-ups", "FedAvg-IC over FedAvg: printed and measured", "speed-up")
    found = Table(
        "Efficiency: seconds to FedAvg's final accuracy",
        COLUMNS,
        foot=f"{FOOT} {spoken(runs)}",
        dots=dots,
    )
    others = Table(
        "Other groupings: seconds (speed-up) to the same accuracy",
        ("work", "n", "algorithm", "as mixed", "honest"),
        foot=OTHERS if CHOSEN in runs.labels else "",
    )
    strict = Table(
        "Speed-ups to FedAvg's exact final accuracy, FedAvg timed likewise",
        ("work", "n", "algorithm", "paper", "as mixed", "honest"),
        foot=STRICT,
    )
    ends = Table(
        "Final accuracy (%)",
        ("work", "n", "steps", "paper: FedAvg", FEDAVG, *but_fedavg(runs)),
        foot="After all steps, for which FedAvg takes the time that it is given.",
    )
    for work, n, some, cell in printed_cells(runs):
        by_mix = mixed(some)
        found.rows.extend([work, n, *row] for row in _rows(by_mix, some, cell))
        dots.add(f"{work} (n = {n})", _speed_ups(by_mix, some, cell))
        others.rows.extend([work, n, *row] for row in _others(by_mix, some))
        strict.rows.extend([work, n, *row] for row in _strict(by_mix, some, cell))
        steps = ", ".join(f"{value}" for value, _ in some.each("train.steps"))
        means = [some.of(name).average(accuracy) for name in (FEDAVG, *but_fedavg(runs))]
        told = f"{100 * cell.accuracy:.0f}"
        ends.rows.append([work, n, steps, told, *map(percent, means)])
    return [table for table in (found, others, strict, ends) if table.rows]


def printed_cells(runs: Runs, *also: str) -> Iterator[tuple[str, str, Runs, Cell]]:
    """Go through the printed cells whose FedAvg, and others if named, were run.

    Each is what it is of, how many seeds there are, its runs, and what is printed.
    """
    for (kind, model), cell in PRINTED.items():
        some = runs_of(runs, kind, model)
        if all(some.of(name).members for name in (FEDAVG, *also)):
            yield f"{kind} {model}", f"{len(targets(some))}", some, cell


def whole_targets(runs: Runs) -> dict[int, float]:
    """FedAvg's mean final accuracy in whole percent, as the paper prints it, for every seed.

    Rounded down, so that FedAvg itself has it.
    """
    wanted = targets(runs)
    whole = math.floor(100 * sum(wanted.values()) / len(wanted) + 1e-9) / 100
    return dict.fromkeys(wanted, whole)


def but_fedavg(runs: Runs) -> list[str]:
    """List the algorithms but FedAvg: first itself by another tau, run or not, then what was."""
    return [*OTHER_TAUS, *(name for name in runs.labels if name not in (FEDAVG, *OTHER_TAUS))]


def _rows(by_mix: Runs, runs: Runs, cell: Cell) -> list[list[str]]:
    told = [part for name in (OURS, CHOSEN) for part in _planned(runs, name, cell)]
    nothing = [""] * len(told)
    given = [_given(by_mix), "", _given(runs), "", *nothing]
    rows = [[f"fedavg (to {_target(runs)})", number(cell.fedavg), *given]]
    for name in OTHER_TAUS:
        took = [cell_of(*timed(which, name)) for which in (by_mix, runs)]
        rows.append([name, "", took[0], "", took[1], "", *nothing])
    for name in (HIERFAVG, THEIRS):
        ratio = cell.speed_up(name)
        row = [name, cell.told(name)]
        for which in (by_mix, runs):
            found, mine = timed(which, name)
            judged = verdict(mine, ratio) if found.by_seed else NOT_RUN
            row += [cell_of(found, mine), judged]
        rows.append([*row, *(told if name == THEIRS else nothing)])
    return rows


def _speed_ups(by_mix: Runs, runs: Runs, cell: Cell) -> dict[str, float | None]:
    """Return the speed-ups of FedAvg-IC, by what they are."""
    return {
        "paper": cell.speed_up(THEIRS),
        "as mixed": timed(by_mix, THEIRS)[1],
        "group means free": timed(without_group_means(by_mix), THEIRS)[1],
        "honest": timed(runs, THEIRS)[1],
        "our planner": timed(runs, OURS)[1],
        "its schedule, too": timed(runs, CHOSEN)[1],
    }


def _planned(runs: Runs, name: str, cell: Cell) -> list[str]:
    """Write seconds with our planner, and whether the speed-up is at least the paper's."""
    found, faster = timed(runs, name)
    if not found.by_seed:
        return [NOT_RUN, NOT_RUN]
    return [cell_of(found, faster), at_least(faster, cell.fedavg / cell.ic)]


def _others(by_mix: Runs, runs: Runs) -> list[list[str]]:
    printed = (FEDAVG, *OTHER_TAUS, HIERFAVG, THEIRS)
    names = [name for name in runs.labels if name not in printed]
    return [[name, *(_time(some, name) for some in (by_mix, runs))] for name in names]


def _time(runs: Runs, name: str) -> str:
    return cell_of(*timed(runs, name)) if runs.of(name).members else "-"


def _strict(by_mix: Runs, runs: Runs, cell: Cell) -> list[list[str]]:
    rows = []
    for name in but_fedavg(runs):
        told = name in (HIERFAVG, THEIRS)
        row = [name, times_faster(cell.speed_up(name)) if told else ""]
        for which in (by_mix, runs):
            if not runs.of(name).members:
                row.append(NOT_RUN)
                continue
            wanted = targets(which)
            base = times(which, FEDAVG, wanted).reached
            row.append(times_faster(times(which, name, wanted).over(base)))
        rows.append(row)
    return rows


def runs_of(runs: Runs, kind: str, model: str) -> Runs:
    """Return the runs of one printed cell, on the seeds that all its algorithms have.

    A schedule that was chosen, and FedAvg's other ones, are left out unless they have all of these.
    """
    found = runs.where(partition__kind=kind, model__name=model)
    beside = tuple(run for run in found.members if chose(run) or label(run) in OTHER_TAUS)
    others = Runs(tuple(run for run in found.members if run not in beside)).level()
    seeds, more = targets(others), []
    for name in Runs(beside).labels:
        own = Runs(beside).of(name).seeds()
        more += [own[seed] for seed in seeds] if set(own) >= set(seeds) else []
    return Runs((*others.members, *more))


def timed(runs: Runs, name: str) -> tuple[Times, float | None]:
    """Return when an algorithm gets there, and its speed-up over the time FedAvg was given."""
    found = times(runs, name, whole_targets(runs))
    return found, found.over(budgets(runs))


def cell_of(found: Times, ratio: float | None) -> str:
    """Write seconds and a speed-up."""
    return seconds(found) + ("" if ratio is None else f" ({times_faster(ratio)})")


def _given(runs: Runs) -> str:
    """Write the time FedAvg was given, and when it first reached the target."""
    given = budgets(runs)
    first = seconds(times(runs, FEDAVG, whole_targets(runs)))
    return f"{number(sum(given.values()) / len(given))} ({first})"


def _target(runs: Runs) -> str:
    return f"{100 * next(iter(whole_targets(runs).values())):.0f}%"
