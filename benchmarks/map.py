"""Where groups pay: every method at its best, over skew, networks, models and nodes per edge.

Usage: python benchmarks/map.py [--out FOLDER] [--parts A,B] [--no-run]; `make bench-map` runs it.
A cell is a skew, a model, a number of nodes per edge, and a network. Learning rate and schedule of
every method are searched as by `coterie fair`: as many trials each, on one seed, scored on the
validation part. The best runs with other seeds, scored on the test part. The network moves the
clock, and what groups are searched for by it: for every network groups are planned anew, but runs
whose groups, schedule, rate and seed are the same train the same, and are trained once. All that
was trained is kept in FOLDER/trained.jsonl, and cells that are done in FOLDER/cells.jsonl, so that
the same command goes on where it was stopped.
"""

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from coterie.analysis.fair import COMBINED, METHODS, Method, space_of
from coterie.analysis.tuning import Score, best, next_points, score, values_at
from coterie.config.factories import load_dataset
from coterie.config.files import make_config
from coterie.config.prepare import Prepared, prepare
from coterie.core.errors import DivergenceError, GroupingError
from coterie.data import Dataset
from coterie.grouping import Evidence, Grouping
from coterie.network import Transfer
from coterie.partition.measure import emd, pooled
from coterie.simulation.loop import first_evidence, rounds
from coterie.simulation.planning import asked, evidence_for, evidence_upload
from coterie.simulation.problem import Problem

Json = dict[str, Any]
SKEWS: dict[str, Json] = {
    "iid": {"kind": "iid"},
    "dirichlet": {"kind": "dirichlet", "alpha": 0.3, "placement": "random"},
    "one class": {"kind": "pathological", "classes_per_node": 1, "placement": "random"},
    "one class, by edge": {"kind": "Dtt", "sd": 0.0},
}
PLACES = ("edge-cloud", "fat-tree")  # edges and a cloud serve; members serve
RATIOS = (10.0, 100.0, 1.0)  # how many times as fast a node's own link is
FAST, FAST_S, SLOW_S = 12.5, 0.005, 0.01  # MByte/s and latency of it, and latency of the others
EDGES, SEEDS, TRIALS, STEPS, TARGET = 10, 4, 10, 60, 0.7
SHAKES = 3  # of the search for groups, which takes most of the time otherwise
RATES = {"sr": 0.5, "2nn": 0.5}  # in the middle of those that are tried
NAMES = ("fedavg", "hierfavg", "random", "coterie")
SLOW_TIERS = {"edge-cloud": "backhaul", "fat-tree": "pod"}
PARTS = {  # models, nodes per edge, networks
    "sr": (("sr",), (4,), PLACES, RATIOS),
    "nodes": (("sr",), (2, 10), PLACES, RATIOS),
    "2nn": (("2nn",), (4,), PLACES, RATIOS),
}


class Cell(NamedTuple):
    """One place of the map."""

    skew: str
    model: str
    per_edge: int
    place: str
    ratio: float


def cells(parts: Sequence[str]) -> Iterator[Cell]:
    """List the cells of the parts."""
    for part in parts:
        for model, n, place, skew, slow in product(*_order(PARTS[part])):
            yield Cell(skew, model, n, place, slow)


def _order(part: tuple[Any, ...]) -> tuple[Any, ...]:
    models, per_edge, places, ratios = part
    return models, per_edge, places, tuple(SKEWS), ratios


def settings(cell: Cell, seed: int, scored: str, lr: float, algorithm: Json) -> Json:
    """Return the settings of a run."""
    return {
        "seed": seed,
        "data": {"name": "mnist-f-mini", "sample": 0.3, "scored": scored},
        "partition": {
            **SKEWS[cell.skew],
            "num_nodes": EDGES * cell.per_edge,
            "num_edges": EDGES,
        },
        "model": {"name": cell.model},
        "network": {
            "topology": cell.place,
            "link_mbytes_per_s": FAST / cell.ratio,
            "latency_s": SLOW_S,
            "access_mbytes_per_s": FAST,
            "access_latency_s": FAST_S,
        },
        "algorithm": {"shakes": SHAKES, **algorithm},
        "train": {"steps": STEPS, "lr": lr, "measure": ["accuracy"], "batch_size": "full"},
    }


class Mean(NamedTuple):
    """A mean: after which step, of groups or of all, and the accuracy if it was measured."""

    t: int
    event: str
    accuracy: float | None


class Kept:
    """Lines of JSON by key, in a file that grows."""

    def __init__(self, path: Path) -> None:
        """Read what is there; a last line that was cut off is left out."""
        self._path, self.by_key = path, {}
        if path.exists():
            for line in path.read_text().splitlines():
                with_key = json.loads(line) if line.endswith("}") else {}
                if with_key:
                    self.by_key[with_key["key"]] = with_key["value"]

    def add(self, key: str, value: Any) -> None:
        """Keep a value."""
        self.by_key[key] = value
        with self._path.open("a") as file:
            file.write(json.dumps({"key": key, "value": value}) + "\n")


