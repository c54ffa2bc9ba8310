"""Runs that are stopped or left without room, and workers that die, in real processes."""

import json
import os
import resource
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import held
from coterie.config.files import to_toml
from coterie.core.errors import RecordError
from coterie.runs.execute import execute
from coterie.runs.record import find_runs, read_run
from coterie.runs.sweep import Stop
from resuming import (
    PATIENCE_S,
    alive,
    children,
    coterie,
    n_rows,
    outcome,
    read_config,
    start,
    sweep,
    tiny,
    wait_for,
)


def test_a_killed_worker_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    file = sweep(tmp_path, 3, 20, **held.ALGORITHM)
    out = tmp_path / "out"
    words = ("run", file, "--jobs", 2, "--out", out, "--checkpoint-every", 0)
    process = start(*words, held=tmp_path)
    kept = out / "seed0" / f"checkpoint-{held.ROWS - 1}"
    wait_for(kept.exists, process)
    os.kill(writer_of(out / "seed0", process.pid), signal.SIGKILL)
    held.let_go(tmp_path)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    way = f"go on with: coterie run --resume {out} {' '.join(held.NAMED)}"
    assert f"1 of 3 runs failed; seed0: its process was killed (SIGKILL); {way}" in said
    assert {path.parent.name for path in out.rglob("summary.json")} == {"seed1", "seed2"}
    done = coterie("run", "--resume", out, *held.NAMED)
    assert done.exit_code == 0, done.output
    assert f"seed0: goes on from step {held.ROWS - 1}" in done.output
    execute(read_config(out / "seed0"), tmp_path / "undisturbed")
    assert outcome(out / "seed0") == outcome(tmp_path / "undisturbed")


def writer_of(folder: Path, parent: int) -> int:
    """Process below a parent that has a folder's rows open."""
    rows = str(folder / "rows.jsonl")
    for pid in children(parent):
        for handle in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                found = str(handle.readlink())
            except OSError:  # closed since
                continue
            if found == rows:
                return pid
    raise AssertionError("nobody writes it")


def test_a_sweep_whose_parent_is_killed_goes_on(tmp_path: Path) -> None:
    file = sweep(tmp_path, 3, 20, **held.ALGORITHM)
    out = tmp_path / "out"
    words = ("run", file, "--jobs", 2, "--out", out, "--checkpoint-every", 0)
    process = start(*words, held=tmp_path)
    wait_for(lambda: {n_rows(out / f"seed{seed}") for seed in (0, 1)} == {held.ROWS}, process)
    workers = children(process.pid)
    process.kill()
    held.let_go(tmp_path)
    process.communicate()
    wait_for(lambda: not any(map(alive, workers)))  # they finish their step, and stop
    done = coterie("run", "--resume", out, *held.NAMED, "--jobs", 1)
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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
    wait_for((tmp_path / "checkpoint-1").exists, process)  # nobody is asked again for ages
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=PATIENCE_S / 10)
    except subprocess.TimeoutExpired:  # so slow that it took both for one
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert said == f"coterie: stopped; go on with: coterie run --resume {tmp_path}\n"
    assert read_run(tmp_path).summary["status"] == "interrupted"
    assert (tmp_path / "checkpoint-1").exists()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGHUP, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_a_stopped_sweep_finishes_its_steps_and_begins_no_other_run(
    tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    process = start("run", sweep(tmp_path, 6, 60), *LONG, "--jobs", 2, "--out", out)
    wait_for(lambda: n_rows(out / "seed0") > 2 and n_rows(out / "seed1") > 2, process)
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    how = f"go on with: coterie run --resume {out}"
    assert said == f"coterie: stopped, 0 of 6 runs are done; {how}\n"
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


@pytest.mark.parametrize(
    ("room", "steps", "every_s", "file"),
    [(20_000, 12, 0, "checkpoint-"), (45_000, 150, 0.1, "rows.jsonl")],
)
def test_a_full_disk_is_one_line_and_loses_nothing(
    tmp_path: Path, room: int, steps: int, every_s: float, file: str
) -> None:
    what = tiny("fedavg", steps=steps, tau1=1, tau2=1)
    (tmp_path / "file.toml").write_text(to_toml(what))
    out = tmp_path / "run"
    words = ["run", tmp_path / "file.toml", "--out", out, "--checkpoint-every", every_s]
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


def test_a_signal_stops_at_once_where_no_step_is_under_way() -> None:
    stop = Stop()
    with pytest.raises(KeyboardInterrupt):
        stop.ask()
    assert not stop()
    stop.midway = True
    stop.ask()
    assert stop()
    with pytest.raises(KeyboardInterrupt):
        stop.ask()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_stopped_before_its_start_leaves_nothing(tmp_path: Path, jobs: int) -> None:
    (tmp_path / "slow_data.py").write_text(
        "import pathlib, time\n"
        "def load():\n"
        "    pathlib.Path('begun').touch()\n"
        "    time.sleep(1000)\n"
    )
    words = ["run", sweep(tmp_path, 3, 6), "--set", "data.name=slow_data:load", "--jobs", jobs]
    process = start(*words, "--out", "out", cwd=tmp_path)
    wait_for((tmp_path / "begun").exists, process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert said == "coterie: stopped; nothing was written\n"
    assert not (tmp_path / "out").exists()
