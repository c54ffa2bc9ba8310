"""Run `coterie` with a clock around its parts, and say where the wall seconds of a run went.

Usage: python benchmarks/phases.py run FILE.toml -o DIR --workers 1. The last line of standard error
is JSON. Nothing is hooked into the package: methods are wrapped here, from outside.
"""

import functools
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.cli import main as coterie
from coterie.engine.vectorized import Vectorized
from coterie.runs import execute
from coterie.runs.checkpoint import Keeper
from coterie.runs.record import RunWriter


def begun() -> float:
    """Return when this process was born, by the clock of time.perf_counter."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.perf_counter() - age


BEGUN = begun()
spent: dict[str, float] = defaultdict(float)
first: dict[str, float] = {}
inside: list[str] = []


def timed(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what a function takes to a phase, but not what is timed inside it."""

    @functools.wraps(function)
    def wrapped(*args: Any, **rest: Any) -> Any:
        start = time.perf_counter()
        first.setdefault(phase, start - BEGUN)
        inside.append(phase)
        try:
            return function(*args, **rest)
        finally:
            inside.pop()
            took = time.perf_counter() - start
            spent[phase] += took
            if inside:
                spent[inside[-1]] -= took

    return wrapped


PARTS: list[tuple[type, str, str]] = [
    (Vectorized, "training", "advance"),
    *((Vectorized, "test scores", name) for name in ("evaluate", "score_nodes")),
    *((Vectorized, "training loss", name) for name in ("losses", "own_losses", "measure")),
    *((RunWriter, "records", name) for name in ("begin", "add", "finish", "write_progress")),
    *((RunWriter, "records", name) for name in ("write_grouping", "write_nodes")),
    (Keeper, "checkpoints", "keep"),
]


def main() -> None:
    """Run the command and print the phases; what is before the first local step is start-up."""
    for owner, phase, name in PARTS:
        setattr(owner, name, timed(phase, getattr(owner, name)))
    execute.prepare = timed("preparing", execute.prepare)  # type: ignore[attr-defined]
    try:
        coterie(sys.argv[1:])
    finally:
        told = {
            "total": time.perf_counter() - BEGUN,
            "until first step": first.get("training", 0.0),
            "imports": first.get("preparing", 0.0),
            **spent,
        }
        line = {name: round(seconds, 3) for name, seconds in told.items()}
        sys.stderr.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