@dataclass(frozen=True)
class Asked:
    """A method at one point of its search, on one seed."""

    cell: Cell
    name: str
    combined: bool
    values: tuple[tuple[str, Any], ...]  # of the searched settings
    seed: int
    scored: str

    @property
    def method(self) -> Method:
        """What it is."""
        return METHODS[self.name]

    @property
    def lr(self) -> float:
        """Its learning rate."""
        return float(dict(self.values)["train.lr"])

    @property
    def algorithm(self) -> Json:
        """Its settings of [algorithm]."""
        both = {**self.method.settings, **dict(self.values)}
        return {k.removeprefix("algorithm."): v for k, v in both.items() if k.startswith("algo")}


@cache
def data_of(model: str) -> Dataset:
    """Load the images."""
    some = Cell("iid", model, 4, PLACES[0], 1.0)
    return load_dataset(make_config(settings(some, 0, "val", 0.1, {})))


def problem_of(ask: Asked) -> Problem:
    """Put together what trains and what is timed."""
    told = settings(ask.cell, ask.seed, ask.scored, ask.lr, ask.algorithm)
    told["network"]["combine"] = "all" if ask.combined else "none"
    made: Prepared = prepare(make_config(told), data_of(ask.cell.model))
    return made.problem


@cache
def shown(skew: str, model: str, per_edge: int, seed: int, scored: str, lr: float) -> Evidence:
    """Return what nodes show a search after one step, which no network changes."""
    cell = Cell(skew, model, per_edge, PLACES[0], 1.0)
    values = (("train.lr", lr), ("algorithm.num_groups", 2))
    return first_evidence(problem_of(Asked(cell, "coterie", False, values, seed, scored)))


def planned(ask: Asked, problem: Problem) -> Grouping:
    """Return a method's groups on its network."""
    if not ask.method.grouped:
        return problem.everyone.grouping
    evidence = evidence_for(problem, None, 0)
    if problem.view.needs == "gradients":
        cell = ask.cell
        told = shown(cell.skew, cell.model, cell.per_edge, ask.seed, ask.scored, ask.lr)
        evidence = replace(evidence, gram=told.gram, last_layer=told.last_layer)
    return asked(problem.planner, evidence, problem.seed, limited=problem.policy.searches)


def canon(z: Any) -> list[int]:
    """Number groups in the order of their first nodes."""
    number: dict[int, int] = {}
    return [number.setdefault(int(k), len(number)) for k in z]


def key_of(ask: Asked, grouping: Grouping, problem: Problem) -> str:
    """Name all that decides what is learnt: data, groups, when there is a mean, rate and seed."""
    cell, plan = ask.cell, problem.schedule
    what = [cell.skew, cell.model, cell.per_edge, ask.seed, ask.scored, ask.lr, STEPS, TARGET]
    what += [plan.tau1, plan.tau2, problem.policy.searches]
    what += [canon(grouping.z) if ask.method.grouped else []]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]


def trained(problem: Problem, grouping: Grouping) -> list[Mean]:
    """Train until the target is reached, or all steps are done; none if it diverges."""
    found = []
    try:
        for s in rounds(replace(problem, planner=lambda *_: grouping)):
            found.append(Mean(s.t, s.row.event, s.row.test_accuracy))
            if s.t and (s.row.test_accuracy or 0.0) >= TARGET:
                break
    except DivergenceError:
        return []
    return found


class Reach(NamedTuple):
    """Seconds to the target and bytes on the slow tier until then, or the best accuracy."""

    seconds: float | None
    slow_bytes: float | None
    nearest: float | None


def reach(problem: Problem, grouping: Grouping, means: Sequence[Mean]) -> Reach:
    """Time what was trained by a problem's clock."""
    fleet, nbytes, tier = problem.fleet, problem.model_bytes, None
    of = {"global": problem.everyone.transfer}
    of["group"] = fleet.averaging(grouping, nbytes).transfer
    tier = SLOW_TIERS["edge-cloud" if fleet.network.topology.places else "fat-tree"]
    total, before, known = Transfer(0.0, {}), 0, []
    for at in map(Mean._make, means):
        total += Transfer((at.t - before) * fleet.step_s, {})
        if at.event in of:
            total += of[at.event]
        if at.event == "global" and before == 0 and problem.policy.searches:
            total += evidence_upload(problem)
        before = at.t
        if at.t and at.accuracy is not None:
            known.append(at.accuracy)
            if at.accuracy >= TARGET:
                return Reach(total.seconds, float(total.bytes_by_tier.get(tier, 0)), max(known))
    return Reach(None, None, max(known) if known else None)


