"""Where groups pay: every method at its best, over skew, networks, models and nodes per edge.

Usage: python benchmarks/map.py [--out FOLDER] [--parts A,B] [--check]; `make bench-map` runs it.
A cell is a skew, a model's size, a number of nodes per edge, and a network. Learning rate and
schedule of every method are searched as by `coterie fair`: as many trials each, on one seed, scored
on the validation part. The best runs with other seeds, scored on the test part.

What is learnt is softmax regression on small images, by full batches: little enough for a few lines
of NumPy, which --check holds against the engine. The network moves the clock, and the groups that
are searched for by it: groups are planned anew for every network, and what has the same groups,
schedule, rate and seed is trained once. Cells that are done are kept in FOLDER/cells.jsonl, so that
the same command goes on where it was stopped.
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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.analysis.fair import COMBINED, METHODS, space_of
from coterie.analysis.tuning import Point, Score, Space, best, next_points, score, values_at
from coterie.config.factories import divide, load_dataset
from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.data import Dataset
from coterie.grouping import Grouping
from coterie.grouping.planner import canon
from coterie.network import Transfer
from coterie.partition.measure import emd, pooled
from coterie.simulation.loop import rounds
from coterie.simulation.planning import asked, evidence_upload
from coterie.simulation.problem import Problem
from coterie.simulation.search import Search

Json = dict[str, Any]
Singles = NDArray[np.float32]
SKEWS: dict[str, Json] = {
    "alike": {"kind": "iid"},
    "uneven": {"kind": "dirichlet", "alpha": 0.3, "placement": "random"},
    "one class a node": {"kind": "pathological", "classes_per_node": 1, "placement": "random"},
    "one class an edge": {"kind": "Dtt", "sd": 0.0},
}
PLACES = {"edge-cloud": "backhaul", "fat-tree": "pod"}  # networks, and their slow tier
RATIOS = (10.0, 100.0, 1.0)  # how many times as fast a node's own link is
MODELS = {"31 kB": 31_400, "800 kB": 796_840}  # softmax regression and 2NN, on the wire
FAST, FAST_S, SLOW_S = 12.5, 0.005, 0.01  # MByte/s and latency of it, and latency of the others
FLOPS = 5e9  # of a node, a second
EDGES, SEEDS, TRIALS, STEPS, TARGET = 10, 5, 10, 100, 0.65
SHAKES = 2  # of Coterie's search
RATE, DECAY = 1.0, 0.99  # in the middle of those that are tried, and its factor every step
NAMES = ("fedavg", "hierfavg", "random", "coterie")
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
        for ratio, model, n, skew, place in product(RATIOS, models, per_edge, SKEWS, PLACES):
            yield Cell(skew, model, n, place, ratio)


@cache
def images() -> Dataset:
    """Return the embedded images, a third of them, shrunk to 7 by 7."""
    told = {"data": {"name": "mnist-f-mini", "sample": 0.3}}
    whole = load_dataset(make_config(told))
    x = whole.x.reshape(-1, 1, 7, 4, 7, 4).mean(axis=(3, 5)).astype(whole.x.dtype)
    return replace(whole, x=x)


def settings(cell: Cell, seed: int, scored: str, *, combined: bool, algorithm: Json) -> Json:
    """Return the settings of a run."""
    part = {**SKEWS[cell.skew], "num_nodes": EDGES * cell.per_edge, "num_edges": EDGES}
    network = {
        "topology": cell.place,
        "link_mbytes_per_s": FAST / cell.ratio,
        "latency_s": SLOW_S,
        "access_mbytes_per_s": FAST,
        "access_latency_s": FAST_S,
        "combine": "all" if combined else "none",
    }
    return {
        "seed": seed,
        "data": {"name": "mnist-f-mini", "sample": 0.3, "scored": scored},
        "partition": part,
        "network": network,
        "algorithm": algorithm,
        "train": {"steps": STEPS, "measure": ["accuracy"], "batch_size": "full"},
    }


@dataclass(frozen=True, eq=False)
class Work:
    """Examples of every node, padded [n, m, d + 1], what is scored, and the first model."""

    x: Singles
    y: Singles  # one-hot, and 0 where there is no example [n, m, classes]
    share: Singles  # 1 over a node's examples where there is one [n, m, 1]
    scored_x: Singles
    scored_y: Ints
    first: Singles  # [d + 1, classes]
    p: Floats


@cache
def work_of(skew: str, per_edge: int, seed: int, scored: str) -> Work:
    """Deal the images to nodes, as a run does."""
    cell = Cell(skew, "31 kB", per_edge, "edge-cloud", 1.0)
    algorithm = {"name": "fedavg", "num_groups": 1, "tau2": 1}
    config = make_config(settings(cell, seed, scored, combined=False, algorithm=algorithm))
    problem = prepare(config, images()).problem
    flat = problem.first_models.w[0].numpy()
    held = divide(config, images())
    data, split, indices = held.dataset, held.split, held.partition.indices
    d, classes = data.x[0].size, data.n_classes
    x = np.ones((len(data.x), d + 1), dtype=np.float32)
    x[:, :d] = data.x.reshape(-1, d).astype(np.float32) / 255
    n, most = len(indices), max(map(len, indices))
    xs, ys = np.zeros((n, most, d + 1), np.float32), np.zeros((n, most, classes), np.float32)
    share = np.zeros((n, most, 1), np.float32)
    for i, own in enumerate(indices):
        at, m = split.train[own], len(own)
        xs[i, :m], ys[i, :m], share[i, :m] = x[at], np.eye(classes)[data.y[at]], 1 / m
    first = np.concatenate([flat[: classes * d].reshape(classes, d).T, flat[None, classes * d :]])
    part = split.val if scored == "val" else split.test
    return Work(xs, ys, share, x[part], np.asarray(data.y[part], np.int64), first, problem.fleet.p)


class Schedule(NamedTuple):
    """When there is a mean; who searches has one of all nodes after the first step."""

    tau1: int
    tau2: int
    searched: bool

    def event(self, t: int) -> str:
        """Name the mean after step t."""
        if t % (self.tau1 * self.tau2) == 0 or (self.searched and t == 1):
            return "global"
        return "group" if self.tau2 > 1 and t % self.tau1 == 0 else ""


@cache
def learnt(
    work: Work, z: bytes, schedule: Schedule, lr: float
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Train until the target is reached; return steps and accuracies of global means."""
    n, groups = len(work.p), np.frombuffer(z, dtype=np.int32)
    mean = (groups[:, None] == groups[None, :]) * work.p
    mean = (mean / mean.sum(axis=1, keepdims=True)).astype(np.float32)
    w = np.repeat(work.first[None], n, axis=0)
    steps, accuracies = [], []
    for t in range(1, STEPS + 1):
        logits = work.x @ w
        logits -= logits.max(axis=2, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=2, keepdims=True)
        w -= lr * DECAY ** (t - 1) * (work.x.transpose(0, 2, 1) @ ((logits - work.y) * work.share))
        event = schedule.event(t)
        if event == "group":
            w = (mean @ w.reshape(n, -1)).reshape(w.shape)
        elif event == "global":
            w[:] = (work.p.astype(np.float32) @ w.reshape(n, -1)).reshape(w.shape[1:])
            found = (work.scored_x @ w[0]).argmax(axis=1) == work.scored_y
            steps.append(t)
            accuracies.append(float(found.mean()))
            if accuracies[-1] >= TARGET or not np.isfinite(w[0]).all():
                break
    return tuple(steps), tuple(accuracies)


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
    most = int((work.share > 0).sum(axis=1).max())
    return Place(problem, nbytes, 6 * nbytes / 4 * most / FLOPS, PLACES[cell.place])


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
    """Seconds to the target and bytes on the slow tier until then, or the best accuracy."""

    seconds: float | None
    slow_bytes: float | None
    nearest: float | None


