"""`coterie fair`: trials on the validation part, the best on the test part, and where it stops."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coterie.cli import main
from coterie.cli.running import run_all
from coterie.runs.record import read_run

TINY = """
[partition]
kind = "iid"
num_nodes = 6
num_edges = 2
[train]
steps = 10
lr = 0.5
[network]
topology = "edge-cloud"
link_mbytes_per_s = 1
access_mbytes_per_s = 10
"""
FEW = ("--methods", "fedavg,coterie+combined", "--trials", "3", "--seeds", "2", "--jobs", "1")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def fair(*words: str) -> Result:
    return CliRunner().invoke(main, ["fair", *words])


def told(folder: Path) -> Any:
    return json.loads((folder / "fair.json").read_text())


def stopped_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C come at the beginning of a round."""
    rounds: list[int] = []

    def run_or_stop(*args: Any, **more: Any) -> None:
        rounds.append(1)
        if len(rounds) == number:
            raise KeyboardInterrupt
        run_all(*args, **more)

    monkeypatch.setattr(sys.modules["coterie.cli.fair"], "run_all", run_or_stop)


def test_all_have_as_many_trials_on_the_validation_part_and_other_seeds_on_the_test_part(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is stopped on the way; given once more, it has nothing to run."""
    words = ("tiny.toml", "--target-accuracy", "0.3", *FEW)
    folder = tiny.parent / "runs" / "fair-tiny"
    with monkeypatch.context() as patch:
        stopped_at(2, patch)
        stopped = fair(*words)
    assert stopped.exit_code == 130
    assert "coterie: stopped; go on with: coterie fair tiny.toml --target" in stopped.output
    assert not (folder / "fair.json").exists()
    done = fair(*words)
    assert done.exit_code == 0, done.output
    assert "search, round 1" in done.output
    runs = [read_run(path.parent) for path in folder.rglob("summary.json")]
    kinds = [
        (run.config["label"], run.config["data"]["scored"], run.config["seed"]) for run in runs
    ]
    for name in ("fedavg", "coterie+combined"):
        assert sorted(kind[1:] for kind in kinds if kind[0] == name) == [
            *(("test", seed) for seed in (1, 2)),
            *[("val", 0)] * 3,
        ]
    how = {run.config["label"]: run.config["network"]["combine"] for run in runs}
    assert how == {"fedavg": "none", "coterie+combined": "all"}
    found = told(folder)["test_accuracy"]
    assert {each["method"] for each in found["methods"]} == set(how)
    assert (folder / "fair.png").exists()
    first = {path: path.stat().st_mtime_ns for path in folder.rglob("rows.jsonl")}
    again = fair(*words)
    assert again.exit_code == 0, again.output
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("rows.jsonl")} == first
    assert told(folder)["test_accuracy"] == found


def test_a_target_out_of_reach_is_said_in_the_table_and_in_words(tiny: Path) -> None:
    few = ("--methods", "fedavg", "--trials", "1", "--seeds", "1", "--jobs", "1")
    done = fair(str(tiny), "--target-accuracy", "1", "--set", "train.steps=3", *few)
    assert done.exit_code == 0, done.output
    assert "never" in done.output
    assert "no method reaches accuracy 100.0% on every seed" in done.output
    assert "note: fedavg: 4 neighbours of the best were not tried" in done.output


def test_seeds_too_few_to_tell_are_said_with_how_many_would(tiny: Path) -> None:
    """A target on the way of both, with other data on every seed."""
    skew = ("partition.kind=dirichlet", "partition.alpha=0.3", "train.steps=25")
    sets = [word for one in skew for word in ("--set", one)]
    few = ("--methods", "fedavg,hierfavg", "--trials", "3", "--seeds", "3", "--jobs", "1")
    done = fair(str(tiny), "--target-accuracy", "0.5", *sets, *few)
    assert done.exit_code == 0, done.output
    found = told(tiny.parent / "runs" / "fair-tiny")["test_accuracy"]
    (other,) = found["verdict"]["others"]
    assert not other["outside"] and other["times"]["low"] < 1 < other["times"]["high"]
    assert other["seeds"] > 3
    said = f"no difference beyond noise; {other['seeds']:,} seeds would tell"
    (line,) = [line for line in done.output.splitlines() if "beyond noise" in line]
    assert line.endswith(said)
    assert (
        f"{found['verdict']['first']} is first, and not told from {other['method']}" in done.output
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say what to reach: --target-accuracy 0.75, or --target-loss 0.5"),
        (("--target-accuracy", "2"), "Invalid value for '--target-accuracy'"),
        (("--target-accuracy", "0.5", "--trials", "0"), "Invalid value for '--trials'"),
        (("--target-accuracy", "0.5", "--methods", "fedavgg"), "did you mean 'fedavg'?"),
        (
            ("--target-accuracy", "0.5", "--set", "algorithm.tau1=3"),
            "chooses algorithm.tau1",
        ),
        (("--target-accuracy", "0.5", "--set", "trian.lr=3"), "trian"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    tiny: Path, words: tuple[str, ...], said: str
) -> None:
    done = fair("tiny.toml", *words)
    assert done.exit_code == 2
    assert said in done.output
    assert done.output.count("\n") == 1
    assert not (tiny.parent / "runs").exists()


def test_a_file_of_several_runs_is_refused(tiny: Path) -> None:
    tiny.write_text(TINY + "[sweep]\nseed = [0, 1]\n")
    done = fair("tiny.toml", "--target-accuracy", "0.5")
    assert done.exit_code == 2
    assert "tiny.toml describes 2 runs" in done.output


def test_what_diverges_is_never_at_the_target_and_ends_nothing(tiny: Path) -> None:
    few = ("--methods", "fedavg", "--trials", "2", "--seeds", "1", "--jobs", "1")
    sets = ("--set", "train.steps=3", "--set", "train.lr=1e37", "--set", "train.lr_decay=1")
    done = fair(str(tiny), "--target-accuracy", "0.5", *sets, *few)
    assert done.exit_code == 0, done.output
    assert "diverged" in done.output
    assert told(tiny.parent / "runs" / "fair-tiny")["test_accuracy"]["verdict"]["first"] is None


def test_a_task_without_an_accuracy_has_a_table_of_its_first_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "numbers.toml"
    path.write_text(f"{TINY}\n[data]\nname = 'tasked:numbers'\n[model]\nname = 'sr'\n")
    refused = fair("numbers.toml", "--target-accuracy", "0.5", *FEW)
    assert refused.exit_code == 2, refused.output
    assert "--target-accuracy is a share of right answers, which task 'regression'" in one_line(
        refused
    )
    assert not (tmp_path / "runs").exists()
    done = fair("numbers.toml", "--target-loss", "100", *FEW)
    assert done.exit_code == 0, done.output
    assert "ends at" in done.output and "mse " in done.output


def one_line(done: Result) -> str:
    return " ".join(done.output.split())
