"""What whole runs take as nodes, model, groups or cohort grow. Run: make bench-growth

CPU seconds and memory, each over three decades, other things fixed. A point is `coterie run` in a
process of its own on one core: start, data, network, plan, rounds, scores and records. The least of
two turns counts, as machines are disturbed and never sped up. Every turn is a line of --out; what
is there is not run again, so that a benchmark that was stopped goes on.

Nodes hold 4 images of 4 x 4 bytes and a log-normal number more, 10 in the mean; 2,000 others are
tested on after every tenth round. Twenty rounds, batches of ten. Groups are searched on label
counts, with two group means a round.

The part `scale` is a table: 100,000 and 1,000,000 nodes with images of 8 x 8 bytes, 1,000 of them a
round, two models, without groups and with a hundred, whose search counts.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

TESTED, CLASSES, SIDE, MEAN, LEAST = 2_000, 10, 4, 10, 4
BASE = {
    "data.name": "arrays",
    "data.split": "official",
    "partition.kind": "natural",
    "algorithm.name": "fedavg",
    "algorithm.tau2": "1",
    "model.name": "sr",
    "participation.sampled": "all",
    "train.batch_size": "10",
    "train.eval_every": "10",
    "train.lr": "0.05",
    "train.steps": "20",
}
GROUPED = {
    "algorithm.name": "fedavg-ic",
    "algorithm.evidence": "labels",
    "algorithm.tau2": "2",
    "participation.sampled": "group",
}
ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
WIDE = """from math import prod

from torch import nn


def {name}(input_shape, n_classes):
    d = prod(input_shape)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(d, {width}), nn.ReLU(), nn.Linear({width}, n_classes)
    )
"""


@dataclass(frozen=True)
class Point:
    """One run: what is grown, how large it is, on how many nodes, and its settings."""

    grown: str
    value: int
    nodes: int
    settings: Mapping[str, str] = field(default_factory=dict)
    side: int = SIDE  # of an image

    @property
    def key(self) -> str:
        """What tells it from others, also from those of another version of this file."""
        told = [self.grown, self.value, self.nodes, {**BASE, **self.settings}]
        return json.dumps(told if self.side == SIDE else [*told, self.side])


def by_nodes(n: int) -> Point:
    """A cohort of 1,000 of n nodes."""
    return Point("nodes", n, n, {"participation.fraction": repr(1_000 / n)})


def by_model(d: int) -> Point:
    """A perceptron of about d numbers, on 100 of 10,000 nodes."""
    width = max(1, (d - CLASSES) // (SIDE * SIDE + 1 + CLASSES))
    named = {"model.name": f"wide_{width}:wide_{width}", "participation.fraction": "0.01"}
    return Point("numbers of the model", d, 10_000, named)


def by_groups(K: int) -> Point:
    """K groups of 10,000 nodes, of which a fifth take part."""
    some = {"algorithm.num_groups": str(K), "participation.fraction": "0.2"}
    return Point("groups", K, 10_000, {**GROUPED, **some})


def by_cohort(m: int) -> Point:
    """A cohort of m of 10,000 nodes."""
    return Point("nodes a round", m, 10_000, {"participation.fraction": repr(m / 10_000)})


def at_scale(n: int, model: str, K: int) -> Point:
    """A cohort of 1,000 of n nodes, in K groups if K is above 1."""
    settings = {"participation.fraction": repr(1_000 / n), "model.name": model}
    if K > 1:
        settings |= {**GROUPED, "algorithm.num_groups": str(K)}
    groups = f"{K} groups" if K > 1 else "no groups"
    return Point(f"{model.upper()}, {groups}", n, n, settings, side=8)


DECADES = {
    "nodes": [by_nodes(10**k) for k in (3, 4, 5, 6)],
    "model": [by_model(10**k) for k in (3, 4, 5, 6)],
    "groups": [by_groups(2 * 10**k) for k in (0, 1, 2, 3)],
    "cohort": [by_cohort(10**k) for k in (1, 2, 3, 4)],
}
SCALE = [at_scale(n, model, K) for n in (10**5, 10**6) for model in ("sr", "2nn") for K in (1, 100)]
PARTS = [*DECADES, "scale"]
FIXED = {
    "nodes": "SR, 1,000 a round",
    "model": "10,000 nodes, 100 a round",
    "groups": "SR, 10,000 nodes, 2,000 a round",
    "cohort": "SR, 10,000 nodes",
}


def make_data(folder: Path, nodes: int, side: int) -> None:
    """Write nodes' examples, and those that are tested on, as arrays."""
    import numpy as np

    rng = np.random.default_rng(nodes)
    spread = rng.lognormal(math.log(MEAN - LEAST) - 0.5, 1.0, nodes)
    sizes = LEAST + np.floor(spread + rng.random(nodes)).astype(np.int64)
    user = np.concatenate([np.repeat(np.arange(nodes), sizes), np.zeros(TESTED, dtype=np.int64)])
    favourite = rng.integers(CLASSES, size=nodes)
    y = np.where(
        rng.random(len(user)) < 0.5, favourite[user], rng.integers(CLASSES, size=len(user))
    )
    y[-TESTED:] = np.arange(TESTED) % CLASSES
    looks = rng.integers(0, 192, (CLASSES, side, side), dtype=np.uint8)
    noise = rng.integers(0, 64, (len(user), side, side), dtype=np.uint8)
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", looks[y] + noise)
    np.save(folder / "y.npy", y.astype(np.uint8))
    np.save(folder / "user.npy", user.astype(np.int32))
    np.save(folder / "test.npy", np.arange(len(user)) >= len(user) - TESTED)