def reach(cell: Cell, name: str, values: Json, seed: int, scored: str, *, combined: bool) -> Reach:
    """Return when a method reaches the target at one point on one seed."""
    place = place_at(cell, seed, scored, combined=combined)
    method, tau1 = METHODS[name], values["algorithm.tau1"]
    tau2, K = values.get("algorithm.tau2", 1), values.get("algorithm.num_groups", EDGES)
    grouping = place.everyone
    if method.grouped:
        try:
            grouping = planned(place, name, K, tau2)
        except GroupingError:
            return Reach(None, None, None)
    schedule = Schedule(tau1, tau2, method.searched)
    work = work_of(cell.skew, cell.per_edge, seed, scored)
    steps, accuracies = learnt(work, canon(grouping.z), schedule, values["train.lr"])
    if not steps or not accuracies[-1] >= TARGET:
        known = [a for a in accuracies if math.isfinite(a)]
        return Reach(None, None, max(known, default=None))
    events = [schedule.event(t) for t in range(1, steps[-1] + 1)]
    total = Transfer(steps[-1] * place.step_s, {})
    if name == "coterie":
        total += evidence_upload(place.problem)
    for event, group in (("global", place.everyone), ("group", grouping)):
        if number := events.count(event):
            one = place.transfer(group)
            moved = {tier: number * n for tier, n in one.bytes_by_tier.items()}
            total += Transfer(number * one.seconds, moved)
    return Reach(total.seconds, float(total.bytes_by_tier.get(place.tier, 0)), accuracies[-1])


def searched(cell: Cell, name: str, *, combined: bool) -> tuple[Json, Score]:
    """Search a method's settings, as `coterie fair` does."""
    space: Space = space_of(METHODS[name], RATE, EDGES * cell.per_edge)
    tried: dict[Point, Score] = {}
    while points := next_points(space, tried, TRIALS):
        for point in points:
            found = reach(cell, name, values_at(space, point), 0, "val", combined=combined)
            tried[point] = score(found.seconds, found.nearest)
    return values_at(space, best(tried)), tried[best(tried)]


def measured(cell: Cell) -> Json:
    """Return all that is known of a cell."""
    found: Json = {}
    for name, combined in product(NAMES, (False, True)):
        values, told = searched(cell, name, combined=combined)
        tests = {
            seed: reach(cell, name, values, seed, "test", combined=combined)
            for seed in range(1, SEEDS + 1)
        }
        found[name + COMBINED * combined] = {
            "chosen": values,
            "score": told,
            "seconds": {seed: each.seconds for seed, each in tests.items()},
            "slow_bytes": {seed: each.slow_bytes for seed, each in tests.items()},
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
        space = space_of(METHODS[name], RATE, EDGES * cell.per_edge)
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
        theirs, seen = None, []
        for s in rounds(problem):
            if s.t and s.row.test_accuracy is not None:
                seen.append(s.row.test_accuracy)
                if seen[-1] >= TARGET:
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
            check(Cell("one class a node", "31 kB", 4, place, 10.0))
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
