"""Runs made by hand: figures that can be worked out, and no training."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.config.files import make_config, to_toml
from coterie.runs.record import RecordedRun

NODES, EDGES, GROUPS, CLASSES = 20, 10, 4, 10
VERSIONS = {"python": "3.11.7", "coterie": "0.1.0", "numpy": "2.0.0", "torch": "2.4.0"}


def made_run(
    folder: Path,
    algorithm: str = "fedavg",
    seed: int = 0,
    accuracies: Sequence[float] = (0.1, 0.5, 0.7),
    step_s: float = 1.0,
    Delta: float = 0.5,
    group_s: float = 0.2,
    settings: dict[str, dict[str, Any]] | None = None,
    names: Sequence[str] = (),
    version: str = "0.1.0",
) -> RecordedRun:
    """A run that measures one of the accuracies at every step, `step_s` simulated seconds apart."""
    wanted: dict[str, Any] = {
        "seed": seed,
        "partition": {"num_nodes": NODES, "num_edges": EDGES},
        "algorithm": {"name": algorithm, "num_groups": GROUPS},
        "train": {"steps": len(accuracies) - 1},
    }
    for section, values in (settings or {}).items():
        wanted[section] = {**wanted.get(section, {}), **values}
    grouped = algorithm not in ("fedavg", "centralized")
    n = int(wanted["partition"]["num_nodes"])
    z = [i % GROUPS if grouped else 0 for i in range(n)]
    rows = [
        {
            "t": t,
            "epoch": float(t),
            "seconds": step_s * t,
            "event": "global" if t else "start",
            "train_loss": 2.0 - accuracy,
            "test_loss": 2.1 - accuracy,
            "test_accuracy": accuracy,
            "Delta": Delta if grouped else 0.0,
            "delta": 2 * Delta,
            "group_sizes": [z.count(k) for k in range(max(z) + 1)],
            "bytes_by_tier": {"access": 100 * t, "pod": 50 * t},
            "counted": n,
            "wall_s": 0.1 * t,
        }
        for t, accuracy in enumerate(accuracies)
    ]
    summary = {
        "status": "complete",
        "steps": len(rows) - 1,
        "test_accuracy": accuracies[-1],
        "val_accuracy": accuracies[-1],
        "train_loss": 2.0 - accuracies[-1],
        "seconds": rows[-1]["seconds"],
        "compute_s": 1.0,
        "group_s": 2.0 if grouped else 0.0,
        "global_s": 3.0,
        "grouping_s": 0.5 if grouped else 0.0,
        "d_local": 0.01,
        "d_group": group_s if grouped else None,
        "d_global": 0.3,
        "Delta": Delta if grouped else 0.0,
        "Delta_first": Delta if grouped else 0.0,
        "delta": 2 * Delta,
        "group_sizes": rows[-1]["group_sizes"],
        "bytes_by_tier": rows[-1]["bytes_by_tier"],
        "wall_s": 1.0,
    }
    counts = [[10 * (i % CLASSES == c) for c in range(CLASSES)] for i in range(n)]
    grouping = {
        "z": z,
        "servers": [z.index(k) for k in range(max(z) + 1)],
        "cost_trace": [1.0],
        "edge_of": [i * EDGES // n for i in range(n)],
        "class_counts": counts,
        "nodes": list(names),
        "edges": [],
    }
    config = tomllib.loads(to_toml(make_config(wanted)))
    meta = {"seed": seed, "versions": {**VERSIONS, "coterie": version}, "commit": "0123abc"}
    return RecordedRun(folder, config, meta, rows, summary, grouping)


def write_run(run: RecordedRun) -> Path:
    """Write a run as the folder it says, and return the folder."""
    import tomli_w

    run.folder.mkdir(parents=True)
    (run.folder / "config.toml").write_text(tomli_w.dumps(run.config))
    (run.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in run.rows))
    for name in ("meta", "summary", "grouping"):
        (run.folder / f"{name}.json").write_text(json.dumps(getattr(run, name)))
    return run.folder
