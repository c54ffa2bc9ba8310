"""What the rule for a target accuracy forecasts from recorded pilots, against recorded curves.

Usage: python benchmarks/curves/judge.py FOLDER, with what record.py has kept there. Nothing is
trained. The target is the test accuracy that FedAvg with tau = 5 has after three quarters of its
steps. `fixed` is the grid's schedule that the pilot would choose, followed from the first step.
"""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cells import FEDAVG, GRID
from scipy.stats import spearmanr

from coterie.simulation.forecast import PILOT, Look, Option, Outlook, Tuning
from coterie.simulation.progress import Round

Json = dict[str, Any]
PART = 0.75  # of FedAvg's steps, after which it has what is to be reached
DECAY = 0.99
LEARNT = 0.95  # the least that tuned FedAvg may take of auto's seconds


def target_of(found: Json) -> float:
    """Return the test accuracy to reach."""
    curve = next(iter(found["curves"].values()))[str(FEDAVG)]
    return float(curve[round(PART * (len(curve) - 1))][-1])


@dataclass(frozen=True)
class Line:
    """One problem on one network: seconds to the target."""

    name: str
    model: str
    network: str
    times: dict[str, float]  # by schedule
    seen: dict[str, float]  # likewise, to the same accuracy on the validation part
    told: dict[str, float]
    fixed: str
    auto: float
    chose: str

    @property
    def best(self) -> float:
        """Seconds of the grid's best."""
        return min(self.times.values())

    @property
    def fedavg(self) -> float:
        """Seconds of FedAvg with its best tau of the grid."""
        return min(self.times[str(one)] for one in GRID if one[0] == 1)


def lines(path: Path) -> Iterator[Line]:
    """Read what a problem gave, a line for every network."""
    found = json.loads(path.read_text())
    chose = path.with_name(f"{path.stem}-auto.json")
    ran = json.loads(chose.read_text()) if chose.exists() else []
    target = target_of(found)
    for at, network in enumerate(found["networks"]):
        told, first = forecasts(found, network, target)
        auto, schedules = math.inf, "-"
        if ran:
            auto = hit([(s, accuracy) for _, s, accuracy in ran[at]["curve"]], target)
            schedules = _schedules(ran[at])
        seconds = {str(one): times(found, network, one) for one in GRID}
        yield Line(
            path.stem,
            found["model"],
            _network(network["network"]),
            {k: hit([(s, row[-1]) for s, row in v], target) for k, v in seconds.items()},
            {k: hit([(s, row[2]) for s, row in v], target) for k, v in seconds.items()},
            told,
            first,
            auto,
            schedules,
        )


def times(found: Json, network: Json, schedule: tuple[int, int, int]) -> list[Any]:
    """Return the seconds of every global mean of a schedule, and its row."""
    K, tau1, tau2 = schedule
    before = network["grouping_s"] + network["global_s"] if K > 1 else 0.0
    round_s = network["global_s"] + (tau2 - 1) * network["group_s"][str(schedule)]
    step_s = round_s / (tau1 * tau2) + network["step_s"]
    rows = found["curves"][network["curves"]][str(schedule)]
    return [(before + row[0] * step_s, row) for row in rows]


def hit(curve: Sequence[tuple[float, float]], target: float) -> float:
    """Return the first seconds with an accuracy, infinite for never."""
    return next((seconds for seconds, accuracy in curve if accuracy >= target), math.inf)


def forecasts(found: Json, network: Json, target: float) -> tuple[dict[str, float], str]:
    """Return the seconds that a pilot forecasts for the grid, and the schedule it would choose."""
    rates = found["lr"] * DECAY ** np.arange(found["steps"])
    start, looks = 0, []
    for steps, row in zip(PILOT, network["looks"][1:], strict=True):
        looks.append(Look(Round(start, steps, 1), row[1], row[2]))
        start += steps
    own: dict[int, Option] = {}
    for K, ratio, mean_s, mean_bytes, at in network["options"]:
        if K not in own or at < own[K].at:
            own[K] = Option(K, ratio, mean_s, mean_bytes, at)
    tuning = Tuning(rates, tau1=(1, 2, 5), tau2=(2, 5, 10), target_accuracy=target)
    first_loss, costs = network["looks"][0][1], (network["step_s"], network["global_s"], 0.0)
    outlook = Outlook(tuning, tuple(looks), first_loss, *costs)
    kinds = {str(one) for one in GRID}
    told = {
        key: network["pilot_s"] + outlook.beyond_s(f)
        for f in outlook.forecasts([own[K] for K in sorted({one[0] for one in GRID})])
        if (key := str((f.option.num_groups, f.tau1, f.tau2))) in kinds
    }
    return told, next(iter(told))


def rank(told: dict[str, float], true: dict[str, float]) -> float:
    """Return the rank correlation of what is told; never is twice the longest."""
    both = [(told[k], true[k]) for k in true]
    top = 2 * max(x for pair in both for x in pair if math.isfinite(x))
    a, b = (np.minimum(column, top) for column in zip(*both, strict=True))
    return float(spearmanr(a, b).statistic) if len(set(a)) > 1 else math.nan


def _network(network: Json) -> str:
    return f"{network.get('topology', 'fat-tree')}, {network['link_mbytes_per_s']:g}"


def _schedules(ran: Json) -> str:
    named = [f"({tau1}, {tau2})@{t}" for t, tau1, tau2 in ran["changes"]]
    more = f" +{len(named) - 3}" if len(named) > 3 else ""
    return f"{ran['groups']}: {' '.join(named[:3])}{more}"


HEAD = (
    *("problem", "network, MByte/s", "grid's best", "K, tau1, tau2", "best FedAvg", "fixed"),
    *("fixed / best", "auto", "auto / best", "FedAvg / auto", "rank", "by validation", "chose"),
)


def main() -> None:
    """Print a line for every problem and network, and what they come to by model."""
    paths = sorted(Path(sys.argv[1]).glob("*.json"))
    every = [one for p in paths if not p.stem.endswith("-auto") for one in lines(p)]
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    for one in every:
        best = min(one.times, key=lambda k: one.times[k])
        said = (
            *(one.name, one.network, f"{one.best:.2f}", best, f"{one.fedavg:.2f}", one.fixed),
            *(f"{one.times[one.fixed] / one.best:.2f}", f"{one.auto:.2f}"),
            *(f"{one.auto / one.best:.2f}", f"{one.fedavg / one.auto:.2f}x"),
            *(f"{rank(one.told, one.times):.2f}", f"{rank(one.seen, one.times):.2f}", one.chose),
        )
        print("| " + " | ".join(said) + " |")
    for model in sorted({one.model for one in every}):
        own = [one for one in every if one.model == model]
        ahead = [one.fedavg / one.auto for one in own]
        fixed = [one.times[one.fixed] / one.best for one in own]
        over = np.mean([one.auto / one.best for one in own])
        told = np.nanmean([rank(one.told, one.times) for one in own])
        seen = np.nanmean([rank(one.seen, one.times) for one in own])
        print(
            f"\n{model}, {len(own)} cases: auto takes {over:.3f} of the grid's best, what is fixed "
            f"{np.mean(fixed):.3f}; tuned FedAvg takes {np.mean(ahead):.2f}x of auto (at least "
            f"{min(ahead):.2f}x, below {LEARNT} in {sum(x < LEARNT for x in ahead)}); rank "
            f"correlation {told:.2f}, by the validation part itself {seen:.2f}"
        )


if __name__ == "__main__":
    main()
