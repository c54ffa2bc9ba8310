"""`coterie bound`: on a small real experiment."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from coterie.config.files import load_experiment, make_config
from coterie.config.shipped import experiment_path
from coterie.engine.module import Nodes
from coterie.engine.task import TASKS
from coterie.theory.estimate import curvature
from coterie.theory.measure import stray
from coterie.theory.oracle import ModuleOracle, bend_of, linear_smoothness
from resuming import coterie
from tasked import dataset

OF = {"regression": "numbers", "binary": "sides", "multi-label": "tags"}

SMALL = (
    "[data]\nsample = 0.05\n[partition]\nkind = 'Dtt'\nnum_nodes = 10\nnum_edges = 10\n"
    "[algorithm]\nname = 'fedavg-ic'\nnum_groups = 2\ntau1 = 2\ntau2 = 2\n"
    "[train]\nsteps = 10\nlr = 0.005\nlr_decay = 1.0\n"
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_what_is_measured_stays_below_its_bound(small: Path, tmp_path: Path) -> None:
    picture, table = tmp_path / "b.png", tmp_path / "b.csv"
    done = coterie("bound", small, "-o", picture, "--csv", table)
    assert done.exit_code == 0, done.output
    assert "note:" not in done.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["t"] for row in rows] == [str(t) for t in range(2, 10)]  # planned after step 1
    apart, bound = (np.array([float(row[key]) for row in rows]) for key in ("apart", "bound"))
    assert (apart <= bound).all()
    assert apart[3] > 0.01 * bound[3] > 0
    found = stray(load_experiment(experiment_path(str(small)))[0])
    assert (found.gap <= found.gap_bound).all()
    assert (found.gap > 0).all()
    assert f"omega {found.omega:.4g}; Theorem 1 as printed" in " ".join(done.output.split())
    told, beta = found.trace, found.beta
    near = told.delta.max() / beta * ((1 + 0.005 * beta) ** 2 - 1)
    far = told.Delta.max() / beta * ((1 + 0.005 * beta) ** 4 - 1)
    by_hand = 1 / (2 * 4 * 0.005 * found.omega) + told.slope.max() * (near + far)
    assert found.theorem == pytest.approx(by_hand)
    firsts = found.gap_bound - told.slope[found.ends] * found.bound[found.ends]
    assert 1 / (2 * 4 * 0.005 * found.omega) == pytest.approx(firsts.max())


def test_json_has_the_constants_and_every_global_mean(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = coterie("bound", small, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    found = stray(load_experiment(experiment_path(str(small)))[0])
    assert (told["omega"], told["theorem"]) == (found.omega, found.theorem)
    assert [mean["step"] for mean in told["global_means"]] == [5, 9]
    assert [mean["gap_bound"] for mean in told["global_means"]] == found.gap_bound.tolist()
    assert [mean["apart"] for mean in told["global_means"]] == [
        found.trace.apart[end] for end in found.ends
    ]
    assert (told["least_loss"], told["notes"]) == (found.least, [])
    assert list(tmp_path.iterdir()) == [small]  # a picture only if asked for


@pytest.mark.parametrize("task", ["regression", "binary", "multi-label"])
def test_a_linear_model_is_convex_by_the_loss_of_every_task(task: str) -> None:
    content = {
        "data": {"name": f"tasked:{OF[task]}"},
        "model": {"name": "sr"},
        "partition": {"kind": "dirichlet", "num_nodes": 6, "num_edges": 2},
        "algorithm": {"name": "fedavg-ic", "num_groups": 2, "tau1": 2, "tau2": 2},
        "train": {"steps": 10, "lr": 0.02, "lr_decay": 1.0},
    }
    found = stray(make_config(content))
    assert found.notes == []
    assert (found.trace.apart <= found.bound).all()
    assert (found.gap <= found.gap_bound).all()


@pytest.mark.parametrize("task", ["regression", "binary", "multi-label", "classification"])
def test_the_curvature_of_a_linear_model_is_below_its_smoothness(task: str) -> None:
    data = dataset(task)
    model = nn.Linear(data.x.shape[1], data.width)
    nodes = Nodes(data.x, data.y, np.array([100, 140]))
    oracle = ModuleOracle(model, nodes, TASKS[task])
    bend = bend_of(model, TASKS[task], data.width)
    assert bend is not None
    rng = np.random.default_rng(0)
    bent = curvature(oracle, np.zeros(len(oracle.start)), rng).max()
    beta = linear_smoothness(nodes, bend)
    assert bent <= beta * (1 + 1e-9)
    if task != "classification":  # the bend is there at 0
        assert bent == pytest.approx(beta, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "said"),
    [("2nn", "2nn is not convex"), ("tasked:kinds_model", "tasked:kinds_model is not known to be")],
)
def test_a_model_that_may_not_be_convex_is_said(small: Path, model: str, said: str) -> None:
    words = ("--set", f"model.name={model}", "--set", "data.name=tasked:kinds", "--json")
    done = coterie("bound", small, *words, "--set", "data.sample=1.0")
    assert done.exit_code == 0, done.output
    assert any(note.startswith(said) for note in json.loads(done.stdout)["notes"])


def test_a_rate_that_is_too_high_is_said(small: Path) -> None:
    done = coterie("bound", small, "--set", "train.lr=0.5", "--set", "train.steps=5", "--json")
    assert any("eta is 0.5 and 1/beta 0.0" in note for note in json.loads(done.stdout)["notes"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("optimizer.momentum=0.9", "the bounds are about plain gradient descent"),
        ("algorithm.name=centralized", "centralized has no nodes that could stray"),
        ("train.steps=3", "train.steps must leave a global round of 4 steps"),
    ],
)
def test_what_has_no_bound_is_refused(small: Path, change: str, said: str, tmp_path: Path) -> None:
    done = coterie("bound", small, "--set", change, "-o", tmp_path / "b.png")
    assert done.exit_code == 2
    assert said in done.output
    assert not (tmp_path / "b.png").exists()
