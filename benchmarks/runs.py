"""Whole runs by Coterie and its peers: from the start of a command to its end.

A new process, imports, data from disk, rounds, scores on 10,000 test examples every few rounds, and
rows in a file: everything counts. Coterie also writes checkpoints (every second), the model, and a
summary with validation accuracy. Peers write rows alone, are given the nodes' examples dealt
already, and take mini-batches in the order of the examples; Coterie deals them and shuffles. Peers
are set up as benchmarks/peers says. FLUTE (msrflute) is not here: it is no package, is run from its
checkout, and pins PyTorch 1.13.1.

One core: CPU seconds of all processes of a run, pinned. All cores: wall seconds, or those of the
run on one core where they are less, marked "*". Everybody has a turn, then everybody another; the
least counts, and most over least is the spread. Flower has one turn, on all cores. With --out, what
was measured is kept, and not measured again.

Usage: make bench-runs, or python benchmarks/runs.py [--case NAME ...] [--who NAME ...]
[--cores one all] [--turns 2] [--out runs.jsonl] [--quick].
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from case import Case
from cases import lay_out, source, tiny
from contest import Kept, Line, machine, measure, quickest, spread, turns

WHO = ("coterie", "plain", "pfl", "fedjax", "flower")
CASES = {
    case.name: case
    for case in (
        Case("sr-1000", "sr", "fashion", 1000, 1000, 60, 10, 0.05, 20, 5, processes=2),
        Case("2nn-1000", "2nn", "fashion", 1000, 1000, 60, 10, 0.05, 10, 5, processes=2),
        Case("2nn-100", "2nn", "fashion", 100, 100, 430, 128, 0.1, 25, 5, threads=2, processes=2),
        Case("cnn-100", "cnn", "fashion", 100, 10, 430, 128, 0.1, 10, 5, threads=2, processes=2),
        Case(
            *("cnn-100-nolrn", "cnn-nolrn", "fashion", 100, 10, 430, 128, 0.1, 10, 5),
            threads=2,
            processes=2,
        ),
        Case("lr-mnist", "sr", "fashion", 1000, 10, 60, 10, 0.03, 100, 20, sd=1.0),
    )
}


def table(case: Case, found: dict[tuple[str, int], list[Line]]) -> None:
    """Print what a case took."""
    of = "all" if case.cohort == case.nodes else f"{case.cohort}"
    print(
        f"\n{case.name}: {case.model}, {case.nodes:,} nodes x ~{case.examples}, {of} a round, "
        f"batch {case.batch}, lr {case.lr:g}, {case.rounds} rounds, scored every "
        f"{case.eval_every}; {source(case.data)}"
    )
    print(
        f"{'who':8} {'CPU s':>8} {'times':>7} {'spread':>7} {'wall s':>9} {'times':>7} "
        f"{'spread':>7} {'last row':>9} {'MB':>6} {'accuracy':>9} {'loss':>7} {'rows':>5} "
        f"{'examples':>9}"
    )
    several = max(n for _, n in found)
    counted: list[Line] = []
    for who in dict.fromkeys(name for name, _ in found):
        one = found.get((who, 1), [])
        lines = best_way(found, who, several) or one
        cells = []
        columns = (
            ("cpu_s", one, found.get(("coterie", 1)), 8),
            ("wall_s", lines, best_way(found, "coterie", several), 9),
        )
        for key, its, base, width in columns:
            if not its:
                cells.append(f"{'-':>{width}} {'-':>7} {'-':>7}")
                continue
            best = quickest(its, key)
            counted.append(best)
            alone = " " if several == 1 or best["cores"] > 1 else "*"
            s = f"{best[key]:8.2f}{alone if key == 'wall_s' else ''}"
            times = f"{best[key] / quickest(base, key)[key]:6.2f}x" if base else f"{'-':>7}"
            cells.append(f"{s} {times} {spread(its, key):>7}")
        last = lines[-1]
        peak = max(line["peak_bytes"] for line in lines) / 1e6
        trained = f"{last['examples']:9,}" if last.get("examples") else f"{'-':>9}"
        last_row = quickest(lines, "last_row_s")["last_row_s"]
        print(
            f"{who:8} {' '.join(cells)} {last_row:9.2f} {peak:6.0f} "
            f"{last['accuracy']:9.2%} {last['loss']:7.4f} {last['evaluations']:5} {trained}",
            flush=True,
        )
    loads = [line["load"][0] for line in counted]
    print(
        f"*: quicker on one core; load average of the turns that count: "
        f"{min(loads):.2f} to {max(loads):.2f}",
        flush=True,
    )


def best_way(found: dict[tuple[str, int], list[Line]], who: str, several: int) -> list[Line]:
    """Return somebody's turns on all cores, or those on one core if one of them was quicker."""
    ways = [found[who, n] for n in (several, 1) if found.get((who, n))]
    return min(ways, key=lambda lines: quickest(lines, "wall_s")["wall_s"], default=[])


def phases(case: Case, cores: int, kept: Kept) -> None:
    """Print how Coterie's time divides, from an extra run."""
    line = measure(case, "phases", cores, 0, kept)
    if line is None:
        return
    p = line["phases"]
    parts = {
        "imports": p["imports"],
        "data, network and first model": p.get("preparing", 0.0),
        "training": p.get("training", 0.0),
        "scores": p.get("test scores", 0.0) + p.get("training loss", 0.0),
        "rows and checkpoints": p.get("records", 0.0) + p.get("checkpoints", 0.0),
    }
    parts["rest"] = p["total"] - sum(parts.values())
    said = ", ".join(f"{s:.2f} {part}" for part, s in parts.items())
    print(f"coterie on {cores}: {p['total']:.2f} s = {said}", flush=True)


def main() -> None:
    """Print a table for each case."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    ask.add_argument("--who", nargs="+", choices=WHO, default=WHO)
    ask.add_argument("--cores", nargs="+", choices=("one", "all"), default=["one", "all"])
    ask.add_argument("--turns", type=int, default=2)
    ask.add_argument("--out", type=Path, help="file of JSON lines to keep, and to go on from")
    ask.add_argument("--quick", action="store_true", help="tiny cases: does everything run?")
    args = ask.parse_args()
    kept, several = Kept(args.out), len(os.sched_getaffinity(0))
    cores = sorted({1 if word == "one" else several for word in args.cores})
    print(machine(), flush=True)
    for name in args.case:
        case = tiny(CASES[name]) if args.quick else CASES[name]
        lay_out(case)
        found = turns(case, args.who, args.turns, kept, cores)
        if found:
            table(case, found)
        if "coterie" in args.who:
            for n in cores:
                phases(case, n, kept)


if __name__ == "__main__":
    main()
