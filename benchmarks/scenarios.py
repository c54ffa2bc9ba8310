"""Is what a plan chooses near the best of a fair comparison? The scenarios, one by one.

Usage: python benchmarks/scenarios.py [--out FOLDER] [--set KEY=VALUE ...] [NAME ...]; --print shows
the tables of what is there, and --set changes the files. The target is what a plan has: the
training loss of so many steps as the file has, with a mean after each, here by FedAvg at its best
learning rate. Every method has as many trials of learning rate and schedule as in `coterie fair`,
by the same search with longer lists of schedules, on the file's seed. The best runs with other
seeds. So does what is advised: the plan's schedule, with the best of the same learning rates; and
what a run chooses by a pilot, likewise. What a plan chooses by trials in simulation is run as it
is, with seeds that it was not chosen by. Runs end at the target, and trials where they are slower
than the best one so far. What is done is kept in FOLDER/scenarios.jsonl.
"""

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coterie.analysis.fair import (
    COMBINED,
    METHODS,
    RATES,
    Interval,
    Reached,
    Target,
    in_words,
    judge,
    ratio,
    space_of,
)
from coterie.analysis.tuning import (
    REACHED,
    Axis,
    Point,
    Score,
    best,
    next_points,
    open_ends,
    score,
    values_at,
)
from coterie.config.factories import load_dataset
from coterie.config.files import changed
from coterie.config.prepare import prepare
from coterie.config.settings import Config
from coterie.config.shipped import read_configs, scenarios
from coterie.core.errors import CoterieError
from coterie.data import Dataset
from coterie.preview.advice import Advice
from coterie.preview.kept_trials import NO_END, End, Kept
from coterie.preview.plan import plans
from coterie.preview.scenarios import survey
from coterie.preview.trials import TAU, TAU1, TAU2, doings, trained, try_out
from coterie.render.page.advice import schedule, settings
from coterie.simulation.loop import rounds

Json = dict[str, Any]
TRIALS, SEEDS, STEPS = 12, 3, 300  # of every method, of the best, and at most of a run
NAMES = ("fedavg", "hierfavg", "coterie")
NEAR = 1.1  # of the best, in seconds
AUTO = {  # a run that chooses groups and schedule by a pilot
    "algorithm.name": "fedavg-ic",
    "algorithm.num_groups": "auto",
    "algorithm.tau1": "auto",
    "algorithm.tau2": "auto",
}
KIND = {"fedavg": "FedAvg", "edges": "edges", "groups": "searched"}


def dataset_of(config: Config, known: dict[object, Dataset] = {}) -> Dataset:  # noqa: B006
    """Load the examples, once for all runs of a scenario."""
    if config.data not in known:
        known.clear()
        known[config.data] = load_dataset(config)
    return known[config.data]


def ran(config: Config, target: float, slow: str, within: float = math.inf) -> End:
    """Train to a loss, if within some seconds; what cannot be run is no end."""
    try:
        return trained(config, dataset_of(config), target, slow, within)
    except CoterieError:
        return NO_END


def with_seed(config: Config, seed: int, more: Mapping[str, Any]) -> Config:
    """Return the config of one run."""
    told = {"train.steps": STEPS, "train.measure": ["loss"], "train.eval_every": 1}
    return changed(config, {**told, "seed": seed, **more})


def aim_of(config: Config) -> float:
    """Return the loss of the file's steps with a mean after each, at the best learning rate."""
    found = []
    for factor in RATES:
        more = {"train.lr": factor * config.train.lr, "train.steps": config.train.steps}
        only = {**METHODS["fedavg"].settings, "algorithm.tau1": 1, "train.eval_every": 10**6}
        try:
            one = with_seed(config, config.seed, {**only, **more})
            *_, last = rounds(prepare(one, dataset_of(one)).problem)
            found.append(last.row.train_loss or math.inf)
        except CoterieError:
            continue
    return min(found)


