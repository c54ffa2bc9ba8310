"""Runs that are stopped or killed, and go on to the same result to the last bit."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.config.files import make_config, to_toml
from coterie.config.settings import Config, ModelConfig, OptimizerConfig, ParticipationConfig
from coterie.runs.execute import Interrupted, execute
from coterie.runs.record import find_runs, read_run
from coterie.simulation.state import State
from killed import FEW, config, steps
from resuming import TINY, coterie, outcome, read_config, stopped_at, sweep, tiny

HERE = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("what", "model"),
    [
        (tiny("fedavg"), "sr"),
        (tiny("hierfavg"), "2nn"),
        (tiny("fedavg-ic", regroup_every=2), "sr"),
        (tiny("fedavg-ic", regroup_drift=0.01), "2nn"),
        (tiny("centralized"), "sr"),
        (replace(tiny("fedavg"), optimizer=OptimizerConfig(scaffold=True)), "sr"),
        (replace(tiny("hierfavg"), optimizer=OptimizerConfig(server="adam", momentum=0.9)), "sr"),
        (replace(tiny("fedavg-ic"), participation=ParticipationConfig(0.7, dropout=0.2)), "sr"),
    ],
    ids=lambda v: v if isinstance(v, str) else v.algorithm.name,
)
def test_a_run_stopped_on_the_way_ends_as_if_it_had_not_been(
    tmp_path: Path, what: Config, model: str
) -> None:
    what = replace(what, model=ModelConfig(model))
    execute(what, tmp_path / "undisturbed")
    for t in (0, 1, 5, 6):
        stopped_at(t, what, tmp_path / "run")
        assert read_run(tmp_path / "run").summary["status"] == "interrupted"
    execute(what, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


def test_wall_time_goes_on_counting(tmp_path: Path) -> None:
    stopped_at(3, tiny(), tmp_path)
    before = read_run(tmp_path).rows[-1]["wall_s"]
    execute(tiny(), tmp_path, resume=True)
    times = [row["wall_s"] for row in read_run(tmp_path).rows]
    assert times == sorted(times)
    assert times[-1] >= before
    assert read_run(tmp_path).summary["wall_s"] >= times[-1]


def killed_runs(*words: object) -> str:
    command = [sys.executable, str(HERE / "killed.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.long)])
def test_a_run_killed_at_random_moments_ends_as_if_it_had_not_been(
    tmp_path: Path, kills: int
) -> None:
    said = killed_runs(tmp_path / "run", "moments", kills)
    assert said.count("\n") == kills
    execute(config(steps(kills)), tmp_path / "undisturbed")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_run_killed_at_any_file_operation_ends_as_if_it_had_not_been(
    tmp_path: Path, every: int
) -> None:
    said = killed_runs(tmp_path / "runs", "operations", every)
    execute(config(FEW), tmp_path / "undisturbed")
    expected = outcome(tmp_path / "undisturbed")
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) > 25 / every
    for folder in folders:
        assert outcome(folder) == expected, folder.name
    for line in ("starts from the beginning", "goes on from step 2", "complete already"):
        assert line in said


def test_a_checkpoint_that_is_damaged_costs_the_steps_since_the_one_before(tmp_path: Path) -> None:
    execute(tiny(), tmp_path / "undisturbed")
    said: list[str] = []
    asked = iter([False] * 5 + [True])
    with pytest.raises(Interrupted):
        execute(tiny(), tmp_path / "run", checkpoint_every_s=0, stop=lambda: next(asked))
    newest = tmp_path / "run" / "checkpoint-5"
    newest.write_bytes(newest.read_bytes()[:-100])
    execute(tiny(), tmp_path / "run", resume=True, say=said.append)
    assert said == ["checkpoint-5 cannot be used: its sum is wrong", "goes on from step 4"]
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


def test_a_run_without_a_checkpoint_starts_from_the_beginning_and_says_so(tmp_path: Path) -> None:
    execute(tiny(), tmp_path / "undisturbed")
    stopped_at(5, tiny(), tmp_path / "run")
    (tmp_path / "run" / "checkpoint-5").write_bytes(b"")
    said: list[str] = []
    execute(tiny(), tmp_path / "run", resume=True, say=said.append)
    assert said[1:] == ["no checkpoint to go on from; starts from the beginning"]
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


def test_a_half_written_row_breaks_nothing(tmp_path: Path) -> None:
    execute(tiny(), tmp_path / "undisturbed")
    stopped_at(5, tiny(), tmp_path / "run")
    with (tmp_path / "run" / "rows.jsonl").open("a") as file:
        file.write('{"t": 6, "epo')
    assert [row["t"] for row in read_run(tmp_path / "run").rows] == [0, 1, 2, 3, 4, 5]
    assert len(find_runs([tmp_path])[0]) == 1
    execute(tiny(), tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


def test_resuming_what_is_complete_changes_nothing_and_prints_the_table(tmp_path: Path) -> None:
    execute(tiny(), tmp_path / "run")
    before = outcome(tmp_path / "run")
    done = coterie("run", "--resume", tmp_path / "run")
    assert done.exit_code == 0
    assert f"{tmp_path}/run: complete already\n" in done.output
    assert "fedavg-ic" in done.output
    assert outcome(tmp_path / "run") == before


def test_a_diverged_run_stays_diverged(tmp_path: Path) -> None:
    file = tmp_path / "wild.toml"
    wild = make_config({**TINY, "train": {"steps": 5, "lr": 1e38, "lr_decay": 1.0}})
    file.write_text(to_toml(wild))
    assert coterie("run", file, "--out", tmp_path / "run").exit_code == 2
    assert not list((tmp_path / "run").glob("checkpoint-*"))
    done = coterie("run", "--resume", tmp_path / "run")
    assert done.exit_code == 2
    assert f"{tmp_path}/run: diverged, and would again; lower train.lr" in done.output


def test_two_processes_cannot_run_one_folder(tmp_path: Path) -> None:
    inside: list[str] = []

    def second(state: State) -> None:
        if state.t == 3:
            done = coterie("run", "--resume", tmp_path)
            inside.append(f"{done.exit_code} {done.output}")

    execute(tiny(), tmp_path, on_state=second)
    assert inside == [
        f"2 coterie: {tmp_path}: another process is running it; wait for that one or stop it\n"
    ]
    assert read_run(tmp_path).summary["status"] == "complete"


def resume_error(*words: object) -> str:
    done = coterie("run", *words)
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    return done.output


def test_what_cannot_be_gone_on_with_is_one_line(tmp_path: Path) -> None:
    stopped_at(3, tiny(), tmp_path / "run")
    run = tmp_path / "run"
    before = outcome(run)
    assert "nowhere: no such folder" in resume_error("--resume", "nowhere")
    said = resume_error("--resume", tmp_path)
    assert f"neither a run nor a sweep; name one, such as {run}" in said
    assert "leave out --out" in resume_error("--resume", run, "--out", tmp_path / "other")
    assert "--set only names its code again" in resume_error("--resume", run, "--set", "train.lr=1")
    said = resume_error("quickstart", "--resume", run)
    assert f"{run}: data.sample is 1.0 and was 0.1; leave the file out to go on" in said
    (tmp_path / "two.toml").write_text("[sweep]\nseed = [0, 1]\n")
    said = resume_error(tmp_path / "two.toml", "--resume", run)
    assert f"describes 2 runs and {run} was begun with 1" in said
    assert f"go on with: coterie run --resume {run}" in resume_error("quickstart", "--out", run)
    toml = (run / "config.toml").read_text()
    (run / "config.toml").write_text(toml.replace("tau2 = 2", "tau2 = 3"))
    said = resume_error("--resume", run)
    assert "config.toml was changed, algorithm.tau2 is 3 and was 2; put it back, or start" in said
    (run / "config.toml").write_text("tau2 =")
    assert "config.toml: Invalid value" in resume_error("--resume", run)
    (run / "config.toml").write_text(toml)
    assert outcome(run) == before


def test_a_file_beside_resume_must_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "same.toml"
    file.write_text(to_toml(tiny()))
    stopped_at(3, tiny(), tmp_path / "run")
    done = coterie("run", file, "--resume", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert f"{tmp_path}/run: goes on from step 3\n" in done.output


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_goes_on_with_what_was_begun_and_what_was_not(tmp_path: Path, jobs: int) -> None:
    file = sweep(tmp_path, 3, 6)
    whole, part = tmp_path / "whole", tmp_path / "part"
    for out in (whole, part):
        assert coterie("run", file, "--jobs", 1, "--out", out).exit_code == 0
    for path in sorted((part / "seed2").iterdir()):  # as if it had never begun
        path.unlink()
    (part / "seed2").rmdir()
    for path in sorted((part / "seed1").iterdir()):
        path.unlink()
    stopped_at(3, read_config(whole / "seed1"), part / "seed1")
    compared = coterie("compare", part)
    hint = f"seed1: interrupted after step 3; go on with: coterie run --resume {part}\n"
    assert hint in compared.output
    done = coterie("run", "--resume", part, "--jobs", jobs)
    assert done.exit_code == 0, done.output
    assert "1 of 3 runs: complete already\n" in done.output
    assert f"{part}/seed1: goes on from step 3\n" in done.output
    for seed in ("seed0", "seed1", "seed2"):
        assert outcome(part / seed) == outcome(whole / seed)


def test_a_sweep_none_of_which_can_begin_leaves_nothing(tmp_path: Path) -> None:
    file = sweep(tmp_path, 2, 6)
    out = tmp_path / "out"
    done = coterie("run", file, "--jobs", 1, "--out", out, "--set", "model.name=nowhere:make")
    assert done.exit_code == 2
    assert not out.exists()


def test_a_run_goes_on_under_another_label(tmp_path: Path) -> None:
    stopped_at(6, tiny(), tmp_path / "a")
    execute(tiny(), tmp_path / "b")
    execute(replace(tiny(), label="mine"), tmp_path / "a", resume=True)
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")
