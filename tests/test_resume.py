"""Runs that are killed, stopped or run out of disk, in real processes, and go on."""

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coterie.cli import main
from coterie.config import make_config, to_toml
from coterie.errors import RecordError
from coterie.experiment import Interrupted, execute
from coterie.record import find_runs, read_run
from coterie.run import State
from coterie.sections import Config, ModelConfig
from killed import FEW, KILLS, MANY, config

HERE = Path(__file__).parent
PATIENCE_S = 120
TINY = {"data": {"sample": 0.1}, "partition": {"num_nodes": 10, "num_edges": 10}}


def tiny(name: str = "fedavg-ic", steps: int = 12, **algorithm: object) -> Config:
    chosen = {"name": name, "grouping": "reference", "num_groups": 3, "tau2": 2, **algorithm}
    return make_config({**TINY, "algorithm": chosen, "train": {"steps": steps}})


def outcome(folder: Path) -> dict[str, object]:
    """All that a run leaves behind, less wall times."""
    found: dict[str, object] = {}
    for path in sorted(folder.iterdir()):
        if path.name in ("summary.json", "rows.jsonl"):
            lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
            found[path.name] = [json.dumps({**json.loads(x), "wall_s": 0}) for x in lines]
        else:
            found[path.name] = path.read_bytes()
    return found