def measured(point: Point, work: Path) -> dict[str, float]:
    """Run a point in a process of its own; return its CPU seconds and most resident bytes."""
    data = work / f"{point.nodes}x{point.side}"
    if not data.exists():  # in a process of its own: a child's peak begins with its parent's
        words = [sys.executable, __file__, "--make-data", str(data), str(point.nodes)]
        words.append(str(point.side))
        subprocess.run(words, check=True)
    settings = {**BASE, **point.settings, "data.path": str(data)}
    name = settings["model.name"].partition(":")[0]
    if name.startswith("wide_"):
        text = WIDE.format(name=name, width=name.removeprefix("wide_"))
        (work / f"{name}.py").write_text(text, encoding="utf-8")
    (work / "growth.toml").write_text("", encoding="utf-8")
    env = {**os.environ, **ONE_CORE, "COTERIE_DATA": str(work / "cache")}
    with tempfile.TemporaryDirectory(dir=work) as out:
        words = [sys.executable, "-m", "coterie", "run", "growth.toml", "--workers", "1"]
        words += ["--out", f"{out}/run"]
        words += [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
        child = subprocess.Popen(words, cwd=work, env=env, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(
                f"{point.grown} {point.value:,}: the run ended with {child.returncode}"
            )
        summary = json.loads(Path(out, "run", "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "complete"
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    cpu_s = usage.ru_utime + usage.ru_stime
    return {"cpu_s": cpu_s, "wall_s": summary["wall_s"], "peak_bytes": peak}


def known(out: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Read the turns that are in a file; a last line that was cut off does not count."""
    if not out.exists():
        return {}
    whole = (line for line in out.read_text(encoding="utf-8").splitlines(keepends=True))
    lines = [json.loads(line) for line in whole if line.endswith("\n")]
    return {(line["key"], line["turn"]): line for line in lines}


def run_all(points: Sequence[Point], turns: int, out: Path) -> None:
    """Run what is not in the file yet, turn after turn, and add a line for each."""
    there = known(out)
    wanted = [(p, turn) for turn in range(turns) for p in points if (p.key, turn) not in there]
    about = {
        "coterie": version("coterie"),
        "torch": version("torch"),
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="coterie-growth-") as work:
        for point, turn in wanted:
            found = measured(point, Path(work))
            which = {"grown": point.grown, "value": point.value, "turn": turn, "key": point.key}
            _add(out, {**which, **found, "load": os.getloadavg()[0], **about})
            cells = f"{found['cpu_s']:8.1f} s {found['peak_bytes'] / 2**20:8.0f} MiB"
            print(f"turn {turn + 1}  {point.grown:20} {point.value:9,} {cells}", flush=True)


def _add(out: Path, line: Mapping[str, Any]) -> None:
    """Add a line; one that was cut off before it is ended, and stays out."""
    text = out.read_bytes() if out.exists() else b""
    if text and not text.endswith(b"\n"):
        out.write_bytes(text[: text.rfind(b"\n") + 1])
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def least(points: Sequence[Point], out: Path) -> Iterator[tuple[Point, float, float]]:
    """Give of every point that was run the least CPU seconds, and the least MiB, of its turns."""
    there = known(out)
    for point in points:
        turns = [line for (key, _), line in there.items() if key == point.key]
        if turns:
            peak = min(line["peak_bytes"] for line in turns)
            yield point, min(line["cpu_s"] for line in turns), peak / 2**20


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Exponent of growth over the last decade; before, what every run has in common hides it."""
    return math.log(y[-1] / y[-2]) / math.log(x[-1] / x[-2])


def exponent(x: Sequence[float], y: Sequence[float]) -> str:
    """Write an exponent; one of hardly anything has no sign.

    >>> exponent([1, 10], [2.0, 20.0]), exponent([1, 10], [2.0, 1.999])
    ('1.00', '0.00')
    """
    return f"{slope(x, y):.2f}".replace("-0.00", "0.00")


def short(value: float) -> str:
    """Write a round number on an axis.

    >>> short(20), short(2_000), short(1e6)
    ('20', '2k', '1M')
    """
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def table(parts: Sequence[str], out: Path) -> None:
    """Print the least of the turns, and the exponents."""
    if "scale" in parts and (rows := list(least(SCALE, out))):
        print("\nwhole runs, 1,000 nodes a round, 20 rounds")
        for p, cpu_s, mib in rows:
            print(f"  {p.value:9,} {p.grown:16} {cpu_s:8.1f} s {mib:8.0f} MiB")
    for part in parts:
        found = list(least(DECADES.get(part, []), out))
        if len(found) < 2:
            continue
        x, cpu, peak = zip(*((p.value, s, mib) for p, s, mib in found), strict=True)
        print(f"\n{found[0][0].grown} ({FIXED[part]})")
        for row in zip(x, cpu, peak, strict=True):
            print("  {:9,} {:8.1f} s {:8.0f} MiB".format(*row))
        print(f"  last decade: CPU x^{exponent(x, cpu)}, memory x^{exponent(x, peak)}")


def picture(parts: Sequence[str], out: Path, path: Path) -> None:
    """Draw CPU seconds above memory, a column for each that is grown, with the exponents."""
    from matplotlib.figure import Figure

    from coterie.render.figures.style import WIDTHS, looks, plain_log, save, styled

    every = {part: list(least(DECADES.get(part, []), out)) for part in parts}
    drawn = {part: found for part, found in every.items() if len(found) > 1}
    if not drawn:
        raise SystemExit(f"{out}: has no two points to draw a line through")
    with styled():
        figure = Figure(figsize=(WIDTHS["page"], 3.6), layout="constrained")
        axes = figure.subplots(2, len(drawn), sharey="row", squeeze=False)
        look = looks(["cpu", "memory"])
        for column, (part, found) in enumerate(drawn.items()):
            x, *rows = zip(*((p.value, s, mib) for p, s, mib in found), strict=True)
            for axis, y, name in zip(axes[:, column], rows, look, strict=True):
                axis.plot(x, y, **{**look[name].line(), "markevery": 1})
                axis.set_xscale("log")
                axis.set_yscale("log")
                axis.grid()
                axis.set_xticks(x, [short(value) for value in x])
                axis.set_xticks([], minor=True)
                said = f"x^{exponent(x, y)}"
                near = {"xytext": (-4, 5), "textcoords": "offset points", "ha": "right"}
                axis.annotate(said, (x[-1], y[-1]), **near)
            axes[1, column].set_xlabel(f"{found[0][0].grown}\n({FIXED[part]})")
        for axis, what in zip(
            axes[:, 0], ("CPU seconds of a run", "most memory (MiB)"), strict=True
        ):
            axis.set_ylabel(what)
            low, high = axis.get_ylim()
            axis.set_ylim(low, 1.6 * high)
            plain_log(axis.yaxis)
        path.write_bytes(save(figure, path.suffix.removeprefix(".")))
    print(f"\n{path}: exponents are of the last decade")


def main() -> None:
    """Run what is missing, print the table, and draw."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    ask.add_argument("--out", type=Path, default=Path("runs/growth.jsonl"), help="raw JSON lines")
    ask.add_argument("--picture", type=Path, help="a PNG, PDF or SVG to draw")
    ask.add_argument("--turns", type=int, default=2)
    ask.add_argument("--most", type=int, default=10**9, help="leave out what is larger")
    ask.add_argument("--make-data", nargs=3, help=argparse.SUPPRESS)
    args = ask.parse_args()
    if args.make_data:
        make_data(Path(args.make_data[0]), *map(int, args.make_data[1:]))
        return
    every = {**DECADES, "scale": SCALE}
    points = [p for part in args.part for p in every[part] if p.value <= args.most]
    run_all(points, args.turns, args.out)
    table(args.part, args.out)
    if args.picture:
        picture(args.part, args.out, args.picture)


if __name__ == "__main__":
    main()
