"""CIFAR-10 as pfl's benchmark has it: Coterie beside pfl, accuracy by rounds, CPU seconds a round.

pfl's CNN, the 50,000 training pictures on 1,000 users of 50, IID, 50 of them a round, batches of
10, one epoch, learning rate 0.1. All begin with the same weights, have the same users, and are held
to one core. They are scored on the 10,000 test pictures, beside the clock.

Usage: python benchmarks/cifar.py DATA [--rounds 100] [--who coterie pfl plain] [--out FOLDER]
[--pfl-python PATH]. DATA has the binary files of CIFAR-10, or train/<class>/ and test/<class>/ with
its pictures. Who has run in FOLDER already is not run again.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from contest import machine
from deep_work import WORKS
from environments import ONE_THREAD, interpreter, one_core

from coterie import data

PEERS = Path(__file__).resolve().parent / "peers"
SOURCE = PEERS.parents[1] / "src"
WHO = ("coterie", "pfl", "plain")
WORK = "cifar10"


def lay_out(path: Path, file: Path) -> None:
    """Write the users' pictures, user by user, and the test pictures."""
    is_pictures = (path.is_dir() and (path / "train").is_dir()) or path.suffix in (".zip", ".gz")
    is_pictures = is_pictures and not path.name.startswith("cifar-10-binary")
    dataset = data.load("images" if is_pictures else "cifar10", path)
    assert dataset.test is not None  # these have one
    rest = np.flatnonzero(~dataset.test)
    order = np.random.default_rng(0).permutation(rest)
    work = WORKS[WORK]
    if len(order) != work.nodes * work.examples:
        sys.exit(f"{path}: has {len(order)} training pictures, not 50,000")
    np.savez(
        file,
        x=dataset.x[order],
        y=dataset.y[order],
        test_x=dataset.x[dataset.test],
        test_y=dataset.y[dataset.test],
    )


def run(who: str, rounds: int, every: int, python: Path, out: Path, arrays: Path) -> None:
    """Let one train in a process of its own, and keep what it said and reached."""
    rows, part = out / f"{who}.jsonl", out / f"{who}.part"
    part.unlink(missing_ok=True)
    words = ["--who", who, "--work", WORK, "--rounds", str(rounds - 1), "--every", str(every)]
    words += ["--arrays", str(arrays), "--rows", str(part)]
    command = [*one_core(), str(python), str(PEERS / "deep_round.py"), *words]
    env = os.environ | ONE_THREAD | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{who} failed:\n{done.stderr[-2000:]}")
    with part.open("a") as file:
        file.write(done.stdout.splitlines()[-1] + "\n")
    part.rename(rows)


def table(out: Path, who: list[str]) -> list[str]:
    """Return the lines: CPU seconds a round, and accuracy after rounds."""
    told: dict[str, dict[str, Any]] = {}
    curves: dict[str, dict[int, float]] = {}
    for one in who:
        *rows, told[one] = map(json.loads, (out / f"{one}.jsonl").read_text().splitlines())
        curves[one] = {row["round"]: row["accuracy"] for row in rows}
    base = min(told[who[0]]["cpu_s"])
    lines = [f"{'who':8} {'least':>7} {'times':>6} {'median':>7} {'most':>7}  CPU s a round, how"]
    for one in who:
        s = told[one]["cpu_s"]
        lines.append(
            f"{one:8} {min(s):7.3f} {min(s) / base:5.2f}x {median(s):7.3f} {max(s):7.3f}  "
            f"{told[one]['how']}"
        )
    lines.append("\naccuracy on the test pictures after rounds, %")
    lines.append(f"{'rounds':8} " + " ".join(f"{one:>8}" for one in who))
    for number in curves[who[0]]:
        cells = " ".join(f"{100 * curves[one].get(number, np.nan):8.2f}" for one in who)
        lines.append(f"{number:<8} {cells}")
    return lines


def main() -> None:
    """Train who is missing, and print the table."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    ask.add_argument("data", type=Path)
    ask.add_argument("--rounds", type=int, default=100)
    ask.add_argument("--every", type=int, default=10)
    ask.add_argument("--who", nargs="+", choices=WHO, default=["coterie", "pfl"])
    ask.add_argument("--out", type=Path, default=Path("runs/cifar10-pfl"))
    ask.add_argument("--pfl-python", type=Path, help="an environment with pfl; else one is made")
    args = ask.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    arrays = args.out / "arrays.npz"
    if not arrays.exists():
        lay_out(args.data, arrays)
    for who in args.who:
        if not (args.out / f"{who}.jsonl").exists():
            own = interpreter("pfl") if args.pfl_python is None else args.pfl_python
            python = own if who == "pfl" else Path(sys.executable)
            run(who, args.rounds, args.every, python, args.out, arrays)
    print("\n".join([machine(), f"CIFAR-10, {args.rounds} rounds, the first is not timed", ""]))
    print("\n".join(table(args.out, args.who)))


if __name__ == "__main__":
    main()
