"""Whole runs by either engine: the same events, groups, seconds and losses."""

from pathlib import Path

import numpy as np
import pytest

from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.simulation.loop import rounds
from coterie.simulation.state import State

OWN = """
from torch import nn
def make(n_classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(),
        nn.Linear(16, n_classes),
    )
"""


def run(model: str, engine: str, steps: int, threads: int = 1) -> list[State]:
    """Take steps on ten nodes of a tenth of the data, or less, in double precision."""
    config = make_config(
        {
            "data": {"sample": 0.02 if model == "cnn" else 0.1},
            "partition": {"kind": "dirichlet", "alpha": 0.3, "num_nodes": 10, "num_edges": 2}
            | {"min_partition_size": 6},
            "model": {"name": model},
            "algorithm": {"num_groups": 2, "tau2": 3},
            "train": {"steps": steps, "lr": 0.02, "batch_size": 32, "engine": engine}
            | {"threads": threads, "precision": "float64"},
        }
    )
    return list(rounds(prepare(config).problem))


@pytest.mark.parametrize(
    ("model", "steps"), [("sr", 10), ("2nn", 10), ("cnn", 2), ("own_module:make", 10)]
)
def test_runs_are_the_same_by_either_engine(
    model: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "cache"))
    fast, plain = run(model, "vectorized", steps, 2), run(model, "sequential", steps)
    assert len(fast) == len(plain) == steps + 1
    for a, b in zip(fast, plain, strict=True):
        assert (a.row.t, a.row.event, a.row.seconds) == (b.row.t, b.row.event, b.row.seconds)
        assert a.row.group_sizes == b.row.group_sizes
        if a.groups and b.groups:
            assert np.array_equal(a.groups.grouping.z, b.groups.grouping.z)
        if b.row.train_loss is not None:
            assert a.row.train_loss == pytest.approx(b.row.train_loss, rel=1e-9)
            assert a.row.test_loss == pytest.approx(b.row.test_loss, rel=1e-9)
    assert plain[-1].groups is not None
