"""Published benchmarks of simulators, run here in the same shape by Coterie and its peers.

Each row has the figure that was published, and the hardware where that was stated. Here everything
runs on this machine's CPU. Where the published run is too long, two shorter whole runs are made,
and the time of all rounds is told from both: that of the shorter, and for every further round what
a round takes by their difference. Then start-up and end count once.

Data are images of the same shape and number: Fashion-MNIST for MNIST, else generated ones. Times do
not depend on what is on them; accuracies do, and show only that all did the same.

FLUTE is not run, as it is no package, and FedML was not tried. BlazeFL's fastest mode needs a
Python without a global lock; here it runs by processes.

Usage: make bench-published, or python benchmarks/published.py [--row NAME ...] [--who NAME ...]
[--turns 1] [--out published.jsonl] [--quick].
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from case import Case
from cases import lay_out, source, tiny
from contest import SLOW, Kept, Line, least, machine, spread, turns


@dataclass(frozen=True)
class Row:
    """A published benchmark: its shape, who runs it here, how much of it, and what was printed."""

    case: Case  # with as many rounds as are run at most
    who: tuple[str, ...]
    published: tuple[str, ...]
    here: str
    cores: tuple[str, ...] = ("one", "all")
    short: int = 0  # rounds of the shorter run; 0: none, the whole is run
    full: int = 0  # such rounds in the published run


ROWS = {
    "flute-lr-mnist": Row(
        Case("lr-mnist", "sr", "fashion", 1000, 10, 60, 10, 0.03, 100, 20, sd=1.0),
        ("coterie", "plain", "pfl", "fedjax", "flower"),
        (
            "FLUTE's README (microsoft/msrflute), LR on MNIST, 1,000 clients, 10 a round, 100 "
            "rounds:",
            "on a CPU, not said which: Flower 1.0.0 (Ray) 30:14, FLUTE (Gloo) 3:20",
            "on GPUs, not said which: FedML 0.7.303 3:09, FLUTE 1:35",
        ),
        "all of it, softmax regression",
    ),
    "flute-cnn-femnist": Row(
        Case("cnn-femnist", "femnist_cnn", "femnist", 3400, 10, 197, 20, 0.1, 50, 50, sd=0.4),
        ("coterie", "plain", "pfl"),
        (
            "FLUTE's README, CNN on FEMNIST, 3,400 clients, 10 a round, batch 20, 1,500 rounds:",
            "on GPUs, not said which: FedML 0.7.303 5:49:52, FLUTE 8:22",
        ),
        "50 rounds, scaled",
        ("one",),
        short=10,
        full=1500,
    ),
    "pfl-cifar10": Row(
        Case("pfl-cifar10", "femnist_cnn", "cifar", 1000, 50, 50, 10, 0.1, 30, 10, sd=0.0),
        ("coterie", "pfl", "plain"),
        (
            "pfl's benchmark image_classification, CIFAR-10 IID, 1,000 users x 50, 50 a round, "
            "batch 10, lr 0.1, 1,500 rounds, scored every 10:",
            "by its abstract (arXiv 2404.06430): pfl 7 to 72 times as fast as other simulators",
        ),
        "30 rounds, scaled; users weighted by examples, which is the same here",
        ("one",),
        short=10,
        full=1500,
    ),
    "blazefl-cnn": Row(
        Case("blazefl-cnn", "tutorial_cnn", "cifar", 100, 100, 500, 50, 0.1, 5, 1, 5, sd=0.0),
        ("coterie", "flower", "blazefl"),
        (
            "BlazeFL (arXiv 2604.03606), CIFAR-10, 100 clients, 5 rounds of 5 epochs, batch 50, "
            "CNN:",
            "up to 3.1 times as fast as Flower, over both models, by threads without a lock",
        ),
        "all of it",
        ("all",),
    ),
    "blazefl-resnet18": Row(
        Case(
            *("blazefl-resnet18", "resnet18", "cifar", 4, 4, 498, 50, 0.1, 2, 1, 5),
            sd=0.0,
            tested=400,
        ),
        ("coterie", "flower", "blazefl"),
        ("BlazeFL, the same with ResNet-18:", "up to 3.1 times as fast as Flower, over both"),
        "4 clients of 498 for 100 and 400 test images for 10,000, two rounds, scaled",
        ("all",),
        short=1,
        full=125,
    ),
}


def clock(seconds: float) -> str:
    """Write seconds as hours, minutes and seconds.

    >>> clock(502.3)
    '0:08:22'
    """
    minutes, s = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{s:02}"


def scaled(row: Row, short: Sequence[Line], long: Sequence[Line], key: str) -> tuple[float, float]:
    """Return seconds of a further round, and of the published number of rounds."""
    least_short, least_long = least(short, key), least(long, key)
    each = (least_long - least_short) / (row.case.rounds - row.short)
    return each, least_short + (row.full - row.short) * each


def run_row(name: str, row: Row, who: Sequence[str], number: int, kept: Kept) -> None:
    """Measure a row and print it."""
    case = row.case
    print(f"\n{name}")
    for line in row.published:
        print(f"  {line}")
    print(f"  here: {row.here}; {source(case.data)}", flush=True)
    lay_out(case)
    several = len(os.sched_getaffinity(0))
    cores = sorted({1 if word == "one" else several for word in row.cores})
    names = [one for one in row.who if one in who]
    long = turns(case, names, number, kept, cores)
    short = turns(case.shorter(row.short), names, number, kept, cores) if row.short else {}
    print(
        f"  {'who':8} {'cores':>5} {'what':>5} {'seconds':>8} {'times':>7} {'spread':>6} "
        f"{'a round':>8} {'times':>7} {'all rounds':>10} {'MB':>6} {'accuracy':>9} {'loss':>7}"
    )
    for n in cores:
        key, what = ("cpu_s", "CPU") if n == 1 else ("wall_s", "wall")
        base = long.get((names[0], n))
        first = scaled(row, short[names[0], n], base, key)[0] if short and base else 0.0
        for one in names:
            lines = long.get((one, n))
            if not lines and one in SLOW and n < max(cores):
                continue
            if not lines or (row.short and (one, n) not in short):
                print(f"  {one:8} {n:5} failed")
                continue
            s, last = least(lines, key), lines[-1]
            each = f"{'-':>8} {'-':>7} {clock(s):>10}"
            if row.short:
                a_round, total = scaled(row, short[one, n], lines, key)
                times = f"{a_round / first:6.2f}x" if first > 0 else f"{'-':>7}"
                whole = clock(total) if a_round > 0 else "noise"
                each = f"{a_round:8.3f} {times} {whole:>10}"
            peak = max(line["peak_bytes"] for line in lines) / 1e6
            times = f"{s / least(base, key):6.2f}x" if base else f"{'-':>7}"
            print(
                f"  {one:8} {n:5} {what:>5} {s:8.2f} {times} {spread(lines, key):>6} {each} "
                f"{peak:6.0f} {last['accuracy']:9.2%} {last['loss']:7.4f}",
                flush=True,
            )


def small(row: Row) -> Row:
    """Return a row that only shows whether everything runs."""
    return Row(tiny(row.case), row.who, row.published, "tiny", row.cores, row.short and 1, row.full)


def main() -> None:
    """Print the rows."""
    everybody = list(dict.fromkeys(who for row in ROWS.values() for who in row.who))
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--row", nargs="+", choices=ROWS, default=list(ROWS))
    ask.add_argument("--who", nargs="+", choices=everybody, default=everybody)
    ask.add_argument("--turns", type=int, default=1)
    ask.add_argument("--out", type=Path, help="file of JSON lines to keep, and to go on from")
    ask.add_argument("--quick", action="store_true", help="tiny rows: does everything run?")
    args = ask.parse_args()
    kept = Kept(args.out)
    print(machine(), flush=True)
    for name in args.row:
        row = small(ROWS[name]) if args.quick else ROWS[name]
        run_row(name, row, args.who, args.turns, kept)


if __name__ == "__main__":
    main()
