"""Choosing K, tau1 and tau2 by a pilot, against every choice of a grid. Run: make bench-auto

A cell is a dataset, a skew and a seed. Every schedule of the grid is trained once; links of another
speed move its clock only. The target is the training loss, and in a second table the test accuracy,
that FedAvg with tau = 5 has after three quarters of the steps: with what it has in the end, a last
digit would decide which schedules get there at all. What a cell gave is kept, and read again.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from coterie.config.factories import load_dataset
from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.config.settings import Config
from coterie.core.errors import CoterieError
from coterie.data import Dataset
from coterie.grouping import Grouping
from coterie.simulation.loop import piloted, rounds
from coterie.simulation.measures import Measures
from coterie.simulation.problem import Problem
from coterie.simulation.schedule import Schedule

LINKS = (10.0, 100.0)  # MByte/s
SKEWS = ("Dtt", "Dtq", "Dth")
GRID = [
    (K, tau1, tau2)
    for K in (1, 2, 5, 10, 20)
    for tau1 in (1, 2, 5)
    for tau2 in (1, 2, 5, 10)
    if (K > 1) == (tau2 > 1)  # one group, or a global mean every time: the same as FedAvg
]
THIN = [(K, tau1, tau2) for K, tau1, tau2 in GRID if K in (1, 5, 10) and tau2 in (1, 5)]
FEDAVG, PAPER = (1, 5, 1), (5, 1, 5)
PART = 0.75  # of FedAvg's steps, after which it has what is to be reached
SKETCH = {"name": "fedavg-ic", "evidence": "sketch"}
OPEN = {**SKETCH, "num_groups": "auto", "tau1": "auto", "tau2": "auto"}
Json = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One problem: what is trained on what."""

    data: str
    kind: str
    model: str
    seed: int
    sample: float
    steps: int

    @property
    def name(self) -> str:
        """A name for a file."""
        return f"{self.data}-{self.kind}-{self.model}-{self.sample:g}-{self.steps}-seed{self.seed}"

    @property
    def grid(self) -> list[tuple[int, int, int]]:
        """Schedules to train."""
        return GRID if self.model == "sr" else THIN

    def config(self, algorithm: Json, link: float) -> Config:
        """Return the config of one run."""
        train: Json = {"steps": self.steps}
        if self.model != "sr":
            train["batch_size"] = 16
        return make_config(
            {
                "seed": self.seed,
                "data": {"name": self.data, "sample": self.sample},
                "partition": {"kind": self.kind},
                "model": {"name": self.model},
                "network": {"link_mbytes_per_s": link, "combine": "all"},
                "train": train,
                "algorithm": algorithm,
            }
        )


def algorithm_of(K: int, tau1: int, tau2: int) -> Json:
    """Return the settings of a schedule; one group is FedAvg."""
    if K == 1:
        return {"name": "fedavg", "tau1": tau1, "tau2": 1}
    return {**SKETCH, "num_groups": K, "tau1": tau1, "tau2": tau2}


class Mean(NamedTuple):
    """What is needed of a state, which is much less than its models."""

    t: int
    event: str
    grouping: Grouping | None
    loss: float | None
    accuracy: float | None
    schedule: Schedule | None


def trained(problem: Problem) -> list[Mean]:
    """Run a problem."""
    return [
        Mean(
            s.t,
            s.row.event,
            s.groups.grouping if s.groups else None,
            s.row.train_loss,
            s.row.test_accuracy,
            s.plan.schedule if s.tuned and s.groups else None,
        )
        for s in rounds(replace(problem, measures=Measures()))  # the loss of every mean
    ]


def mean_s(problem: Problem, grouping: Grouping) -> float:
    """Seconds of a mean of groups."""
    return problem.fleet.averaging(grouping, problem.model_bytes).transfer.seconds


def curve_of(problem: Problem, means: Sequence[Mean]) -> list[list[float]]:
    """Seconds, training loss and test accuracy at every global mean, by a problem's clock."""
    seconds, found = 0.0, []
    group_s: dict[int, float] = {}
    for before, s in pairwise([means[0], *means]):
        if s.event == "group" and s.grouping is not None:
            if id(s.grouping) not in group_s:
                group_s[id(s.grouping)] = mean_s(problem, s.grouping)
            seconds += group_s[id(s.grouping)]
        elif s.event == "global":
            seconds += problem.everyone.transfer.seconds
        seconds += (s.t - before.t) * problem.fleet.step_s
        if s.grouping is not None and before.grouping is None and problem.policy.searches:
            each, g = replace(problem.fleet.network, combine=False), problem.everyone.grouping
            seconds += each.upload(g.z, g.servers, problem.view.charged_bytes).seconds
        if s.loss is not None and s.accuracy is not None:
            found.append([seconds, s.loss, s.accuracy])
    return found