def tuned(config: Config, name: str, target: float, slow: str) -> tuple[Json, list[str]]:
    """Search a method's settings; return them, and where the best may be elsewhere."""
    base = name.removesuffix(COMBINED)
    own = {**METHODS[base].settings, "network.combine": "all" if base != name else "none"}
    longer = {"algorithm.tau1": TAU1 if METHODS[base].grouped else TAU, "algorithm.tau2": TAU2}
    given = space_of(METHODS[base], config.train.lr, int(config.partition.num_nodes))
    space = tuple(Axis(axis.name, longer.get(axis.name, axis.values)) for axis in given)
    tried: dict[Point, Score] = {}
    while points := next_points(space, tried, TRIALS):
        for point in points:
            rank, most = tried[best(tried)] if tried else (-1, 0.0)
            within = most if rank == REACHED else math.inf
            told = with_seed(config, config.seed, {**own, **values_at(space, point)})
            end = ran(told, target, slow, within)
            tried[point] = score(end.seconds, end.least, -1)
    return {**own, **values_at(space, best(tried))}, open_ends(space, tried)


def tested(config: Config, name: str, chosen: Json, target: float, slow: str) -> Reached:
    """Run what was chosen with other seeds."""
    ends = {
        config.seed + seed: ran(with_seed(config, config.seed + seed, chosen), target, slow)
        for seed in range(1, SEEDS + 1)
    }
    seconds = {seed: end.seconds for seed, end in ends.items()}
    return Reached(name, seconds, {seed: end.slow_bytes for seed, end in ends.items()}, chosen)


def advised(advice: Advice) -> tuple[Json, str]:
    """Return what a plan says to set, and the schedule in words."""
    told = dict(part.split("=", 1) for part in settings(advice).split(" ") if "=" in part)
    told.pop("train.steps", None)  # all have as many at most
    number = {key: int(value) if value.isdigit() else value for key, value in told.items()}
    return number, f"{KIND[advice.best.what.kind]}: {schedule(advice.best)}"


def by_trials(config: Config, advice: Advice, target: float, slow: str) -> Json:
    """Return what a plan chooses by training in simulation, run with seeds of its own."""
    tried = try_out(config, doings(advice, config), slow, TRIALS, Kept())
    if tried.chosen is None:
        return asdict(Reached("tried", dict.fromkeys(range(SEEDS)), {}, {}))
    return asdict(tested(config, "tried", dict(tried.chosen.settings), target, slow))


def planned_by(name: str, overrides: Sequence[str]) -> tuple[Config, Advice]:
    """Return a scenario, and what is advised without training."""
    _, configs = read_configs(name, tuple(overrides))
    return configs[0], Advice(plans(configs, methods=("coterie", "edge")))


def at_its_rate(config: Config, name: str, told: Json, target: float, slow: str) -> Reached:
    """Run settings with other seeds, at the learning rate that is best on the file's."""
    tried = {}
    for factor in RATES:
        rate = {"train.lr": factor * config.train.lr}
        end = ran(with_seed(config, config.seed, {**told, **rate}), target, slow)
        tried[factor] = score(end.seconds, end.least, -1)
    rate = {"train.lr": min(tried, key=lambda factor: tried[factor]) * config.train.lr}
    return tested(config, name, {**told, **rate}, target, slow)


def measured(name: str, config: Config, advice: Advice) -> Json:
    """Return all that is known of a scenario."""
    slow = survey("", "", config).slow
    target = aim_of(config)
    found, notes = [], []
    for method in (each + more for each in NAMES for more in ("", COMBINED)):
        chosen, ends = tuned(config, method, target, slow)
        found.append(tested(config, method, chosen, target, slow))
        notes += [f"{method}: {end}" for end in ends]
    told, words = advised(advice)
    plan = at_its_rate(config, "advised", told, target, slow)
    auto = at_its_rate(config, "auto", {**AUTO, "algorithm.target_loss": target}, target, slow)
    return {
        "scenario": name,
        "target": target,
        "slow_tier": slow,
        "methods": [asdict(each) for each in found],
        "advised": asdict(plan),
        "auto": asdict(auto),
        "tried": by_trials(config, advice, target, slow),
        "words": words,
        "notes": notes,
    }


def read(told: Json) -> Reached:
    """Read what a method reached."""
    seconds, moved = told["seconds"], told["slow_bytes"]
    return Reached(told["method"], seconds, moved, told["chosen"])


