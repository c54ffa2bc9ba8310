"""What tests of tracking share."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import own_tracker
from coterie.trackers.values import figures
from resuming import PATIENCE_S


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a tracker of our own, nothing that reaches a server, and patience."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys.modules["coterie.trackers.process"], "PATIENCE_S", PATIENCE_S)
    (folder / "own_tracker.py").write_bytes(Path(own_tracker.__file__).read_bytes())
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def recorded(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def summary(folder: Path) -> dict[str, float]:
    return figures(json.loads((folder / "summary.json").read_text()))
