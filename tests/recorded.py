"""Hand-made records of runs, for what reads them."""

from pathlib import Path
from typing import Any

from coterie.config.files import make_config
from coterie.runs.record import RecordedRun


def recorded(
    curve: list[tuple[float, float]],
    seed: int = 0,
    summary: dict[str, Any] | None = None,
    **sections: Any,
) -> RecordedRun:
    """A run that measured these accuracies at these seconds."""
    from dataclasses import asdict

    config = asdict(make_config({"seed": seed, **sections}))
    rows = [
        {"t": t, "epoch": float(t), "seconds": seconds, "event": "global", "test_accuracy": seen}
        for t, (seconds, seen) in enumerate(curve)
    ]
    told = {
        "status": "complete",
        "steps": len(curve) - 1,
        "test_accuracy": curve[-1][1],
        "val_accuracy": curve[-1][1],
        "seconds": curve[-1][0],
        "d_local": 0.0,
        "d_group": 0.1,
        "d_global": 0.2,
        "Delta": 0.5,
        "Delta_first": 0.4,
        "delta": 1.0,
        "group_sizes": [2, 2],
        **(summary or {}),
    }
    grouping = {"z": [0, 0, 1, 1], "class_counts": [[1, 0], [0, 1], [1, 0], [0, 1]]}
    name = f"{config['algorithm']['name']}-{seed}"
    return RecordedRun(Path(name), config, {"versions": {}}, rows, told, grouping)
