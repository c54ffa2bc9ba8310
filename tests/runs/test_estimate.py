"""How long runs will take: what they go through, counted by hand, and what a command says."""

from pathlib import Path

import pytest

from coterie.config.files import make_config
from coterie.data import load
from coterie.runs.sweep.estimate import Passes, Speeds, core_seconds, measured_speeds, passes_of
from resuming import coterie


def passes(**sections: object) -> Passes:
    return passes_of(make_config({"train": {"steps": 10}, **sections}), 1000)


def test_passes_are_as_worked_by_hand() -> None:
    # 600 examples on 100 nodes, 200 to test on; rows at t = 0, 5 and 10, and one in ten has losses
    assert passes(algorithm={"name": "fedavg"}) == Passes(6000, 1.3 * 600 + 3 * 200, 0)
    assert passes(algorithm={"name": "hierfavg"}) == Passes(6000, 3 * 200, 1.3 * 600)
    assert passes(algorithm={"name": "fedavg-ic"}) == Passes(6000, 3 * 200, 2.3 * 600)
    twice = {"steps": 10, "measure": ["accuracy", "Delta/10", "loss"]}
    assert passes(algorithm={"name": "hierfavg"}, train=twice).scored == pytest.approx(
        3 * 200 + (4 - 1.3) * 600
    )


def test_batches_that_are_drawn_anew_and_half_the_nodes_are_counted() -> None:
    anew = {"steps": 10, "batch_size": 4, "sampling": "reference"}
    assert passes(train=anew).trained == 10 * 100 * 8  # two batches of four of six examples
    assert passes(participation={"fraction": 0.5}).trained == 3000
    assert passes(data={"sample": 0.5}).trained == 3000


def test_speeds_are_of_this_machine_and_measured_once_for_every_kind() -> None:
    config = make_config({"model": {"name": "2nn"}, "train": {"steps": 10}})
    dataset = load("mnist-f-mini")
    speeds = measured_speeds(config, dataset)
    assert 0 < speeds.score_s < speeds.train_s < 1e-2
    assert 0 < speeds.measure_s < 1e-2
    known: dict[object, Speeds] = {}
    one = core_seconds([config], lambda _: dataset, known)
    assert core_seconds([config] * 3, lambda _: dataset, known) == pytest.approx(3 * one)
    assert len(known) == 1


def test_an_estimate_is_of_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "efficiency.toml"
    path.write_text(
        "[data]\nsample = 0.1\n[partition]\nnum_nodes = 10\nnum_edges = 10\n[train]\nsteps = 5\n"
        "[sweep]\nalgorithm = [{name = 'fedavg'}, {name = 'hierfavg'}]\n"
    )
    monkeypatch.setattr("coterie.cli.sweeps.experiment_path", lambda _: path)
    words = ["reproduce", "efficiency", "--out", tmp_path / "runs"]
    said = coterie(*words, "--estimate")
    assert said.exit_code == 0, said.output
    assert counted(said.output) == ["efficiency", "2", "2"]
    assert not (tmp_path / "runs").exists()
    done = coterie(*words, "--only", "algorithm.name=fedavg", "--jobs", 1)
    assert done.exit_code == 0, done.output
    assert counted(coterie(*words, "--estimate").output) == ["efficiency", "2", "1"]
    both = coterie(*words, "--estimate", "--no-run")
    assert both.exit_code == 2
    assert "--no-run and --estimate exclude each other" in both.output


def counted(output: str) -> list[str]:
    """The row of the experiment, without its hours."""
    (line,) = [line for line in output.splitlines() if line.strip().startswith("efficiency ")]
    *cells, hours = line.split()
    assert float(hours) >= 0
    return cells
