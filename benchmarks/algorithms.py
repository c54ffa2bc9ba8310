"""Which algorithm pays on which skew and groups: twelve of them, each at its best learning rate.

Usage: python benchmarks/algorithms.py [--out FOLDER] [--no-run]; it needs MNIST-F.
experiments/algorithms.toml is trained with every learning rate on one seed. The best one of every
algorithm, skew and groups, by the validation part, is trained on two more. Both are sweeps, and go
on where they were stopped. Then the table is printed, and written as a CSV.
"""

import argparse
import csv
import subprocess
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import tomli_w

from coterie.config.files import read_experiment
from coterie.runs.record import RecordedRun, find_runs

FILE = Path(__file__).parents[1] / "experiments" / "algorithms.toml"
SEEDS = (1, 2)
CELL = ("partition.kind", "partition.alpha", "algorithm.groups", "algorithm.tau2", "algorithm.name")
GROUPS = {
    ("none", 5): "no groups, a mean every 5 steps",
    ("none", 1): "no groups, a mean every step",
    ("edge", 5): "edges as groups",
    ("search", 5): "searched groups",
}


def cell_of(run: RecordedRun) -> tuple[Any, ...]:
    """Return what tells a line of the table from the others; only Dirichlet has an alpha."""
    kind, alpha, *rest = (run.settings[key] for key in CELL)
    return (kind, alpha if kind == "dirichlet" else 0.0, *rest)


def swept(file: Path, folder: Path) -> None:
    """Train a sweep, or what is left of it."""
    command = [sys.executable, "-m", "coterie", "sweep", str(file), "-o", str(folder)]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 2):  # 2: some rates were too high for some algorithms
        sys.exit(done.returncode)


def by_cell(runs: Iterable[RecordedRun]) -> dict[tuple[Any, ...], list[RecordedRun]]:
    """Put runs of a line together."""
    ordered = sorted(runs, key=lambda run: str(cell_of(run)))
    return {cell: list(own) for cell, own in groupby(ordered, cell_of)}


def best(runs: Iterable[RecordedRun]) -> RecordedRun:
    """Return the run with the highest validation accuracy; of equal ones the smaller rate."""
    return max(runs, key=lambda run: (run.summary["val_accuracy"], -run.settings["train.lr"]))


def again(runs: Iterable[RecordedRun]) -> dict[str, Any]:
    """Return the experiment that trains the best runs on more seeds."""
    content = read_experiment(FILE)
    chosen = [
        {key: run.settings[key] for key in (*CELL, "train.lr")}
        for run in (best(own) for own in by_cell(runs).values())
    ]
    content["sweep"] = {"seed": list(SEEDS), "run": chosen}
    return content


def figures(runs: list[RecordedRun]) -> dict[str, Any]:
    """Return a line's figures: mean and standard deviation over its seeds."""
    found: dict[str, Any] = {"lr": runs[0].settings["train.lr"], "seeds": len(runs)}
    for key in ("test_accuracy", "node_worst", "seconds"):
        values = [float(run.summary[key]) for run in runs]
        found[key] = mean(values)
        found[f"{key}_sd"] = stdev(values) if len(values) > 1 else 0.0
    return found


def main() -> None:
    """Train what is missing, and print the table."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ask.add_argument("--out", type=Path, default=Path("runs/algorithms"))
    ask.add_argument("--no-run", action="store_true", help="print what there is")
    asked = ask.parse_args()
    first, more = asked.out / "rates", asked.out / "seeds"
    if not asked.no_run:
        swept(FILE, first)
    runs, _ = find_runs([first])
    if not asked.no_run:
        file = asked.out / "seeds.toml"
        file.write_text(tomli_w.dumps(again(runs)), encoding="utf-8")
        swept(file, more)
    others = by_cell(find_runs([more])[0]) if more.exists() else {}
    lines = []
    for cell, own in by_cell(runs).items():
        chosen = best(own)
        rate = chosen.settings["train.lr"]
        seeds = [run for run in others.get(cell, []) if run.settings["train.lr"] == rate]
        lines.append((cell, figures([chosen, *seeds])))
    show(lines)
    write(asked.out / "table.csv", lines)


def show(lines: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
    """Print a table for every skew: algorithms by groups, accuracy, worst tenth and seconds."""
    names = list(dict.fromkeys(read_experiment(FILE)["sweep"]["algorithm.name"]))
    table = dict(lines)
    for kind, alpha in dict.fromkeys((cell[0], cell[1]) for cell in table):
        print(f"\n{kind}{f' {alpha:g}' if alpha else ''}: accuracy %, worst tenth %, simulated s")
        print(f"{'':14}" + "".join(f"{name:>36}" for name in GROUPS.values()))
        for name in names:
            cells = []
            for groups, tau2 in GROUPS:
                found = table.get((kind, alpha, groups, tau2, name))
                cells.append(f"{'-' if found is None else told(found):>36}")
            print(f"{name:14}" + "".join(cells))


def told(f: dict[str, Any]) -> str:
    """Write the figures of a line."""
    accuracy = f"{100 * f['test_accuracy']:.1f} ± {100 * f['test_accuracy_sd']:.1f}"
    worst = f"{100 * f['node_worst']:.1f} ± {100 * f['node_worst_sd']:.1f}"
    return f"{accuracy}, {worst}, {f['seconds']:.1f}"


def write(path: Path, lines: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
    """Write all figures of all lines."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*CELL, *lines[0][1]])
        writer.writerows([*cell, *found.values()] for cell, found in lines)


if __name__ == "__main__":
    main()
