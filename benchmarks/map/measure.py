"""Where groups pay: every method at its best, over skew, networks, models and nodes per edge.

Usage: python benchmarks/map/measure.py [--out FOLDER] [--parts A,B] [--check]; `make bench-map`
runs it. A cell is a skew, a model's size, a number of nodes per edge, and a network. Learning rate
and schedule of every method are searched as by `coterie fair`: as many trials each, scored on the
validation part. A trial is three seeds, so that no choice is one seed's luck, and it ends where it
is slower than the best one so far. The best runs with other seeds, scored on the test part.

The network moves the clock, and the groups that are searched for by it: groups are planned anew for
every network, and what has the same groups, schedule, rate and seed is trained once. Cells that are
done are kept in FOLDER/cells.jsonl, so that the same command goes on where it was stopped.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

from learning import EDGES, RATES, SKEWS, Json, Schedule, course, images, target_at, work_of
from learning import settings as learning_settings

from coterie.analysis.fair import COMBINED, METHODS
from coterie.analysis.tuning import (
    REACHED,
    SHORT,
    Axis,
    Point,
    Score,
    Space,
    best,
    next_points,
    open_ends,
    score,
    values_at,
)
from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.core.errors import GroupingError
from coterie.grouping import Grouping
from coterie.grouping.planner import canon
from coterie.network import Transfer
from coterie.partition.measure import emd, pooled
from coterie.simulation.loop import rounds
from coterie.simulation.planning import asked, evidence_upload
from coterie.simulation.problem import Problem
from coterie.simulation.search import Search

PLACES = {"edge-cloud": "backhaul", "fat-tree": "pod"}  # networks, and their slow tier
RATIOS = (100.0, 10.0, 1.0)  # how many times as slow the links from the edges on are
MODELS = {"31 kB": 31_400, "800 kB": 796_840}  # softmax regression and 2NN, on the wire
FAST, FAST_S = 125.0, 1e-4  # MByte/s and latency of a node's own link, which is a LAN's
FLOPS = 50e9  # of a node, a second
TRIALS, TRIED_ON = 20, (0, 6, 7)  # of every method, and the seeds of a trial
TRIED = 600  # steps of a trial; the best has more, as what just gets there may not on other seeds
SEEDS = 5  # from 1, for the best
SHAKES = 2  # of Coterie's search
NAMES = ("fedavg", "hierfavg", "random", "coterie")
TAUS, GROUPS = (1, 2, 5, 10, 25, 50, 100, 250, 500), (2, 5, 10, 20)
TAU1, TAU2 = (1, 2, 5, 10, 25), (2, 5, 10, 20, 50, 100)
PARTS = {  # models, nodes per edge
    "small": (("31 kB",), (4,)),
    "large": (("800 kB",), (4,)),
    "nodes": (("31 kB",), (2, 10)),
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
        models, per_edge = PARTS[part]
        for place, ratio, model, n, skew in product(PLACES, RATIOS, models, per_edge, SKEWS):
            yield Cell(skew, model, n, place, ratio)


def settings(cell: Cell, seed: int, scored: str, *, combined: bool, algorithm: Json) -> Json:
    """Return the settings of a run."""
    network = {
        "topology": cell.place,
        "link_mbytes_per_s": FAST / cell.ratio,
        "latency_s": FAST_S * cell.ratio,
        "access_mbytes_per_s": FAST,
        "access_latency_s": FAST_S,
        "combine": "all" if combined else "none",
    }
    told = learning_settings(cell.skew, cell.per_edge, seed, scored)
    return {**told, "network": network, "algorithm": algorithm}


def space_of(name: str, n_nodes: int) -> Space:
    """Return what a method chooses from: learning rates, and its schedule."""
    method, rates = METHODS[name], Axis("train.lr", RATES)
    if not method.grouped:
        return rates, Axis("algorithm.tau1", TAUS)
    axes = (rates, Axis("algorithm.tau1", TAU1), Axis("algorithm.tau2", TAU2))
    groups = tuple(K for K in GROUPS if 2 * K <= n_nodes)
    return (*axes, Axis("algorithm.num_groups", groups)) if method.searched else axes


@dataclass(frozen=True, eq=False)
class Place:
    """A network with its nodes, as a run has them, and a model's size."""

    problem: Problem
    nbytes: int
    step_s: float
    tier: str

    @property
    def everyone(self) -> Grouping:
        """All nodes."""
        return self.problem.fleet.together(self.nbytes)

    def transfer(self, grouping: Grouping) -> Transfer:
        """Time a mean."""
        network = self.problem.fleet.network
        return network.aggregation(grouping.z, grouping.servers, self.nbytes)


