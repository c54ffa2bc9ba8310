"""Runs that a neighbouring sweep has are copied: as they are, once, and only complete ones."""

import json
from pathlib import Path

import pytest

from coterie.config.files import expand
from coterie.runs.record import find_runs
from coterie.runs.sweep import place_jobs
from coterie.runs.sweep.taking_over import had_beside, take_over
from resuming import coterie

BASE = (
    "[data]\nsample = 0.1\n[partition]\nkind = 'Dtt'\nnum_nodes = 10\nnum_edges = 10\n"
    "[train]\nsteps = {steps}\n[network]\ncombine = 'all'\n"
)
FIRST = BASE + "[sweep]\nalgorithm = [{{name = 'fedavg'}}, {{name = 'hierfavg'}}]\n"
SECOND = BASE + (
    "[sweep]\nalgorithm = [{{name = 'fedavg', label = 'other'}}, "
    "{{name = 'fedavg-ic', grouping = 'reference', num_groups = 2}}]\n"
)


def write(path: Path, text: str, steps: int = 5) -> Path:
    path.write_text(text.format(steps=steps))
    return path


def test_a_reproduction_copies_what_its_neighbour_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "runs" / "first", tmp_path / "runs" / "second"
    file = write(tmp_path / "first.toml", FIRST)
    assert coterie("sweep", file, "--out", first, "--jobs", 1).exit_code == 0
    file = write(tmp_path / "second.toml", SECOND)
    monkeypatch.setattr("coterie.cli.sweeps.experiment_path", lambda _: file)
    words = ["reproduce", "efficiency", "--out", second, "--jobs", 1]
    done = coterie(*words)
    assert done.exit_code == 0, done.output
    assert "1 of 2 runs: complete in a folder beside" in done.output
    (copied,) = (path for path in second.glob("*fedavg*") if "ic" not in path.name)
    (source,) = (path for path in first.glob("*fedavg*") if "hier" not in path.name)
    for name in ("rows.jsonl", "summary.json", "grouping.json", "model.safetensors"):
        assert (copied / name).read_bytes() == (source / name).read_bytes()
    assert 'label = "other"' in (copied / "config.toml").read_text()
    runs, left_out = find_runs([second])
    assert not left_out
    assert {run.config["label"] for run in runs} == {"other", ""}
    assert {run["folder"] for run in json.loads((second / "runs.json").read_text())["runs"]} == {
        run.folder.name for run in runs
    }
    again = coterie(*words)
    assert again.exit_code == 0, again.output
    assert "2 of 2 runs: complete already" in again.output
    assert "complete in a folder beside" not in again.output


def test_runs_with_other_settings_or_not_complete_are_not_copied(tmp_path: Path) -> None:
    first = tmp_path / "runs" / "first"
    file = write(tmp_path / "first.toml", FIRST)
    assert coterie("sweep", file, "--out", first, "--jobs", 1).exit_code == 0
    longer = {"train": {"steps": 6}, "network": {"combine": "all"}}
    small = {"data": {"sample": 0.1}, "algorithm": {"name": "fedavg"}}
    nodes = {"kind": "Dtt", "num_nodes": 10, "num_edges": 10}
    second = tmp_path / "runs" / "second"
    sweep = {"sweep": {"seed": [0, 1]}}
    jobs = place_jobs(expand({**longer, **small, "partition": nodes, **sweep}), second)
    assert take_over(jobs, second) == 0
    assert not second.exists()
    same = {**longer, "train": {"steps": 5}}
    jobs = place_jobs(expand({**same, **small, "partition": nodes, **sweep}), second)
    assert len(had_beside(jobs, second)) == 1
    (source,) = (path for path in first.glob("*fedavg*") if "hier" not in path.name)
    for name, text in {
        "meta.json": '{"retimed": ["network.combine=all"]}',
        "config.toml": (source / "config.toml").read_text().replace("steps = 5", "steps = 6"),
    }.items():
        kept = (source / name).read_text()
        (source / name).write_text(text)
        assert had_beside(jobs, second) == {}
        (source / name).write_text(kept)
    assert len(had_beside(jobs, second)) == 1
    (source / "summary.json").write_text('{"status": "diverged"}')
    assert take_over(jobs, second) == 0
    assert not second.exists()


def test_a_neighbour_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "runs" / "odd").mkdir(parents=True)
    (tmp_path / "runs" / "odd" / "runs.json").write_text("nothing")
    second = tmp_path / "runs" / "second"
    jobs = place_jobs(expand({"sweep": {"seed": [0, 1]}}), second)
    assert take_over(jobs, second) == 0
    assert not second.exists()
