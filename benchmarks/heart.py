"""Heart disease in four hospitals: accuracy and AUC of each, by every algorithm at its best rate.

experiments/heart.toml is trained, and beside it a model on all patients in one place, with the same
examples trained and tested on. The learning rate with the highest validation accuracy, mean over
seeds, is taken for each. A hospital's own model is scored where it has one. An AUC is not defined
where all test patients of a hospital are alike; the number of seeds with one is in the CSV.

Usage: python benchmarks/heart.py DATA [--out FOLDER] [--no-run]
"""

import argparse
import csv
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pyarrow.parquet as pq

from coterie.config.factories import Divided, divide, load_dataset, make_engine, make_rule
from coterie.config.factories import make_update as make_update_of
from coterie.config.files import load_experiment
from coterie.config.prepare import first_model, parts_of
from coterie.config.settings import Config
from coterie.engine.contract import Engine, Models
from coterie.partition import Partition
from coterie.partition.measure import class_counts
from coterie.runs.record import find_runs

FILE = Path(__file__).parents[1] / "experiments" / "heart.toml"
POOLED, ALL = "one place", "all"
Row = dict[str, str | int | float | None]


def swept(data: Path, out: Path) -> None:
    """Train the sweep, or what is left of it."""
    command = [sys.executable, "-m", "coterie", "sweep", str(FILE), "-o", str(out), "--jobs", "1"]
    subprocess.run([*command, "--set", f"data.path={data}"], check=True)


def of_sweep(folder: Path) -> Iterator[Row]:
    """Yield a row for every run and hospital, and one for all patients."""
    for run in find_runs([folder])[0]:
        told: Row = {
            "algorithm": run.config["label"],
            "lr": run.settings["train.lr"],
            "seed": run.config["seed"],
        }
        summary = run.summary
        yield told | {
            "hospital": ALL,
            "val": summary["val_accuracy"],
            "accuracy": summary["test_accuracy"],
            "auc": summary["metrics.auc"],
        }
        for node in pq.read_table(run.folder / "nodes.parquet").to_pylist():
            if node["t"] == summary["steps"]:
                auc = node["metrics.auc"]
                yield told | {"hospital": node["name"], "accuracy": node["accuracy"], "auc": auc}


def in_one_place(data: Path) -> Iterator[Row]:
    """Yield the rows of a model that is trained on all patients, by the rates and seeds."""
    for config in load_experiment(FILE, [f"data.path={data}"]):
        if config.label == "FedAvg":
            yield from pooled(config)


def pooled(config: Config) -> Iterator[Row]:
    """Train on the training parts of all hospitals at once; score as FedAvg's model is."""
    divided = divide(config, load_dataset(config))
    part = divided.partition
    whole = Partition((np.concatenate(part.indices),), np.zeros(1, np.int64))
    counts = class_counts(whole, divided.train_y, divided.dataset.n_strata)
    one = engine_of(config, replace(divided, partition=whole, class_counts=counts, held=None))
    four = engine_of(config, divided)
    models = one.initial()
    for t in range(config.train.steps):
        models = one.advance(models, t, t + 1, np.zeros(1, np.int64))
    everywhere = Models(models.w, np.zeros(len(part.sizes), np.int64))
    val, test = (four.score_nodes(everywhere, held) for held in ("val", "test"))
    told: Row = {"algorithm": POOLED, "lr": config.train.lr, "seed": config.seed}
    assert test.metrics is not None
    assert test.overall is not None
    yield told | {
        "hospital": ALL,
        "val": float(val.right.sum() / val.count.sum()),
        "accuracy": float(test.right.sum() / test.count.sum()),
        "auc": test.overall["auc"],
    }
    for i, name in enumerate(part.names):
        accuracy = float(test.right[i] / test.count[i])
        yield told | {"hospital": name, "accuracy": accuracy, "auc": test.metrics["auc"][i]}


def engine_of(config: Config, divided: Divided) -> Engine:
    """Return the engine of a run whose examples are so divided."""
    parts = parts_of(config)
    rule = make_rule(config, make_update_of(config, parts.algorithm))
    model, _ = first_model(config, divided.dataset)
    return make_engine(config, model, divided, parts.steps, rule)


def best(rows: list[Row]) -> dict[str, float]:
    """Return the rate of every algorithm with the highest validation accuracy, over all seeds."""
    vals: dict[tuple[str, float], list[float]] = defaultdict(list)
    for row in rows:
        if row["hospital"] == ALL:
            vals[str(row["algorithm"]), float(row["lr"] or 0)].append(float(row["val"] or 0))
    found: dict[str, tuple[float, float]] = {}
    for (name, lr), values in sorted(vals.items()):
        found[name] = max(found.get(name, (0.0, 0.0)), (mean(values), -lr))
    return {name: -negative for name, (_, negative) in found.items()}


def tables(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of two tables: mean and standard deviation over seeds, in %."""
    rates = best(rows)
    hospitals = list(dict.fromkeys(str(row["hospital"]) for row in rows))
    hospitals = [*(name for name in hospitals if name != ALL), ALL]
    for key in ("accuracy", "auc"):
        yield f"{key}, %, mean ± SD over seeds"
        yield f"{'algorithm':12} {'lr':>6}" + "".join(f"{name:>14}" for name in hospitals)
        for name, lr in sorted(rates.items(), key=lambda one: (one[0] != POOLED, one[0])):
            cells = []
            for hospital in hospitals:
                wanted = (name, lr, hospital)
                figures = [
                    row[key]
                    for row in rows
                    if (row["algorithm"], row["lr"], row["hospital"]) == wanted
                ]
                values = [100 * float(figure) for figure in figures if figure is not None]
                cells.append(f"{told(values):>14}")
            yield f"{name:12} {lr:>6g}" + "".join(cells)
        yield ""


def told(values: list[float]) -> str:
    """Write a mean and a standard deviation."""
    if not values:
        return "-"
    return f"{mean(values):.1f} ± {stdev(values) if len(values) > 1 else 0:.1f}"


def main() -> None:
    """Train what is missing, and print the tables."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ask.add_argument("data", type=Path, help="the folder of UCI's four files")
    ask.add_argument("--out", type=Path, default=Path("runs/heart"))
    ask.add_argument("--no-run", action="store_true", help="print what there is")
    asked = ask.parse_args()
    if not asked.no_run:
        swept(asked.data, asked.out)
    rows = [*in_one_place(asked.data), *of_sweep(asked.out)]
    columns = ("algorithm", "lr", "seed", "hospital", "val", "accuracy", "auc")
    with (asked.out / "heart.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    print("\n".join(tables(rows)))


if __name__ == "__main__":
    main()