def grid_of(cell: Cell, dataset: Dataset, _: Json) -> Json:
    """Train every schedule of the grid."""
    began = time.perf_counter()
    grid: Json = {str(link): {} for link in LINKS}
    for schedule in cell.grid:
        algorithm = algorithm_of(*schedule)
        problems = {link: problem_of(cell, algorithm, link, dataset) for link in LINKS}
        means = trained(problems[LINKS[0]])
        for link, problem in problems.items():
            grid[str(link)][str(schedule)] = curve_of(problem, means)
    return {"grid": grid, "grid_s": time.perf_counter() - began}


def targets_of(found: Json) -> dict[str, float]:
    """Return the loss and the accuracy to reach."""
    curve = found["grid"][str(LINKS[0])][str(FEDAVG)]
    _, loss, accuracy = curve[round(PART * (len(curve) - 1))]
    return {"loss": loss, "accuracy": accuracy}


def auto_of(cell: Cell, dataset: Dataset, grid: Json) -> Json:
    """Let runs choose, for every link and target, and keep what they forecast."""
    began = time.perf_counter()
    found: Json = {"auto": {}, "forecast": {}}
    for link in LINKS:
        for what, value in targets_of(grid).items():
            problem = problem_of(cell, {**OPEN, f"target_{what}": value}, link, dataset)
            means = trained(problem)
            key = f"{link} {what}"
            found["auto"][key] = {"curve": curve_of(problem, means), "chosen": chosen(means)}
            found["forecast"][key] = forecast_of(problem)
    return {**found, "auto_s": time.perf_counter() - began}


def problem_of(cell: Cell, algorithm: Json, link: float, dataset: Dataset) -> Problem:
    """Prepare one run."""
    return prepare(cell.config(algorithm, link), dataset).problem


def chosen(means: Sequence[Mean]) -> list[list[int]]:
    """Steps, groups, tau1 and tau2 of every schedule that a run took up."""
    found: list[list[int]] = []
    for s in means:
        if s.grouping and s.schedule:
            new = [s.schedule.start, len(s.grouping.sizes), s.schedule.tau1, s.schedule.tau2]
            if not found or found[-1][1:] != new[1:]:
                found.append(new)
    return found


def forecast_of(problem: Problem) -> Json:
    """Seconds that the pilot forecasts for every schedule, with the planner's own groups."""
    state, choice = piloted(problem)
    best: dict[str, float] = {}
    own: dict[int, int] = {}
    for f in choice.forecasts:
        if f.option.at <= own.get(f.option.num_groups, f.option.at):
            own[f.option.num_groups] = f.option.at
    for f in choice.forecasts:
        if f.option.at == own[f.option.num_groups]:
            key = str((f.option.num_groups, f.tau1, f.tau2))
            best[key] = state.clock.seconds + choice.outlook.beyond_s(f)
    return {k: v if math.isfinite(v) else None for k, v in best.items()}


def kept(cell: Cell, folder: Path) -> Json:
    """Read what a cell gave, or measure it now and keep it."""
    dataset = None
    found: Json = {}
    for part, measure in (("grid", grid_of), ("auto", auto_of)):
        path = folder / f"{cell.name}-{part}.json"
        if not path.exists():
            dataset = dataset or load_dataset(cell.config(OPEN, LINKS[0]))
            new = measure(cell, dataset, found)
            path.with_suffix(".tmp").write_text(json.dumps(new))
            path.with_suffix(".tmp").rename(path)
        found |= json.loads(path.read_text())
    return found


def hit(curve: Sequence[Sequence[float]], what: str, target: float) -> float:
    """Seconds to a target, infinite for never."""
    for seconds, loss, accuracy in curve:
        if loss <= target if what == "loss" else accuracy >= target:
            return seconds
    return math.inf


@dataclass(frozen=True)
class Line:
    """Seconds to a target in one cell with one link."""

    best: float
    which: str
    auto: float
    fedavg: float
    paper: float
    rank: float  # not a number where all forecasts are the same: never

    @property
    def over_grid(self) -> float:
        """How many times faster than (5, 1, 5) the grid's best is."""
        return self.paper / self.best

    @property
    def over_best(self) -> float:
        """Auto's time over that of the grid's best."""
        return self.auto / self.best

    @property
    def over_fedavg(self) -> float:
        """How many times faster than FedAvg auto is."""
        return self.fedavg / self.auto

    @property
    def over_paper(self) -> float:
        """How many times faster than (5, 1, 5) auto is."""
        return self.paper / self.auto


