"""A planner that holds a run in its middle until a test lets it go, however long that takes.

It is `held:plan` in an experiment file, and holds where the environment's HELD names a folder: from
the second plan of a process on, it leaves a file `held-N` there and waits for `go-N` or `go`.
"""

import os
import time
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from coterie.grouping import Evidence, Grouping, Planner, with_servers

EVERY = 3  # global means from one plan to the next
ROWS = 6  # of a run with tau1 = 1 and tau2 = 2 when it is held first: steps 0 to 5
ALGORITHM: dict[str, Any] = {"name": "fedavg-ic", "grouping": "held:plan", "regroup_every": EVERY}
NAMED = ("--set", f"algorithm.grouping={ALGORITHM['grouping']}")  # again, as --resume wants it
HELD = "HELD"
FORGOTTEN_S = 3600.0


def planner(folder: str | Path | None) -> Planner:
    """Return a planner that deals the nodes in turn, when that is allowed in a folder."""
    plans = count(1)

    def plan(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        number = next(plans)
        if folder and number > 1:
            here = Path(folder)
            (here / f"held-{number}").touch()
            forgotten = time.monotonic() + FORGOTTEN_S
            while not any((here / name).exists() for name in ("go", f"go-{number}")):
                assert time.monotonic() < forgotten, "the test has ended"
                time.sleep(0.01)
        return with_servers(np.arange(len(evidence.p)) % evidence.num_groups, evidence)

    return plan


plan = planner(os.environ.get(HELD))


def write_module(folder: Path, name: str) -> dict[str, Any]:
    """Write a module whose planner holds wherever it is imported; return the algorithm by it."""
    (folder / f"{name}.py").write_text(f"import held\nplan = held.planner({str(folder)!r})\n")
    return {**ALGORITHM, "grouping": f"{name}:plan"}


def let_go(folder: Path, number: int | None = None) -> None:
    """Let one plan be made, or all to come."""
    (folder / ("go" if number is None else f"go-{number}")).touch()
