"""Forecasts of a target accuracy, against every schedule of a grid. Run: make bench-accuracy

Every schedule of the grid is trained on the problems of cells.py. What a rule may see
(training loss, accuracy on the validation part) and what it is judged by (on the test part) is kept
at every global mean, so that rules can be tried without training (judge.py). With --auto,
runs that choose their own schedule are trained, too. What is there is not made again.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cells import GRID, HELD_OUT, MADE_ON, OPEN, Cell, algorithm_of
from judge import target_of

from coterie.config.factories import load_dataset
from coterie.config.prepare import prepare
from coterie.data import Dataset
from coterie.simulation.loop import piloted, rounds
from coterie.simulation.measures import Measures
from coterie.simulation.policies.pilot import Choice
from coterie.simulation.problem import Problem
from coterie.simulation.state import State

Json = dict[str, Any]


def look(problem: Problem, s: State) -> list[float]:
    """Step, training loss, accuracy on the validation and on the test part."""
    val = problem.engine.evaluate(s.models.w[0], "val").accuracy
    assert s.row.train_loss is not None and s.row.test_accuracy is not None and val is not None
    return [s.t, *(round(x, 6) for x in (s.row.train_loss, val, s.row.test_accuracy))]


def trained(problem: Problem) -> tuple[list[list[float]], State]:
    """Run a problem; return what is seen at its start and every global mean."""
    found: list[list[float]] = []
    for s in rounds(replace(problem, measures=Measures())):
        if s.row.event != "group":
            found.append(look(problem, s))
    return found, s


def record(cell: Cell) -> Json:
    """Train what a problem has, and price it on its networks."""
    dataset = load_dataset(cell.config(OPEN, cell.networks[0]))
    found: Json = {"model": cell.model, "steps": cell.steps, "lr": cell.lr, "networks": []}
    trees: dict[str, Json] = {}
    for network in cell.networks:
        where = network.get("topology", "fat-tree")
        curves = trees.setdefault(where, {"curves": {}, "states": {}})
        pilot = problem_of(cell, {**OPEN, "target_accuracy": 0.5}, network, dataset)
        s, choice = piloted(pilot)
        looks = pilot_looks(pilot)
        costs: Json = {}
        for schedule in GRID:
            problem = problem_of(cell, algorithm_of(*schedule), network, dataset)
            key = str(schedule)
            if key not in curves["curves"]:
                known = trees[next(iter(trees))]["curves"].get(key) if schedule[0] == 1 else None
                if known is None:
                    known, curves["states"][key] = trained(problem)
                curves["curves"][key] = known
            groups = curves["states"].get(key)
            costs[key] = group_s(problem, groups, schedule[0])
        found["networks"].append(
            {"network": network, "curves": where, "pilot_s": s.clock.seconds, "looks": looks}
            | {"grouping_s": s.clock.grouping_s, "group_s": costs, **choice_of(choice)}
        )
    return found | {"curves": {where: kept["curves"] for where, kept in trees.items()}}


def pilot_looks(problem: Problem) -> list[list[float]]:
    """What the pilot sees at its three global means, and at the start."""
    found: list[list[float]] = []
    for s in rounds(replace(problem, measures=Measures())):
        found.append(look(problem, s))
        if s.groups:
            return found
    return found


def choice_of(choice: Choice) -> Json:
    """What the pilot knows of options: seconds, and groups with their divergences."""
    o = choice.outlook
    options = {f.option for f in choice.forecasts}
    return {
        "step_s": o.step_s,
        "global_s": o.global_s,
        "options": sorted(
            [f.num_groups, round(f.ratio, 6), f.mean_s, f.mean_bytes, f.at] for f in options
        ),
    }


def group_s(problem: Problem, s: State | None, K: int) -> float:
    """Seconds of a mean of the groups that a run found."""
    if K == 1 or s is None or s.groups is None:
        return 0.0
    g = s.groups.grouping
    return problem.fleet.averaging(g, problem.model_bytes).transfer.seconds


def auto(cell: Cell, target: float) -> list[Json]:
    """Train runs that choose, to a test accuracy, on every network of a problem."""
    found: list[Json] = []
    for network in cell.networks:
        dataset = load_dataset(cell.config(OPEN, network))
        problem = problem_of(cell, {**OPEN, "target_accuracy": target}, network, dataset)
        curve: list[list[float]] = []
        for s in rounds(replace(problem, measures=Measures({"accuracy": 1}))):
            if s.row.event != "group" and s.row.test_accuracy is not None:
                curve.append([s.t, s.row.seconds, s.row.test_accuracy])
        assert s.tuned is not None and s.groups is not None
        groups = len(s.groups.grouping.sizes)
        found.append({"curve": curve, "groups": groups, "changes": s.tuned.changes})
    return found


def problem_of(cell: Cell, algorithm: Json, network: Json, dataset: Dataset) -> Problem:
    """Prepare one run."""
    return prepare(cell.config(algorithm, network), dataset).problem


def main() -> None:
    """Record problems, and what is chosen in them."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--out", type=Path, default=Path("runs/accuracy"))
    ask.add_argument("--femnist", default="")
    ask.add_argument("--arrays", default="")
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--only", type=int, nargs="*")
    ask.add_argument("--held-out", action="store_true")
    ask.add_argument("--auto", action="store_true")
    said = ask.parse_args()
    said.out.mkdir(parents=True, exist_ok=True)
    paths = {k: v for k, v in (("femnist", said.femnist), ("arrays", said.arrays)) if v}
    for n, plain in enumerate(HELD_OUT if said.held_out else MADE_ON):
        cell = replace(plain, seed=said.seed, paths=paths)
        if said.only and n not in said.only:
            continue
        found = kept(said.out / f"{cell.name}.json", partial(record, cell))
        if said.auto:
            target = target_of(found)
            chose = said.out / f"{cell.name}-auto.json"
            kept(chose, partial(auto, cell, target))
        print(cell.name, flush=True)


def kept(path: Path, make: Callable[[], Any]) -> Any:
    """Read what is there, or make it now and keep it."""
    if not path.exists():
        path.with_suffix(".tmp").write_text(json.dumps(make()))
        path.with_suffix(".tmp").rename(path)
    return json.loads(path.read_text())


if __name__ == "__main__":
    main()