def print_all(lines: list[Json]) -> None:
    """Print who is first in every scenario, and how near to it what is advised is."""
    head = (
        "scenario",
        "first",
        "K, tau1, tau2",
        "s",
        "told from",
        "advised",
        "s",
        "over the first",
        "by trials",
        "s",
        "over the first",
        "chosen by a pilot",
    )
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    near = near_by_trials = 0
    for line in lines:
        methods, plan = [read(each) for each in line["methods"]], read(line["advised"])
        tried = read(line["tried"])
        verdict = judge(methods)
        first = next((each for each in methods if each.method == verdict.first), None)
        auto = read(line["auto"])
        cells = [line["scenario"]] + ["-"] * 11
        cells[5], cells[6], cells[11] = line["words"], seconds(plan), seconds(auto)
        cells[8], cells[9] = in_short(tried), seconds(tried)
        if first is not None:
            over = ratio(plan, first) if plan.whole else None
            near += over is not None and over.mean <= NEAR
            keys = ("algorithm.num_groups", "algorithm.tau1", "algorithm.tau2")
            some = first.chosen if METHODS[first.method.removesuffix(COMBINED)].searched else {}
            own = [str(some.get(keys[0], "-")), *(str(first.chosen.get(k, "-")) for k in keys[1:])]
            far = [each.method for each in verdict.others if each.outside or each.times is None]
            cells[1:5] = [first.method, ", ".join(own), seconds(first), f"{len(far)} of 5"]
            cells[7] = "never there" if over is None else span(over)
            later = ratio(auto, first) if auto.whole else None
            cells[11] += "" if later is None else f" ({later.mean:.1f}x)"
            over = ratio(tried, first) if tried.whole else None
            near_by_trials += over is not None and over.mean <= NEAR
            cells[10] = "never there" if over is None else span(over)
        print("| " + " | ".join(cells) + " |")
    print(f"\nadvised within {NEAR:g} of the first: {near} of {len(lines)}")
    print(f"by trials: {near_by_trials} of {len(lines)}")
    for line in lines:
        methods = [read(each) for each in line["methods"]]
        target = Target("train_loss", line["target"])
        print(f"\n{line['scenario']}, training loss {line['target']:.4f}")
        for each in methods:
            chosen = {key.rpartition(".")[2]: value for key, value in each.chosen.items()}
            named = ", ".join(
                f"{key} {chosen[key]}" for key in ("lr", "tau1", "tau2", "num_groups")
            )
            print(f"  {each.method}: {seconds(each)} s; {named}")
        for words in (*in_words(judge(methods), methods, target), *line["notes"]):
            print(f"  - {words}")


def in_short(each: Reached) -> str:
    """Write what was chosen: the method, and its schedule."""
    if not each.chosen:
        return "nothing"
    named = [each.chosen[f"algorithm.{key}"] for key in ("num_groups", "tau1", "tau2")]
    combined = "+combined" * (each.chosen["network.combine"] == "all")
    return f"{each.chosen['algorithm.name']}{combined}: {', '.join(map(str, named))}"


def seconds(each: Reached) -> str:
    """Write the mean seconds, and how many seeds these are."""
    if not each.known:
        return "never"
    told = f"{sum(each.known) / len(each.known):.4g}"
    return told if each.whole else f"{told} on {len(each.known)} of {len(each.seconds)}"


def span(over: Interval) -> str:
    """Write a ratio with its interval."""
    return f"{over.mean:.2f} ({over.low:.2f} to {over.high:.2f})"


def main() -> None:
    """Measure what is not there yet, or print it."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ask.add_argument("names", nargs="*", help="scenarios [all]")
    ask.add_argument("--out", type=Path, default=Path("runs/scenarios"))
    ask.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    ask.add_argument("--print", action="store_true", dest="printing")
    told = ask.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    path = told.out / "scenarios.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    done = [json.loads(line) for line in lines if line.endswith("}")]
    if told.printing:
        print_all(done)
        return
    known = {line["scenario"]: line for line in done}
    for name in told.names or scenarios():
        line, began = known.get(name, {}), time.process_time()
        if "tried" in line:
            continue
        planned = planned_by(name, told.set)
        if line:  # of a time before trials
            line["tried"] = by_trials(*planned, line["target"], line["slow_tier"])
        else:
            known[name] = measured(name, *planned)
        path.write_text("".join(json.dumps(each) + "\n" for each in known.values()))
        print(f"{name}: {time.process_time() - began:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main()