@cache
def problem_at(cell: Cell, seed: int, scored: str) -> Problem:
    """Prepare a run by Coterie's search on a cell's network."""
    told = settings(cell, seed, scored, combined=False, algorithm=_algorithm("coterie"))
    return prepare(make_config(told), images()).problem


@cache
def place_at(cell: Cell, seed: int, scored: str, *, combined: bool) -> Place:
    """Put a network together."""
    problem = problem_at(cell, seed, scored)
    network = replace(problem.fleet.network, combine=combined)
    problem = replace(problem, fleet=replace(problem.fleet, network=network))
    work, nbytes = work_of(cell.skew, cell.per_edge, seed, scored), MODELS[cell.model]
    return Place(problem, nbytes, 6 * nbytes / 4 * work.most / FLOPS, PLACES[cell.place])


def _algorithm(name: str) -> Json:
    settings = METHODS[name].settings.items()
    own = {key.removeprefix("algorithm."): value for key, value in settings}
    return {"num_groups": 2, "evidence": "labels", "shakes": SHAKES, **own}


@cache
def planned(place: Place, name: str, num_groups: int, tau2: int) -> Grouping:
    """Return a method's groups on its network, by labels."""
    problem, fleet = place.problem, place.problem.fleet
    global_s = place.transfer(place.everyone).seconds
    evidence = fleet.evidence(num_groups, tau2, place.nbytes, global_s)
    evidence = problem.view.of(evidence, fleet.class_counts, None, problem.seed, 0)
    planners = {"hierfavg": Search("edge").planner(), "random": Search("random").planner()}
    return asked(planners.get(name, problem.planner), evidence, problem.seed)


class Reach(NamedTuple):
    """What it took to the target, or the best accuracy."""

    nearest: float | None
    seconds: float | None = None
    slow_bytes: float | None = None
    steps: int | None = None
    means: int | None = None  # of all nodes


def reach(
    cell: Cell,
    name: str,
    values: Json,
    seed: int,
    scored: str,
    *,
    combined: bool,
    within: float = math.inf,
) -> Reach:
    """Return when a method reaches the target at one point on one seed, if within some seconds."""
    place = place_at(cell, seed, scored, combined=combined)
    method, tau1 = METHODS[name], values["algorithm.tau1"]
    tau2, K = values.get("algorithm.tau2", 1), values.get("algorithm.num_groups", EDGES)
    grouping = place.everyone
    if method.grouped:
        try:
            grouping = planned(place, name, K, tau2)
        except GroupingError:
            return Reach(None)
    schedule = Schedule(tau1, tau2, method.searched)
    work = work_of(cell.skew, cell.per_edge, seed, scored)
    whole, part = place.transfer(place.everyone), place.transfer(grouping)
    before = evidence_upload(place.problem) if name == "coterie" else Transfer(0.0, {})
    run = course(work, canon(grouping.z), schedule, values["train.lr"])
    nearest, number, last, target = None, 0, 0, target_at(seed, scored)
    for means, (t, accuracy) in enumerate(run, 1):
        nearest = max(accuracy, nearest or 0.0)
        number += sum(schedule.event(s) == "group" for s in range(last + 1, t + 1))
        last = t
        seconds = before.seconds + t * place.step_s + means * whole.seconds + number * part.seconds
        if seconds > within or (scored == "val" and t > TRIED):
            break
        if accuracy >= target:
            moved = [each.bytes_by_tier.get(place.tier, 0) for each in (before, whole, part)]
            slow = moved[0] + means * moved[1] + number * moved[2]
            return Reach(accuracy, seconds, float(slow), t, means)
    return Reach(nearest)


def tried_at(cell: Cell, name: str, values: Json, within: float, *, combined: bool) -> Score:
    """Score a trial by its seconds on all its seeds, or else by how far it came."""
    total = 0.0
    for number, seed in enumerate(TRIED_ON):
        left = within - total
        found = reach(cell, name, values, seed, "val", combined=combined, within=left)
        if found.seconds is None:
            return score(None, number + (found.nearest or 0.0) / target_at(seed, "val"))
        total += found.seconds
    return score(total, None)