def coterie(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def start(*words: object, **extra: Any) -> subprocess.Popen[str]:
    """Start `coterie` in a process group of its own, as a terminal does."""
    command = [sys.executable, "-m", "coterie", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, **extra
    )


def wait_for(
    condition: Callable[[], object], process: "subprocess.Popen[str] | None" = None
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        if process and process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode}: {process.communicate()}")
        time.sleep(0.02)


def n_rows(folder: Path) -> int:
    path = folder / "rows.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def stopped_at(t: int, what: Config, folder: Path) -> None:
    """Leave a run that was stopped after step t."""
    at = [0]

    def see(state: State) -> None:
        at[0] = state.t

    with pytest.raises(Interrupted):
        execute(what, folder, on_state=see, stop=lambda: at[0] >= t, resume=True)


@pytest.mark.parametrize(
    ("what", "model"),
    [
        (tiny("fedavg"), "sr"),
        (tiny("hierfavg"), "2nn"),
        (tiny("fedavg-ic", regroup_every=2), "sr"),
        (tiny("fedavg-ic", regroup_drift=0.01), "2nn"),
        (tiny("centralized"), "sr"),
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


def test_a_run_killed_at_random_moments_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    said = killed_runs(tmp_path / "run", "moments", 0)
    assert said.count("\n") == KILLS
    execute(config(MANY), tmp_path / "undisturbed")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


def test_a_run_killed_at_any_file_operation_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    said = killed_runs(tmp_path / "runs", "operations")
    execute(config(FEW), tmp_path / "undisturbed")
    expected = outcome(tmp_path / "undisturbed")
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) > 25
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
    assert "not --set" in resume_error("--resume", run, "--set", "train.lr=1")
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


def sweep(tmp_path: Path, seeds: int, steps: int) -> Path:
    file = tmp_path / "sweep.toml"
    toml = to_toml(tiny("hierfavg", steps=steps)).replace("seed = 0\n", "")
    file.write_text(f"{toml}\n[sweep]\nseed = {list(range(seeds))}\n")
    return file


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


def read_config(folder: Path) -> Config:
    import tomllib

    return make_config(tomllib.loads((folder / "config.toml").read_text()))


def test_a_sweep_none_of_which_can_begin_leaves_nothing(tmp_path: Path) -> None:
    file = sweep(tmp_path, 2, 6)
    out = tmp_path / "out"
    done = coterie("run", file, "--jobs", 1, "--out", out, "--set", "model.name=nowhere:make")
    assert done.exit_code == 2
    assert not out.exists()


def test_a_killed_worker_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    file = sweep(tmp_path, 3, 60)
    out = tmp_path / "out"
    process = start("run", file, "--jobs", 2, "--out", out, "--checkpoint-every", 0)
    wait_for(lambda: n_rows(out / "seed0") > 2, process)
    os.kill(writer_of(out / "seed0", process.pid), signal.SIGKILL)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    way = f"go on with: coterie run --resume {out}"
    assert f"1 of 3 runs failed; seed0: its process was killed (SIGKILL); {way}" in said
    assert {path.parent.name for path in out.rglob("summary.json")} == {"seed1", "seed2"}
    done = coterie("run", "--resume", out)
    assert done.exit_code == 0, done.output
    assert "seed0: goes on from step" in done.output
    execute(read_config(out / "seed0"), tmp_path / "undisturbed")
    assert outcome(out / "seed0") == outcome(tmp_path / "undisturbed")


def writer_of(folder: Path, parent: int) -> int:
    """Process below a parent that has a folder's rows open."""
    rows = str(folder / "rows.jsonl")
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            if handle.is_symlink() and os.readlink(handle) == rows:  # noqa: PTH115
                return int(pid)
    raise AssertionError("nobody writes it")


def test_a_sweep_whose_parent_is_killed_goes_on(tmp_path: Path) -> None:
    file = sweep(tmp_path, 3, 60)
    out = tmp_path / "out"
    process = start("run", file, "--jobs", 2, "--out", out, "--checkpoint-every", 0)
    wait_for(lambda: n_rows(out / "seed0") > 2 and n_rows(out / "seed1") > 2, process)
    process.kill()
    process.communicate()
    done = coterie("run", "--resume", out, "--jobs", 1)
    assert done.exit_code == 0, done.output
    for seed in ("seed0", "seed1", "seed2"):
        execute(read_config(out / seed), tmp_path / seed)
        assert outcome(out / seed) == outcome(tmp_path / seed)


LONG = [
    "--set",
    "train.steps=1000000",
    "--set",
    "partition.num_nodes=20",
    "--set",
    "data.sample=0.1",
]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_finishes_its_step_and_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "my run"
    process = start("run", "quickstart", *LONG, "--out", out, "--checkpoint-every", 1000)
    wait_for(lambda: n_rows(out) > 2, process)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    t = read_run(out).summary["steps"]
    way = f"coterie run --resume {shlex.quote(str(out))}"
    assert said == f"coterie: stopped after step {t}; go on with: {way}\n"
    assert read_run(out).summary["status"] == "interrupted"
    assert read_run(out).rows[-1]["t"] == t
    assert [path.name for path in out.glob("checkpoint-*")] == [f"checkpoint-{t}"]


def test_the_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    endless = ["--set", "algorithm.tau1=1000000", *LONG]
    process = start("run", "quickstart", *endless, "--out", tmp_path, "--checkpoint-every", 0)
    wait_for((tmp_path / "checkpoint-1").exists, process)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert said == f"coterie: stopped; go on with: coterie run --resume {tmp_path}\n"
    assert read_run(tmp_path).summary["status"] == "interrupted"
    assert (tmp_path / "checkpoint-1").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_finishes_its_steps_and_begins_no_other_run(
    tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    process = start("run", sweep(tmp_path, 6, 60), *LONG, "--jobs", 2, "--out", out)
    wait_for(lambda: n_rows(out / "seed0") > 2 and n_rows(out / "seed1") > 2, process)
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert said == f"coterie: stopped; go on with: coterie run --resume {out}\n"
    found = {path.parent.name: json.loads(path.read_text()) for path in out.rglob("summary.json")}
    assert {name: told["status"] for name, told in found.items()} == {
        "seed0": "interrupted",
        "seed1": "interrupted",
    }
    for name, told in found.items():
        assert (out / name / f"checkpoint-{told['steps']}").exists()
    assert len(list(out.rglob("rows.jsonl"))) == 2


def limited(n_bytes: int) -> Callable[[], None]:
    """No file may grow larger than this: to who writes it, a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


@pytest.mark.parametrize(("room", "file"), [(20_000, "checkpoint-"), (45_000, "rows.jsonl")])
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path, room: int, file: str) -> None:
    what = tiny("fedavg", steps=200, tau1=1, tau2=1)
    (tmp_path / "file.toml").write_text(to_toml(what))
    out = tmp_path / "run"
    words = ["run", tmp_path / "file.toml", "--out", out, "--checkpoint-every", 0.1]
    process = start(*words, preexec_fn=limited(room))
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert said.startswith(f"coterie: {out}/{file}")
    way = f"coterie run --resume {out}"
    assert said.endswith(f": cannot be written (File too large); mend that, then: {way}\n")
    run = read_run(out)
    assert run.summary["status"] == "failed"
    assert [row["t"] for row in run.rows] == list(range(run.summary["steps"] + 1))
    assert n_rows(out) == len(run.rows)
    assert not list(out.glob(".*"))
    assert coterie("run", "--resume", out).exit_code == 0
    execute(what, tmp_path / "undisturbed")
    assert outcome(out) == outcome(tmp_path / "undisturbed")


def test_a_disk_full_at_the_end_leaves_a_run_that_can_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(tiny(), tmp_path / "undisturbed")
    for name in ("model.safetensors", "grouping.json", "summary.json"):

        def full(path: Path, target: Path, name: str = name) -> None:
            if target.name == name:
                raise OSError(28, "No space left on device")
            os.replace(path, target)  # noqa: PTH105

        folder = tmp_path / name
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", full)
            with pytest.raises(RecordError, match=rf"{name}: cannot be written \(No space left"):
                execute(tiny(), folder)
        assert "unfinished; go on with" in find_runs([tmp_path])[1][0]
        execute(tiny(), folder, resume=True)
        assert outcome(folder) == outcome(tmp_path / "undisturbed")
