"""Tables and the picture of what benchmarks/map/measure.py measured.

Usage: python benchmarks/map/tables.py [FOLDER]; `make bench-map` runs it, too. Writes
docs/results/tables/map.csv, the part of it that plans read (src/coterie/preview/map.csv), and
docs/images/map.png.
"""

import csv
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from coterie.analysis.fair import COMBINED, Interval, Reached, ratio
from coterie.preview.map import FILE, spots
from coterie.render.page.html import png
from coterie.render.page.map import map_figure

ROOT = Path(__file__).parents[2]
Json = dict[str, Any]
CELL = ("skew", "model", "per_edge", "network", "ratio")
NEVER = Interval(0.0, 0.0, 0.0)
ALWAYS = Interval(math.inf, math.inf, math.inf)
UNTOLD = Interval(1.0, 0.0, math.inf)


def reached(cell: Json, name: str) -> Reached:
    """Return what a method needed, by seed."""
    told = cell["methods"][name]
    return Reached(name, told["seconds"], told["slow_bytes"], told["chosen"])


def best(cell: Json, names: Sequence[str]) -> str:
    """Return the method that the validation part preferred."""
    return min(names, key=lambda name: tuple(cell["methods"][name]["score"]))


def verdict(cell: Json, *, combined: bool) -> tuple[str, str, Interval]:
    """Return the best FedAvg, the best groups, and how many times as fast these are.

    Both were chosen by the validation part, so that the interval over other seeds is of one
    comparison. Where one of them is at the target on some seeds only, nothing is told.
    """
    names = [n for n in cell["methods"] if combined or not n.endswith(COMBINED)]
    plain = best(cell, [n for n in names if n.startswith("fedavg")])
    groups = best(cell, [n for n in names if not n.startswith("fedavg")])
    one, two = reached(cell, plain), reached(cell, groups)
    if one.whole and two.whole:
        return plain, groups, ratio(one, two) or UNTOLD
    if one.whole and not two.known:
        return plain, groups, NEVER
    if two.whole and not one.known:
        return plain, groups, ALWAYS
    return plain, groups, UNTOLD


def place_of(cell: Json) -> list[Any]:
    """Write where a cell is."""
    told = cell["cell"]
    return [told["skew"], told["model"], told["per_edge"], told["place"], told["ratio"]]


def wait_of(place: Json) -> float:
    """Seconds of a mean of all over those of a mean of the edges, each the better of both ways."""
    whole = min(place["global_s_alone"], place["global_s_combined"])
    return float(whole / min(place["edge_s_alone"], place["edge_s_combined"]))


def write_all(cells: Sequence[Json], path: Path) -> None:
    """Write a line for every method of every cell."""
    head = [*CELL, "method", "lr", "K", "tau1", "tau2", "seeds", "seconds", "slow_mbytes"]
    head += ["steps", "global_means"]
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(head)
        for cell in cells:
            for name, told in cell["methods"].items():
                found, chosen = reached(cell, name), told["chosen"]
                known = [b for b in found.slow_bytes.values() if b is not None]
                keys = ("algorithm.num_groups", "algorithm.tau1", "algorithm.tau2")
                line = [name, chosen["train.lr"], *(chosen.get(key, "") for key in keys)]
                line += [len(found.known)]
                line += [f"{mean(found.known):.4g}" if found.known else ""]
                line += [f"{mean(known) / 1e6:.4g}" if known else ""]
                for key in ("steps", "means"):
                    some = [value for value in told[key].values() if value is not None]
                    line += [f"{mean(some):.4g}" if some else ""]
                rows.writerow([*place_of(cell), *line])


def write_spots(cells: Sequence[Json], path: Path) -> None:
    """Write a line for every cell: where it is, and what is first there."""
    head = [*CELL, "wait", "nodes_emd", "edges_emd", "groups", "times", "low", "high"]
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(head)
        for cell in cells:
            place = cell["place"]
            where = [wait_of(place), place["nodes_emd"], place["edges_emd"]]
            _, groups, times = verdict(cell, combined=True)
            figures = [times.mean, times.low, times.high]
            line = [f"{value:.4g}" for value in (*where, *figures)]
            rows.writerow([*place_of(cell), *line[:3], groups, *line[3:]])


def tell(cells: Sequence[Json]) -> None:
    """Print who is first in how many cells, with models combined on their way and without."""
    for combined in (True, False):
        found: dict[str, list[float]] = {"groups": [], "fedavg": [], "either": []}
        names: dict[str, int] = {}
        for cell in cells:
            _, groups, times = verdict(cell, combined=combined)
            kind = "either" if times.low <= 1 <= times.high else "groups"
            kind = "fedavg" if times.high < 1 else kind
            found[kind].append(times.mean)
            if kind == "groups":
                names[groups] = names.get(groups, 0) + 1
        how = "models may be combined" if combined else "no models are combined"
        print(f"{how}, {len(cells)} cells")
        for kind, values in found.items():
            told = [v for v in values if math.isfinite(v)]
            span = f", {min(told):.2f}x to {max(told):.2f}x" if told else ""
            print(f"  {kind}: {len(values)}{span}")
        print(f"  groups that are first: {names}")


def tell_work(cells: Sequence[Json]) -> None:
    """Print steps and global means of the best FedAvg and the best groups, skew by skew."""
    for skew in dict.fromkeys(cell["cell"]["skew"] for cell in cells):
        own = [cell for cell in cells if cell["cell"]["skew"] == skew]
        for kind in (0, 1):
            named = [(cell, verdict(cell, combined=True)[kind]) for cell in own]
            work = {}
            for key in ("steps", "means"):
                seeds = [cell["methods"][name][key].values() for cell, name in named]
                known = [value for one in seeds for value in one if value is not None]
                work[key] = f"{min(known)} to {max(known)}, median {median(known):g}"
            told = ", ".join(f"{key} {value}" for key, value in work.items())
            print(f"{skew}, best {('FedAvg', 'groups')[kind]}: {told}")
    ends: dict[str, int] = {}
    for cell in cells:
        for told in cell["methods"].values():
            for end in told["ends"]:
                what = end.split(" is best at ")[0] if " is best at " in end else "not all tried"
                ends[what] = ends.get(what, 0) + 1
    print(
        f"of {sum(len(cell['methods']) for cell in cells)} searches the best is at an end: {ends}"
    )


def main() -> None:
    """Write everything."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/map")
    lines = (folder / "cells.jsonl").read_text().splitlines()
    cells = [json.loads(line) for line in lines if line.endswith("}")]
    write_all(cells, ROOT / "docs/results/tables/map.csv")
    write_spots(cells, FILE)
    (ROOT / "docs/images/map.png").write_bytes(png(map_figure(spots())))
    tell(cells)
    tell_work(cells)


if __name__ == "__main__":
    main()