def searched(cell: Cell, name: str, *, combined: bool) -> tuple[Json, Score, list[str]]:
    """Search a method's settings, as `coterie fair` does; say where the best may be elsewhere."""
    space = space_of(name, EDGES * cell.per_edge)
    tried: dict[Point, Score] = {}
    while points := next_points(space, tried, TRIALS):
        for point in points:
            rank, seconds = tried[best(tried)] if tried else (SHORT, 0.0)
            within = seconds if rank == REACHED else math.inf
            values = values_at(space, point)
            tried[point] = tried_at(cell, name, values, within, combined=combined)
    point = best(tried)
    return values_at(space, point), tried[point], open_ends(space, tried)


def measured(cell: Cell) -> Json:
    """Return all that is known of a cell."""
    found: Json = {}
    for name, combined in product(NAMES, (False, True)):
        values, told, ends = searched(cell, name, combined=combined)
        tests = {
            seed: reach(cell, name, values, seed, "test", combined=combined)
            for seed in range(1, SEEDS + 1)
        }
        by_seed = {
            key: {seed: getattr(each, key) for seed, each in tests.items()}
            for key in ("seconds", "slow_bytes", "steps", "means")
        }
        found[name + COMBINED * combined] = {
            "chosen": values,
            "score": told,
            "ends": ends,
            **by_seed,
        }
    return {"cell": cell._asdict(), "methods": found, "place": coordinates(cell)}


def coordinates(cell: Cell) -> Json:
    """Say where a cell is, as a plan can say it of any fleet: by seconds, and by labels."""
    found: Json = {}
    for combined, how in ((False, "alone"), (True, "combined")):
        place = place_at(cell, 1, "test", combined=combined)
        found[f"global_s_{how}"] = place.transfer(place.everyone).seconds
        found[f"edge_s_{how}"] = place.transfer(planned(place, "hierfavg", EDGES, 2)).seconds
    fleet = place.problem.fleet
    found["step_s"] = place.step_s
    found["nodes_emd"] = float(emd(fleet.class_counts).mean())
    found["edges_emd"] = float(emd(pooled(fleet.class_counts, fleet.edge_of)).mean())
    return found


def check(cell: Cell) -> None:
    """Hold accuracies and seconds against those of the engine and its clock."""
    for name, combined in product(NAMES, (False, True)):
        space = space_of(name, EDGES * cell.per_edge)
        values = values_at(space, tuple(len(axis.values) // 2 for axis in space))
        values |= {"algorithm.tau1": 2}
        mine = reach(cell, name, values, 1, "test", combined=combined)
        own = {key.removeprefix("algorithm."): v for key, v in values.items() if "algo" in key}
        algorithm = {**_algorithm(name), **own}
        told = settings(cell, 1, "test", combined=combined, algorithm=algorithm)
        told["train"]["lr"] = values["train.lr"]
        problem = prepare(make_config(told), images()).problem
        place = place_at(cell, 1, "test", combined=combined)
        fleet = replace(problem.fleet, step_s=place.step_s)
        problem = replace(problem, fleet=fleet, model_bytes=place.nbytes)
        target = target_at(1, "test")
        theirs, seen = None, []
        for s in rounds(problem):
            if s.t and s.row.test_accuracy is not None:
                seen.append(s.row.test_accuracy)
                if seen[-1] >= target:
                    theirs = s.row.seconds
                    break
        print(f"{cell}, {name}{COMBINED * combined}: {mine} here, {theirs}, {max(seen)} by a run")
        if theirs is None and mine.seconds is None:
            continue
        if not math.isclose(theirs or 0.0, mine.seconds or 0.0, rel_tol=1e-9):
            sys.exit("these should be the same")


def main() -> None:
    """Measure what is not there yet."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ask.add_argument("--out", type=Path, default=Path("runs/map"))
    ask.add_argument("--parts", default=",".join(PARTS), help="some of them")
    ask.add_argument("--check", action="store_true", help="hold some against runs, and stop")
    told = ask.parse_args()
    if told.check:
        for place in PLACES:
            check(Cell("uneven", "31 kB", 4, place, 10.0))
        return
    told.out.mkdir(parents=True, exist_ok=True)
    path = told.out / "cells.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    done = {Cell(**json.loads(line)["cell"]) for line in lines if line.endswith("}")}
    wanted = list(cells(told.parts.split(",")))
    for number, cell in enumerate(wanted, 1):
        if cell not in done:
            began = time.process_time()
            line = json.dumps(measured(cell))
            with path.open("a") as file:
                file.write(f"{line}\n")
            took = time.process_time() - began
            print(f"[{number}/{len(wanted)}] {cell}: {took:.1f} CPU s", flush=True)


if __name__ == "__main__":
    main()
