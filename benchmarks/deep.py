"""Rounds of an LSTM, of ResNet-18 and of pfl's CNN: Coterie beside plain torch and pfl, on a core.

CPU seconds of a round of training, by the process that trains. Everybody has a turn, then everybody
another. The least of all rounds counts; most over least is the spread. All have the same model, the
same first weights and the same examples, which are generated (benchmarks/peers/deep_work.py).
GFLOP/s are the operations that are counted (docs/howto/models.md) by these seconds. Above the table
is the best speed of a product of two matrices on this core.

Usage: python benchmarks/deep.py [--work NAME ...] [--who NAME ...] [--turns 3] [--rounds 2]
[--pfl-python PATH] [--out FILE]
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from contest import machine
from deep_work import WORKS, DeepWork
from environments import ONE_THREAD, interpreter, one_core
from watch import peak_gflops

from coterie.models import make_model
from coterie.models.size import flops_per_example

PEERS = Path(__file__).resolve().parent / "peers"
SOURCE = PEERS.parents[1] / "src"
WHO = ("coterie", "plain", "pfl")
Line = dict[str, Any]


def run(who: str, work: str, rounds: int, python: Path) -> Line:
    """Let one train in a process of its own."""
    script = [str(python), str(PEERS / "deep_round.py"), "--who", who, "--work", work]
    command = [*one_core(), *script, "--rounds", str(rounds)]
    env = os.environ | ONE_THREAD | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{who} could not run {work}:\n{done.stderr[-2000:]}")
    found: Line = json.loads(done.stdout.splitlines()[-1])
    return found


def table(name: str, work: DeepWork, lines: list[Line]) -> list[str]:
    """Return the lines of a table: who took how long."""
    model = make_model(work.model, work.shape, work.classes, tokens=work.text)
    flops = flops_per_example(model, work.shape, tokens=work.text)
    giga = work.nodes * work.examples * flops / 1e9
    laps = {who: [s for line in lines if line["who"] == who for s in line["cpu_s"]] for who in WHO}
    told = {line["who"]: line for line in lines}
    base = min(laps["coterie"], default=0.0)
    rows = [
        f"\n{name}: {work.model}, {work.nodes} nodes x {work.examples}, batch {work.batch}, "
        f"lr {work.lr:g}; {giga:.0f} GFLOP a round",
        f"{'who':8} {'CPU s/round':>11} {'times':>7} {'spread':>6} {'GFLOP/s':>8} {'loss':>7} how",
    ]
    for who in told:
        least, most = min(laps[who]), max(laps[who])
        times = f"{least / base:6.2f}x" if base else f"{'-':>7}"
        rows.append(
            f"{who:8} {least:11.3f} {times} {most / least:6.2f} {giga / least:8.1f} "
            f"{told[who]['loss']:7.4f} {told[who]['how']}"
        )
    return rows


def main() -> None:
    """Print the tables."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS))
    ask.add_argument("--who", nargs="+", choices=WHO, default=WHO)
    ask.add_argument("--turns", type=int, default=3)
    ask.add_argument("--rounds", type=int, default=2)
    ask.add_argument("--pfl-python", type=Path, help="an environment with pfl; else one is made")
    ask.add_argument("--out", type=Path, help="file to print to as well")
    args = ask.parse_args()
    pythons = {who: Path(sys.executable) for who in args.who}
    if "pfl" in args.who:
        pythons["pfl"] = args.pfl_python or interpreter("pfl")
    printed = [machine(), f"a product of two matrices: {peak_gflops():.0f} GFLOP/s"]
    print("\n".join(printed), flush=True)
    for name in args.work:
        lines = [
            run(who, name, args.rounds, python)
            for _ in range(args.turns)
            for who, python in pythons.items()
        ]
        found = table(name, WORKS[name], lines)
        print("\n".join(found), flush=True)
        printed += found
        if args.out:
            args.out.write_text("\n".join(printed) + "\n")


if __name__ == "__main__":
    main()
