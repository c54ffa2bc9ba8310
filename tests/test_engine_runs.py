"""Whole runs by either engine: the same events, groups, seconds and losses."""

from pathlib import Path

import numpy as np
import pytest

from coterie.config import make_config
from coterie.prepare import prepare
from coterie.run import State, rounds

OWN = """
from torch import nn
def make(n_classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(),
        nn.Linear(16, n_classes),
    )
"""


def run(model: str, engine: str, threads: int) -> list[State]:
    """Take ten steps on ten nodes of a tenth of the data."""
    config = make_config(
        {
            "data": {"sample": 0.1},
            "partition": {"kind": "dirichlet", "alpha": 0.3, "num_nodes": 10, "num_edges": 2}
            | {"min_partition_size": 6},
            "model": {"name": model},
            "algorithm": {"num_groups": 2, "tau2": 3},
            "train": {"steps": 10, "lr": 0.02, "batch_size": 32, "engine": engine}
            | {"threads": threads},
        }
    )
    return list(rounds(prepare(config).problem))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("model", ["sr", "2nn", "cnn", "own_module:make"])
def test_runs_are_the_same_by_either_engine(
    model: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "cache"))
    fast, plain = run(model, "vectorized", threads), run(model, "sequential", 1)
    assert len(fast) == len(plain) == 11
    for a, b in zip(fast, plain, strict=True):
        assert (a.row.t, a.row.event, a.row.seconds) == (b.row.t, b.row.event, b.row.seconds)
        assert a.row.group_sizes == b.row.group_sizes
        if a.groups and b.groups:
            assert np.array_equal(a.groups.grouping.z, b.groups.grouping.z)
        if b.row.train_loss is not None:
            assert a.row.train_loss == pytest.approx(b.row.train_loss, rel=1e-5)
            assert a.row.test_loss == pytest.approx(b.row.test_loss, rel=1e-5)
    assert plain[-1].groups is not None