def line(cell: Json, link: float, what: str) -> Line:
    """Read times off what a cell gave."""
    target = targets_of(cell)[what]
    key = f"{link} {what}"
    times = {k: hit(curve, what, target) for k, curve in cell["grid"][str(link)].items()}
    forecast = {k: v if v is not None else math.inf for k, v in cell["forecast"][key].items()}
    both = [(forecast[k], times[k]) for k in times if k in forecast]
    top = 2 * max(x for pair in both for x in pair if math.isfinite(x))
    told, true = (np.minimum(column, top) for column in zip(*both, strict=True))
    best = min(times, key=lambda k: times[k])
    return Line(
        times[best],
        best,
        hit(cell["auto"][key]["curve"], what, target),
        times[str(FEDAVG)],
        times[str(PAPER)],
        float(spearmanr(told, true).statistic) if len(set(told)) > 1 else math.nan,
    )


def cells(data: Sequence[str], seeds: int, sample: float, steps: int) -> Iterator[Cell]:
    """Yield what is measured."""
    for name in data:
        for kind in SKEWS:
            for seed in range(seeds):
                yield Cell(name, kind, "sr", seed, sample, steps)
    for seed in range(seeds):
        yield Cell("mnist-o", "Dtt", "2nn", seed, sample, steps // 2)


def main() -> None:
    """Measure what is not yet there, and print the tables."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--data", default="mnist-o,mnist-f")
    ask.add_argument("--seeds", type=int, default=3)
    ask.add_argument("--sample", type=float, default=0.1, help="part of the data")
    ask.add_argument("--steps", type=int, default=200)
    ask.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    ask.add_argument("--out", type=Path, default=Path("runs/auto"))
    said = ask.parse_args()
    said.out.mkdir(parents=True, exist_ok=True)
    wanted = list(cells(said.data.split(","), said.seeds, said.sample, said.steps))
    found: dict[Cell, Json] = {}
    with ProcessPoolExecutor(said.workers) as pool:
        jobs = {cell: pool.submit(kept, cell, said.out) for cell in wanted}
        for done, (cell, job) in enumerate(jobs.items(), 1):
            try:
                found[cell] = job.result()
                took = found[cell]["grid_s"] + found[cell]["auto_s"]
                print(f"[{done}/{len(jobs)}] {cell.name}: {took:.0f} s", flush=True)
            except CoterieError as error:
                print(f"[{done}/{len(jobs)}] {cell.name} left out: {error}", flush=True)
    for what in ("loss", "accuracy"):
        tell(found, what)


HEAD = (
    *("data", "skew", "model", "MByte/s", "grid's best", "K, tau1, tau2", "auto"),
    *("auto / best", "FedAvg / auto", "(5, 1, 5) / auto", "rank correlation"),
)


def tell(found: dict[Cell, Json], what: str) -> None:
    """Print the table of a kind of target, means over seeds, and what the whole comes to."""
    print(f"\nSeconds to the {what} of FedAvg (tau = 5) after {PART:.0%} of its steps\n")
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    every: list[Line] = []
    for data, kind, model in sorted({(c.data, c.kind, c.model) for c in found}):
        own = [v for c, v in found.items() if (c.data, c.kind, c.model) == (data, kind, model)]
        for link in LINKS:
            rows = [line(cell, link, what) for cell in own]
            every += rows
            said = (
                *(data, kind, model, f"{link:g}", f"{_mean(rows, 'best'):.2f}"),
                *("; ".join(sorted({row.which for row in rows})), f"{_mean(rows, 'auto'):.2f}"),
                *(f"{_mean(rows, 'over_best'):.2f}", f"{_mean(rows, 'over_fedavg'):.2f}x"),
                *(f"{_mean(rows, 'over_paper'):.2f}x", _ranks(rows)),
            )
            print("| " + " | ".join(said) + " |")
    ranked = [row for row in every if math.isfinite(row.rank)]
    least = min((row.rank for row in ranked), default=math.nan)
    print(
        f"\nover {len(every)}: auto takes {_mean(every, 'over_best'):.3f} of the grid's best, "
        f"FedAvg {_mean(every, 'over_fedavg'):.2f}x as long as auto (at least "
        f"{min(row.over_fedavg for row in every):.2f}x), (5, 1, 5) "
        f"{_mean(every, 'over_paper'):.2f}x (and {_mean(every, 'over_grid'):.2f}x as long as the "
        f"grid's best); rank correlation {_mean(ranked, 'rank'):.3f} (least "
        f"{least:.2f}) where forecasts differ, which is {len(ranked)}"
    )


def _ranks(rows: Sequence[Line]) -> str:
    """Mean rank correlation of the seeds where forecasts differ, if there is any."""
    found = [row for row in rows if math.isfinite(row.rank)]
    some = f" ({len(found)} of {len(rows)})" if len(found) < len(rows) else ""
    return f"{_mean(found, 'rank'):.2f}{some}" if found else "-"


def _mean(rows: Sequence[Line], name: str) -> float:
    return float(np.mean([getattr(row, name) for row in rows]))


if __name__ == "__main__":
    main()
