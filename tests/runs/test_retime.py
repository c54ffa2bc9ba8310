"""Runs timed again by other clocks."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.config.files import make_config
from coterie.core.errors import ConfigError, RecordError
from coterie.runs.execute import execute
from coterie.runs.record import RecordedRun, read_run
from coterie.runs.retime import retime, write_retimed
from resuming import TINY, coterie

TIMES = {"seconds", "bytes_by_tier"}


def ran(folder: Path, **sections: dict[str, object]) -> RecordedRun:
    """A small run, made once for each folder."""
    settings = {**TINY, "train": {"steps": 7, "eval_every": 1}, **sections}
    execute(make_config(settings), folder)
    return read_run(folder)


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedavg", "tau2": 3},
        {"name": "hierfavg", "tau2": 3},
        {"name": "fedavg-ic", "tau2": 3, "num_groups": 3},
        {"name": "fedavg-ic", "tau2": 2, "num_groups": 3, "evidence": "sketch", "sketch_size": 8},
        {"name": "centralized"},
    ],
    ids=lambda a: "-".join(map(str, a.values())),
)
def test_the_same_clock_gives_the_same_run(tmp_path: Path, algorithm: dict[str, object]) -> None:
    run = ran(tmp_path / "run", algorithm=algorithm)
    again = retime(run, [])
    assert again.rows == run.rows
    assert again.summary == run.summary
    assert again.config == run.config


def test_another_clock_gives_what_a_run_by_it_would_have_given(tmp_path: Path) -> None:
    algorithm = {"name": "fedavg-ic", "grouping": "reference", "num_groups": 3, "tau2": 3}
    other: dict[str, object] = {
        "link_mbytes_per_s": 10.0,
        "combine": "searched",
        "procedure": "reference",
        "tcp": "ns-3.30",
    }
    slow: dict[str, object] = {"gflops": 0.5, "flops": "reference"}
    run = ran(tmp_path / "here", algorithm=algorithm)
    there = ran(tmp_path / "there", algorithm=algorithm, network=other, compute=slow)
    words = [f"network.{k}={v}" for k, v in other.items()]
    again = retime(run, [*words, *(f"compute.{k}={v}" for k, v in slow.items())])
    assert again.config == there.config
    assert len(again.rows) == len(there.rows) > 3
    for mine, theirs in zip(again.rows, there.rows, strict=True):
        assert {k: mine[k] for k in TIMES} == {k: theirs[k] for k in TIMES}
        assert mine["test_accuracy"] == theirs["test_accuracy"]
    kept = {k: v for k, v in there.summary.items() if k != "wall_s"}
    assert {k: v for k, v in again.summary.items() if k != "wall_s"} == kept
    assert again.summary["seconds"] > 5 * run.summary["seconds"]


def test_dropouts_are_the_same_by_any_clock_and_deadlines_are_not(tmp_path: Path) -> None:
    absent: dict[str, object] = {"fraction": 0.5, "dropout": 0.2}
    algorithm: dict[str, object] = {"name": "hierfavg", "tau2": 2}
    run = ran(tmp_path / "run", algorithm=algorithm, participation=absent)
    assert retime(run, []).rows == run.rows
    faster = retime(run, ["network.link_mbytes_per_s=1000"])
    assert [row["counted"] for row in faster.rows] == [row["counted"] for row in run.rows]
    assert faster.rows[-1]["seconds"] < run.rows[-1]["seconds"]
    late = ran(tmp_path / "late", algorithm=algorithm, participation={"deadline_s": 1.0})
    with pytest.raises(RecordError, match="other nodes might meet its deadline; run it again"):
        retime(late, ["compute.gflops=1e-6"])
    assert retime(late, ["network.latency_s=0.01"]).summary["steps"] == 7


def test_what_changes_the_training_is_refused(tmp_path: Path) -> None:
    run = ran(tmp_path / "run", algorithm={"name": "fedavg"})
    with pytest.raises(ConfigError, match=r"train\.lr changes the training; run it again"):
        retime(run, ["train.lr=0.5"])
    with pytest.raises(ConfigError, match=r"algorithm\.tau2 changes the training"):
        retime(run, ["algorithm.tau2=2", "network.link_mbytes_per_s=1"])
    again = ran(tmp_path / "again", algorithm={"name": "fedavg-ic", "regroup_every": 1, "tau2": 2})
    with pytest.raises(RecordError, match="regrouped on its way, so that it must be run again"):
        retime(again, ["network.link_mbytes_per_s=1"])


def test_a_clock_that_the_record_cannot_give_is_refused(tmp_path: Path) -> None:
    run = ran(tmp_path / "run", algorithm={"name": "fedavg"}, compute={"flops": "reference"})
    with pytest.raises(RecordError, match="charged as in the paper's simulator, and not counted"):
        retime(run, ["compute.flops=analytic"])


def test_a_record_that_lacks_something_is_refused_in_one_line(tmp_path: Path) -> None:
    run = ran(tmp_path / "run", algorithm={"name": "fedavg"})
    without = {k: v for k, v in run.summary.items() if k != "model_bytes"}
    with pytest.raises(RecordError, match="its record has no 'model_bytes', which timing needs"):
        retime(replace(run, summary=without), [])
    events = [{k: v for k, v in row.items() if k != "event"} for row in run.rows]
    with pytest.raises(RecordError, match="its record has no 'event', which timing needs"):
        retime(replace(run, rows=events), [])
    with pytest.raises(RecordError, match="its record cannot be timed"):
        retime(replace(run, summary={**run.summary, "model_bytes": 10**400}), [])
    with pytest.raises(RecordError, match="has 2 rows where 3 belong"):
        retime(replace(run, rows=run.rows[:-1]), [])


def test_retimed_runs_are_runs(tmp_path: Path) -> None:
    run = ran(tmp_path / "runs" / "a", algorithm={"name": "fedavg"})
    write_retimed(retime(run, ["network.link_mbytes_per_s=1"]), tmp_path / "slow")
    read = read_run(tmp_path / "slow")
    assert read.config["network"]["link_mbytes_per_s"] == 1.0
    assert read.meta["retimed"] == ["network.link_mbytes_per_s=1"]
    assert read.rows[-1]["seconds"] > run.rows[-1]["seconds"]
    with pytest.raises(RecordError, match="slow already holds a run"):
        write_retimed(run, tmp_path / "slow")


def test_the_command_times_folders_of_runs(tmp_path: Path) -> None:
    for name in ("fedavg", "hierfavg"):
        ran(tmp_path / "runs" / name, algorithm={"name": name})
    out = tmp_path / "slow"
    words = ["retime", tmp_path / "runs", "--set", "network.link_mbytes_per_s=1", "--out", out]
    done = coterie(*words)
    assert done.exit_code == 0, done.output
    assert "link_mbytes_per_s" not in done.output  # all have it, so nothing tells them apart
    assert {p.parent.name for p in out.rglob("rows.jsonl")} == {"fedavg", "hierfavg"}
    slow = json.loads((out / "fedavg" / "summary.json").read_text())
    assert slow["d_global"] > 10 * read_run(tmp_path / "runs" / "fedavg").summary["d_global"]
    again = coterie(*words)
    assert again.exit_code == 2
    assert "slow already holds a run; choose another --out" in again.output
    nothing = coterie("retime", tmp_path / "runs", "--out", tmp_path / "x")
    assert nothing.exit_code == 2
    assert "say what is to be different, such as --set network.link_mbytes_per_s=10" in (
        nothing.output
    )


def test_runs_may_be_called_otherwise_by_another_clock(tmp_path: Path) -> None:
    run = ran(tmp_path)
    made = retime(run, ["network.link_mbytes_per_s=10", "label=slow"])
    assert (run.config["label"], made.config["label"]) == ("", "slow")


def test_a_disk_that_is_full_on_the_way_leaves_no_run_and_the_same_command_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        ran(tmp_path / "runs" / name)
    out = tmp_path / "slow"
    words = ("retime", tmp_path / "runs", "--set", "network.link_mbytes_per_s=1", "--out", out)

    def full(path: Path, target: Path) -> None:
        if target.name == "summary.json" and target.parent.name == "b":
            raise OSError(28, "No space left on device")
        os.replace(path, target)  # noqa: PTH105

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        done = coterie(*words)
    assert done.exit_code == 2
    assert done.output.endswith("cannot be written (No space left on device)\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]
    assert coterie(*words).exit_code == 0
    assert {path.name for path in out.iterdir()} == {"a", "b"}
