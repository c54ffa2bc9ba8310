"""Sweeps that are begun again, grow, are done in parts, and choose settings."""

import json
from pathlib import Path

import pytest

from coterie.config import expand, selected_by
from coterie.errors import ConfigError, RecordError
from coterie.record import RecordedRun, find_runs
from coterie.selection import rank
from coterie.sweep import place_jobs, sweep_folder
from recorded import recorded
from resuming import coterie

BASE = (
    "[data]\nsample = 0.1\n[partition]\nnum_nodes = 10\nnum_edges = 10\n"
    "[algorithm]\nname = 'fedavg'\n[train]\nsteps = 5\n"
)


def test_a_sweep_does_what_is_left_and_nothing_twice(tmp_path: Path) -> None:
    file, out = tmp_path / "my.toml", tmp_path / "out"
    file.write_text(BASE + "[sweep]\nseed = [0, 1]\n")
    words = ["sweep", file, "--out", out, "--jobs", 1]
    first = coterie(*words, "--only", "seed=1")
    assert first.exit_code == 0, first.output
    assert {p.parent.name for p in out.rglob("summary.json")} == {"seed1"}
    before = (out / "seed1" / "summary.json").stat().st_mtime_ns
    file.write_text(BASE + "[sweep]\nseed = [0, 1, 2]\n'train.lr' = [0.1, 0.2]\n")
    grown = coterie(*words)
    assert grown.exit_code == 0, grown.output
    assert "1 of 6 runs: complete already" in grown.output
    assert (out / "seed1" / "summary.json").stat().st_mtime_ns == before
    runs, left_out = find_runs([out])
    assert not left_out
    found = sorted((run.config["seed"], run.config["train"]["lr"]) for run in runs)
    assert found == [(seed, lr) for seed in (0, 1, 2) for lr in (0.1, 0.2)]
    told = json.loads((out / "runs.json").read_text())["runs"]
    assert len(told) == len({run["folder"] for run in told}) == 6


def test_a_folders_name_that_is_taken_by_other_settings_gets_a_number(tmp_path: Path) -> None:
    (one,) = expand({})
    jobs = place_jobs([one], tmp_path)
    with sweep_folder(tmp_path, jobs):
        (tmp_path / "fedavg-ic").mkdir()
        (tmp_path / "fedavg-ic" / "rows.jsonl").touch()
    (other,) = expand({"train": {"lr": 0.5}})
    assert place_jobs([one, other], tmp_path)[0].label == "fedavg-ic"
    assert [job.label for job in place_jobs([other], tmp_path)] == ["fedavg-ic-2"]


def test_two_sweeps_cannot_share_a_folder_at_a_time(tmp_path: Path) -> None:
    first, second = place_jobs(expand({"sweep": {"seed": [0, 1]}}), tmp_path)
    with (
        sweep_folder(tmp_path, [first]),
        pytest.raises(RecordError, match="another process is running it"),
        sweep_folder(tmp_path, [second]),
    ):
        pass


def test_what_only_does_not_find_is_said(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(BASE + "[sweep]\nseed = [0, 1]\n")
    done = coterie("sweep", file, "--only", "seed=7", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "--only seed=7: no run has it; seed is 0, 1 here" in done.output
    done = coterie("sweep", file, "--only", "sed=7", "--out", tmp_path / "out")
    assert "--only: unknown setting 'sed'; did you mean 'seed'?" in done.output
    assert not (tmp_path / "out").exists()


def test_settings_are_chosen_by_the_validation_part(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(
        BASE + "[sweep]\nselect = 'val_accuracy'\n'train.lr' = [0.0001, 0.1]\nseed = [0, 1]\n"
    )
    done = coterie("sweep", file, "--out", tmp_path / "out", "--jobs", 1)
    assert done.exit_code == 0, done.output
    assert "best: --set train.lr=0.1" in done.output
    lines = [line.split() for line in done.output.splitlines()]
    assert [line[0] for line in lines if line and line[-1] == "2"] == ["0.1", "0.0001"]


def test_a_candidate_that_lost_a_seed_comes_after_the_others() -> None:
    def run(lr: float, seed: int, val: float) -> RecordedRun:
        return recorded([(0, 0.1), (1, val)], seed, train={"lr": lr})

    runs = [run(0.1, 0, 0.6), run(0.1, 1, 0.8), run(1.0, 0, 0.9)]
    found = rank(runs, "val_accuracy")
    assert [(c.settings, round(c.value, 6), c.seeds) for c in found] == [
        ({"train.lr": 0.1}, 0.7, 2),
        ({"train.lr": 1.0}, 0.9, 1),
    ]


def test_a_complete_run_of_other_settings_is_not_taken_for_this_one(tmp_path: Path) -> None:
    file, out = tmp_path / "my.toml", tmp_path / "out"
    file.write_text(BASE + "[sweep]\nseed = [0, 1]\n")
    assert coterie("sweep", file, "--out", out, "--jobs", 1).exit_code == 0
    (out / "runs.json").unlink()
    done = coterie("sweep", file, "--set", "train.lr=0.5", "--out", out, "--jobs", 1)
    assert done.exit_code == 2
    assert "seed0: its config.toml differs: train.lr is 0.1 and was 0.5; put it back" in done.output


def test_the_test_part_cannot_choose() -> None:
    with pytest.raises(ConfigError, match=r"sweep\.select must be one of val_accuracy, train_loss"):
        selected_by({"sweep": {"select": ["val_accuracy"]}})
    with pytest.raises(ConfigError, match="what is chosen by the test part cannot be tested"):
        expand({"sweep": {"select": "test_accuracy", "seed": [0]}})