class Runs:
    """What was trained, and what is trained when it is asked for."""

    def __init__(self, kept: Kept) -> None:
        """Begin with what is kept."""
        self.kept, self.new = kept, 0

    def reach(self, ask: Asked) -> Reach:
        """Return when a method reaches the target at one point on one seed."""
        problem = problem_of(ask)
        try:
            grouping = planned(ask, problem)
        except GroupingError:
            return Reach(None, None, None)
        key = key_of(ask, grouping, problem)
        if key not in self.kept.by_key:
            self.new += 1
            self.kept.add(key, trained(problem, grouping))
        return reach(problem, grouping, self.kept.by_key[key])


def searched(ask_at: Any, method: Method, cell: Cell, runs: Runs) -> tuple[Json, Score]:
    """Search a method's settings, as `coterie fair` does."""
    space = space_of(method, RATES[cell.model], EDGES * cell.per_edge)
    tried: dict[tuple[int, ...], Score] = {}
    while points := next_points(space, tried, TRIALS):
        for point in points:
            found = runs.reach(ask_at(values=tuple(values_at(space, point).items())))
            tried[point] = score(found.seconds, found.nearest)
    return values_at(space, best(tried)), tried[best(tried)]


def measured(cell: Cell, runs: Runs) -> Json:
    """Return all that is known of a cell."""
    found: Json = {}
    for name, combined in product(NAMES, (False, True)):
        ask_at = partial(Asked, cell, name, combined, seed=0, scored="val")
        values, told = searched(ask_at, METHODS[name], cell, runs)
        tests = {
            seed: runs.reach(Asked(cell, name, combined, tuple(values.items()), seed, "test"))
            for seed in range(1, SEEDS + 1)
        }
        found[name + COMBINED * combined] = {
            "chosen": values,
            "score": told,
            "seconds": {seed: each.seconds for seed, each in tests.items()},
            "slow_bytes": {seed: each.slow_bytes for seed, each in tests.items()},
        }
    return {"cell": list(cell), "methods": found, "place": place_of(cell)}


def place_of(cell: Cell) -> Json:
    """Say where a cell is, as a plan can say it of any fleet: by seconds, and by labels."""
    values = (("train.lr", 0.1), ("algorithm.tau1", 1), ("algorithm.tau2", 2))
    found: Json = {}
    for combined in (False, True):
        ask = Asked(cell, "hierfavg", combined, values, 1, "test")
        problem = problem_of(ask)
        edges = problem.fleet.averaging(planned(ask, problem), problem.model_bytes)
        how = "combined" if combined else "alone"
        found[f"global_s_{how}"] = problem.everyone.transfer.seconds
        found[f"edge_s_{how}"] = edges.transfer.seconds
        found["step_s"] = problem.fleet.step_s
    counts = problem.fleet.class_counts
    found["nodes_emd"] = float(emd(counts).mean())
    found["edges_emd"] = float(emd(pooled(counts, problem.fleet.edge_of)).mean())
    return found


def check(cell: Cell, runs: Runs) -> None:
    """Hold what is timed here against runs on the cell's own network, whose clock is the loop's."""
    for name, combined in product(NAMES, (False, True)):
        space = space_of(METHODS[name], RATES[cell.model], EDGES * cell.per_edge)
        values = tuple(values_at(space, tuple(len(axis.values) // 2 for axis in space)).items())
        ask = Asked(cell, name, combined, values, 1, "test")
        found, own = runs.reach(ask), None
        for s in rounds(problem_of(ask)):
            if s.t and (s.row.test_accuracy or 0.0) >= TARGET:
                own = s.row.seconds
                break
        print(f"{cell}, {name}{COMBINED * combined}: {found.seconds} here, {own} by a run")
        if (own is None) != (found.seconds is None) or not math.isclose(
            own or 0.0, found.seconds or 0.0, rel_tol=1e-9
        ):
            sys.exit("these should be the same")


def main() -> None:
    """Measure what is not there yet."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ask.add_argument("--out", type=Path, default=Path("runs/map"))
    ask.add_argument("--parts", default=",".join(PARTS), help="some of them")
    ask.add_argument("--check", action="store_true", help="hold times against runs, and stop")
    told = ask.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    runs, done = Runs(Kept(told.out / "trained.jsonl")), Kept(told.out / "cells.jsonl")
    wanted = list(cells(told.parts.split(",")))
    if told.check:
        for place in PLACES:
            check(Cell("one class", "sr", 4, place, 10.0), runs)
        return
    for number, cell in enumerate(wanted, 1):
        key = json.dumps(cell)
        if key not in done.by_key:
            began, before = time.process_time(), runs.new
            done.add(key, measured(cell, runs))
            took = time.process_time() - began
            new = runs.new - before
            print(f"[{number}/{len(wanted)}] {cell}: {new} trained, {took:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main()
