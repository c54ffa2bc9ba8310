"""Every algorithm in a small run of its own; as a program, one on Ray that kills itself.

python variants.py NAME FOLDER    train on two actors, and die by SIGKILL after some rows
"""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.config.files import make_config
from coterie.config.settings import Config
from coterie.runs.execute import execute

ROWS = 3  # of a run that kills itself
EACH: dict[str, dict[str, Any]] = {
    "fedprox": {"name": "fedprox", "groups": "edge"},
    "scaffold": {"name": "scaffold", "groups": "edge"},
    "feddyn": {"name": "feddyn", "groups": "edge"},
    "fednova": {"name": "fednova"},
    "fedavgm": {"name": "fedavgm", "groups": "edge"},
    "fedadam": {"name": "fedadam"},
    "fedyogi": {"name": "fedyogi", "groups": "edge"},
    "fedper": {"name": "fedper", "groups": "edge"},
    "ditto": {"name": "ditto", "groups": "edge"},
    "ifca": {"name": "ifca", "num_groups": 3},
    "fedbn": {"name": "fedbn", "groups": "edge"},
    "hier-fedprox": {"name": "hier-fedprox", "groups": "edge"},
    "hier-scaffold": {"name": "hier-scaffold", "groups": "edge"},
    "hier-scaffold, regrouped": {
        "name": "hier-scaffold",
        "groups": "search",
        "num_groups": 3,
        "regroup_every": 1,
        "grouping": "random",
    },
    "fedavg, never": {"name": "fedavg", "groups": "edge", "tau2": "never"},
    "ditto, never": {"name": "ditto", "groups": "edge", "tau2": "never"},
    "hier-scaffold, never": {"name": "hier-scaffold", "groups": "edge", "tau2": "never"},
    "ifca, never": {"name": "ifca", "num_groups": 2, "tau2": "never"},
}


def variant(which: str) -> Config:
    """Ten nodes of unequal sizes under three edges, of which four in five take part."""
    return make_config(
        {
            "data": {"sample": 0.1},
            "partition": {"kind": "dirichlet", "num_nodes": 10, "num_edges": 3}
            | {"min_partition_size": 6},
            "model": {"name": f"own_nets:{'normed' if which == 'fedbn' else 'two_layers'}"},
            "algorithm": {"tau1": 1, "tau2": 3, **EACH[which]},
            "train": {"steps": 8, "lr": 0.05, "batch_size": 20, "measure_groups": True},
            "participation": {"fraction": 0.8},
        }
    )


def on_ray(which: str, actors: int) -> Config:
    """Return a variant that trains on so many actors."""
    what = variant(which)
    ray = replace(what.ray, actors=actors, object_store_mbytes=100)
    return replace(what, train=replace(what.train, engine="ray"), ray=ray)


def main() -> None:
    """Train until some rows are kept, and die."""
    rows = 0

    def count(_: object) -> None:
        nonlocal rows
        rows += 1
        if rows == ROWS:
            os.kill(os.getpid(), signal.SIGKILL)

    what = on_ray(sys.argv[1], 2)
    execute(what, Path(sys.argv[2]), on_state=count, checkpoint_every_s=0, threads=1)


if __name__ == "__main__":
    main()
