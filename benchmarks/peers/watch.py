"""The clock of the peers: CPU and wall seconds of rounds, told as one line of JSON."""

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from work import WORKS, Work

PEAK_SIDE, PEAK_TRIES = 1536, 5


@dataclass(frozen=True)
class Task:
    """What was asked for on the command line."""

    whole: Work
    work: Work  # the part of it that is run
    fraction: float
    rounds: int


def asked(description: str | None, works: Sequence[str] = tuple(WORKS)) -> Task:
    """Read the command line of a peer."""
    ask = argparse.ArgumentParser(description=description)
    ask.add_argument("--work", choices=works, required=True)
    ask.add_argument("--rounds", type=int, default=3, help="timed rounds, after one of warm-up")
    ask.add_argument("--fraction", type=float, default=1.0, help="of the nodes; times are scaled")
    args = ask.parse_args()
    whole = WORKS[args.work]
    return Task(whole, whole.part(args.fraction), args.fraction, max(1, args.rounds))


def process_cpu_s() -> float:
    """User and system seconds of this process and of its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in both)


def tree_cpu_s() -> float:
    """User and system seconds of this process and of all that descend from it, running ones too."""
    spent: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended; its parent counts it
                continue
            spent[int(folder.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    total, todo = 0.0, [os.getpid()]
    while todo:
        pid = todo.pop()
        total += spent.get(pid, 0.0)
        todo += children.get(pid, [])
    return total


def peak_gflops() -> float:
    """Best speed of NumPy's product of two float32 matrices, by CPU time: what the core can do."""
    a = np.random.default_rng(0).random((PEAK_SIDE, PEAK_SIDE), dtype=np.float32)
    best = float("inf")
    for _ in range(PEAK_TRIES):
        start = time.process_time()
        a @ a
        best = min(best, time.process_time() - start)
    return 2 * PEAK_SIDE**3 / best / 1e9


class Watch:
    """Time rounds one by one; the first is the warm-up and does not count."""

    def __init__(self, cpu_s: Callable[[], float] = process_cpu_s) -> None:
        """Measure the core before anything else."""
        self._cpu_s = cpu_s
        self._laps: list[tuple[float, float, int]] = []
        self._losses: list[float] = []
        self._peak = peak_gflops()
        self._at = (0.0, 0.0)

    def start(self) -> None:
        """Begin a round."""
        self._at = (self._cpu_s(), time.perf_counter())

    def stop(self, examples: int) -> None:
        """End a round that worked through so many examples."""
        cpu, wall = self._cpu_s() - self._at[0], time.perf_counter() - self._at[1]
        self._laps.append((cpu, wall, examples))

    def loss(self, value: float) -> None:
        """Note the mean training loss before the first round and after each."""
        self._losses.append(float(value))

    def tell(self, peer: str, task: Task, packages: Sequence[str], note: str = "") -> None:
        """Print the line: medians of the timed rounds, scaled to all nodes."""
        examples = int(task.whole.sizes().sum())
        scale = examples / int(task.work.sizes().sum())
        cpu, wall, seen = zip(*self._laps[1:], strict=True)
        line = {
            "peer": peer,
            "work": task.whole.name,
            "cpu_s": round(scale * statistics.median(cpu), 4),
            "wall_s": round(scale * statistics.median(wall), 4),
            "rounds": len(cpu),
            "nodes": task.whole.nodes,
            "examples": examples,
            "batch": task.whole.batch,
            "fraction": task.fraction,
            "nodes_run": task.work.nodes,
            "examples_run": sorted(set(seen)),  # counted in every timed round
            "scaled_by": round(scale, 4),  # 1: nothing was scaled
            "cpu_s_rounds": [round(s, 4) for s in cpu],  # as measured, not scaled
            "wall_s_rounds": [round(s, 4) for s in wall],
            "warm_up_cpu_s": round(self._laps[0][0], 4),
            "loss_before": round(self._losses[0], 5),
            "loss_after_1": round(self._losses[1], 5),
            "loss_after_last": round(self._losses[-1], 5),
            "peak_gflops": [round(self._peak, 1), round(peak_gflops(), 1)],  # before and after
            "load": [round(n, 2) for n in os.getloadavg()],  # of the machine: is it ours alone?
            "versions": {
                "python": platform.python_version(),
                **{name: version(name) for name in ("numpy", *packages)},
            },
            "note": note,
        }
        sys.stdout.write(json.dumps(line) + "\n")
