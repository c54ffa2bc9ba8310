"""Turns of a contest: who runs which case on how many cores, kept in a file, the least counts."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from case import Case
from cases import run

SLOW = ("flower",)  # has one turn, on all cores, unless it is asked for alone
Line = dict[str, Any]


class Kept:
    """What was measured before, and what is being measured, in a file of JSON lines if given."""

    def __init__(self, path: Path | None) -> None:
        """Read what is there."""
        self._path, self.lines = path, list[Line]()
        if path is not None and path.is_file():
            self.lines = [json.loads(line) for line in path.read_text().splitlines()]

    def find(self, case: Case, who: str, cores: int, turn: int = 0) -> Line | None:
        """Return what was measured of a case by somebody in a turn."""
        wanted = {"of": asdict(case), "who": who, "cores": cores, "turn": turn}
        return next((a for a in self.lines if {k: a.get(k) for k in wanted} == wanted), None)

    def add(self, line: Line) -> None:
        """Keep a line."""
        self.lines.append(line)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def measure(case: Case, who: str, cores: int, turn: int, kept: Kept) -> Line | None:
    """Run a case, unless that was done; say how it went. None if it failed."""
    line = kept.find(case, who, cores, turn)
    if line is None:
        started = time.strftime("%H:%M:%S")
        try:
            line = run(who, case, cores) | {"of": asdict(case), "turn": turn}
        except (RuntimeError, subprocess.CalledProcessError) as error:
            say(f"{started} {case.name} {who}: FAILED: {error}")
            return None
        kept.add(line)
        say(
            f"{started} {case.name}, {case.rounds} rounds, {who}, {cores} cores, turn {turn + 1}: "
            f"CPU {line['cpu_s']:.1f} s, wall {line['wall_s']:.1f} s, "
            f"loss {line['loss']:.4f}, load {line['load'][0]}"
        )
    return line


def say(line: str) -> None:
    """Tell how it goes, beside the table."""
    print(line, file=sys.stderr, flush=True)


def turns(
    case: Case, who: Sequence[str], number: int, kept: Kept, cores: Iterable[int]
) -> dict[tuple[str, int], list[Line]]:
    """Give everybody turns on each number of cores; return what was measured, by both."""
    found: dict[tuple[str, int], list[Line]] = {}
    wanted = list(cores)
    for turn in range(number):
        for name in who:
            slow = name in SLOW and len(who) > 1
            if slow and turn:
                continue
            for n in [max(wanted)] if slow else wanted:
                line = measure(case, name, n, turn, kept)
                if line is not None:
                    found.setdefault((name, n), []).append(line)
    return found


def least(lines: Sequence[Line], key: str) -> float:
    """Return the least of several turns."""
    return min(float(line[key]) for line in lines)


def quickest(lines: Sequence[Line], key: str) -> Line:
    """Return the turn that took least."""
    return min(lines, key=lambda line: float(line[key]))


def spread(lines: Sequence[Line], key: str) -> str:
    """Return most over least, where there were several turns."""
    values = [float(line[key]) for line in lines]
    return f"{max(values) / min(values):.2f}" if len(values) > 1 else "-"


def machine() -> str:
    """Say where this is."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return f"{cpu}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"
