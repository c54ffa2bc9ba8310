"""The efficiency table: seconds to FedAvg's final accuracy, by three clocks."""

from dataclasses import dataclass

from coterie.reproduction.runs import (
    FEDAVG,
    HIERFAVG,
    THEIRS,
    Runs,
    accuracy,
    mean_of,
    speed_up,
    targets,
    times,
)
from coterie.reproduction.tables import NOT_RUN, Table, percent, verdict
from coterie.retime import retime
from coterie.table import number

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
class Cell:
    """What the paper prints of a model and a diversity: accuracy, and seconds (None: never)."""

    accuracy: float
    fedavg: float
    hierfavg: float | None
    ic: float


PRINTED = {
    ("Dtt", "sr"): Cell(0.84, 50, 29, 6),
    ("Dtt", "2nn"): Cell(0.73, 300, None, 47),
    ("Dtt", "cnn"): Cell(0.83, 300, None, 149),
    ("Dhh", "sr"): Cell(0.86, 100, 29, 18),
    ("Dhh", "2nn"): Cell(0.90, 600, 468, 291),
    ("Dhh", "cnn"): Cell(0.96, 600, None, 543),
}
COLUMNS = (
    "work",
    "algorithm",
    "paper\ns",
    "speed\nup",
    "as mixed\ns",
    "speed\nup",
    "verdict",
    "honest\ns",
    "speed\nup",
)
FOOT = (
    "s: simulated seconds to the accuracy that FedAvg ends with, mean over the seeds that reach it "
    "(n/m: n of m do; by the paper's clock, no later than FedAvg). As mixed: the paper's clock. "
    "Honest: counted operations, whole transfers both ways, models combined for all, and the "
    "planner's upload charged. 'fedavg-ic' is with our planner, '(reference)' as the authors group."
)


def efficiency(runs: Runs) -> list[Table]:
    """Set the printed table beside what was measured."""
    found = Table("Efficiency: seconds to FedAvg's final accuracy", COLUMNS, foot=FOOT)
    ends = Table(
        "Final accuracy (%)",
        ("work", "paper: FedAvg", *_algorithms(runs), "FedAvg"),
        foot="After as many steps as FedAvg takes in the paper's time.",
    )
    for (kind, model), cell in PRINTED.items():
        some = runs.where(partition__kind=kind, model__name=model)
        if not some.of(FEDAVG).members:
            continue
        work = f"{kind} {model}"
        found.rows.extend(_rows(work, some, cell))
        means = [some.of(name).average(accuracy) for name in (*_algorithms(runs), FEDAVG)]
        ends.rows.append([work, f"{100 * cell.accuracy:.0f}", *map(percent, means)])
    return [found, ends]


def _algorithms(runs: Runs) -> list[str]:
    return [name for name in runs.labels if name != FEDAVG]


def _rows(work: str, runs: Runs, cell: Cell) -> list[list[str]]:
    wanted = targets(runs)
    mixed = Runs(tuple(retime(run, PAPER_CLOCK) for run in runs.members))
    budget = {seed: run.summary["seconds"] for seed, run in mixed.of(FEDAVG).seeds().items()}
    base_mix, base_truth = times(mixed, FEDAVG, wanted), times(runs, FEDAVG, wanted)
    rows = []
    for name in (FEDAVG, HIERFAVG, *(n for n in _algorithms(runs) if n != HIERFAVG)):
        printed = {FEDAVG: cell.fedavg, HIERFAVG: cell.hierfavg, THEIRS: cell.ic}.get(name)
        told = name in (FEDAVG, HIERFAVG, THEIRS)
        by_mix = times(mixed, name, wanted)
        by_mix = {s: t if t is not None and t <= budget[s] else None for s, t in by_mix.items()}
        by_truth = times(runs, name, wanted)
        ratio = speed_up(base_mix, by_mix)
        judged = verdict(ratio, cell.fedavg / printed if printed else None) if told else ""
        judged = judged if by_mix else NOT_RUN
        rows.append(
            [
                work,
                name,
                (number(printed) if told else ""),
                (_times(cell.fedavg / printed if printed else None) if told else ""),
                _seconds(by_mix),
                _times(ratio),
                judged if name != FEDAVG else "",
                _seconds(by_truth),
                _times(speed_up(base_truth, by_truth)),
            ]
        )
    return rows


def _seconds(found: dict[int, float | None]) -> str:
    reached = [s for s in found.values() if s is not None]
    some = mean_of(reached)
    if not found or some is None:
        return "-"
    share = "" if len(reached) == len(found) else f" ({len(reached)}/{len(found)})"
    return number(some.value) + share


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"
