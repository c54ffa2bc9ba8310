"""The curves of docs/results/tasks.md: Shakespeare in one place and by FedAvg, CIFAR-10 and pfl.

Usage: python benchmarks/tasks.py [--shakespeare FOLDER ...] [--cifar FOLDER] [--out docs/results]
Shakespeare's folders are runs, complete or not; that of CIFAR-10 is of benchmarks/cifar.py. Writes
shakespeare.png and cifar10.png, and prints the figures.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt

from coterie.analysis.palette import COLOURS
from coterie.config.files import load_experiment

Curve = list[tuple[float, float]]


def of_run(folder: Path) -> tuple[str, Curve]:
    """Return what a run of Shakespeare is called, and its accuracy by passes over the windows."""
    [config] = load_experiment(folder / "config.toml")
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    share = config.participation.fraction
    curve = [(row["t"] * share, row["test_accuracy"]) for row in rows if row["test_accuracy"]]
    return "in one place" if config.partition.num_nodes == 1 else "FedAvg, 100 roles", curve


def of_cifar(file: Path) -> Curve:
    """Return the accuracy of a contestant by rounds."""
    rows = map(json.loads, file.read_text().splitlines())
    return [(row["round"], row["accuracy"]) for row in rows if "round" in row]


def draw(curves: dict[str, Curve], x: str, path: Path, level: float | None = None) -> None:
    """Draw accuracy, and a level if there is one."""
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for at, (name, curve) in enumerate(curves.items()):
        xs, ys = zip(*curve, strict=True)
        style: dict[str, Any] = {"linestyle": "-" if at == 0 else "--", "marker": "os^"[at % 3]}
        axes.plot(xs, [100 * y for y in ys], label=name, color=COLOURS[at], markersize=3, **style)
    if level is not None:
        axes.axhline(100 * level, color="0.6", linewidth=0.8)
    axes.set(xlabel=x, ylabel="accuracy on test examples, %", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)


def printed(curves: dict[str, Curve], x: str) -> Iterator[str]:
    """Yield a table with all points of all curves."""
    for name, curve in curves.items():
        yield f"{name}: accuracy, %, by {x}"
        for at in range(0, len(curve), 6):
            yield "  " + "  ".join(f"{x:6.2f}: {100 * y:5.2f}" for x, y in curve[at : at + 6])


def main() -> None:
    """Draw what is there."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ask.add_argument("--shakespeare", type=Path, nargs="+", default=[])
    ask.add_argument("--cifar", type=Path)
    ask.add_argument("--out", type=Path, default=Path("docs/results"))
    asked = ask.parse_args()
    if asked.shakespeare:
        curves = dict(map(of_run, asked.shakespeare))
        draw(curves, "passes over all windows", asked.out / "shakespeare.png", 0.5)
        print("\n".join(printed(curves, "passes over all windows")))
    if asked.cifar:
        files = [asked.cifar / f"{who}.jsonl" for who in ("coterie", "pfl", "plain")]
        curves = {file.stem: of_cifar(file) for file in files if file.exists()}
        draw(curves, "rounds", asked.out / "cifar10.png")
        print("\n".join(printed(curves, "rounds")))


if __name__ == "__main__":
    main()
