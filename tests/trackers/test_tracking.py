"""Runs in other programs' dashboards; what needs no such program is tested with one of our own."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import held
import own_tracker
from clocks import stopped, ticking
from coterie.config.files import to_toml
from coterie.runs.execute import execute
from coterie.trackers import Follower, TrackingError, beside, parse_target
from coterie.trackers.process import Beside
from resuming import PATIENCE_S, coterie, n_rows, outcome, start, stopped_at, sweep, tiny, wait_for
from tracked import recorded, stand_in, summary

OWN = "own_tracker:open"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch)


def experiment(**algorithm: Any) -> Path:
    path = Path("my.toml")
    path.write_text(to_toml(tiny(**{"name": "hierfavg", **algorithm})))
    return path


def check_own(path: Path, folder: Path) -> list[dict[str, Any]]:
    """Every row is there once, in order, with its figures, and at last the summary."""
    lines = own_tracker.read(path)
    points = [line for line in lines if "t" in line]
    rows = recorded(folder)
    assert [line["t"] for line in points] == [row["t"] for row in rows]
    for line, row in zip(points, rows, strict=True):
        assert line["values"]["seconds"] == row["seconds"]
        assert line["values"].get("test_accuracy") == row["test_accuracy"]
        assert line["values"]["groups"] == len(row["group_sizes"])
        sent = {k.removeprefix("bytes/"): v for k, v in line["values"].items() if "/" in k}
        assert sent == row["bytes_by_tier"]
    assert lines[-1] == {"status": "complete", "final": summary(folder)}
    return lines


def test_a_run_is_tracked_while_it_is_under_way_and_is_the_same_run() -> None:
    path = experiment()
    done = coterie("run", path, "--out", "tracked", "--track", f"{OWN}=own")
    assert done.exit_code == 0, done.output
    lines = check_own(Path("own/tracked-tracked.jsonl"), Path("tracked"))
    assert lines[0]["params"]["algorithm.name"] == "hierfavg"
    assert lines[0]["params"]["seed"] == 0
    assert coterie("run", path, "--out", "alone").exit_code == 0
    alone, tracked = (outcome(Path(name)) for name in ("alone", "tracked"))
    extra = {"tracking.json", "tracked-own_tracker.open.json"}
    assert {k: v for k, v in tracked.items() if k not in extra} == alone
    assert extra == tracked.keys() - alone.keys()


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_run_of_a_sweep_is_a_tracked_run(jobs: int, tmp_path: Path) -> None:
    done = coterie(
        *("run", sweep(tmp_path, seeds=3, steps=6), "--out", "many", "--jobs", jobs),
        *("--track", f"{OWN}=own"),
    )
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in Path("own").iterdir()) == [
        f"many-seed{seed}.jsonl" for seed in range(3)
    ]
    for seed in range(3):
        check_own(Path(f"own/many-seed{seed}.jsonl"), Path(f"many/seed{seed}"))


def test_a_run_that_goes_on_is_tracked_as_before_without_a_row_twice() -> None:
    target, folder = parse_target(f"{OWN}=own"), Path("r")
    stopped_at(5, tiny("hierfavg"), folder)
    Follower(folder, target).look()
    lines = own_tracker.read(Path("own/r-r.jsonl"))
    assert lines[-1] == {"status": "interrupted", "final": {}}
    assert 0 < sum("t" in line for line in lines) < 12
    done = coterie("run", "--resume", folder, "--track", f"{OWN}=own")
    assert done.exit_code == 0, done.output
    check_own(Path("own/r-r.jsonl"), folder)


def test_a_tracked_run_goes_on_after_kill_9(tmp_path: Path) -> None:
    path = experiment(**held.ALGORITHM)
    process = start(
        *("run", path, "--out", "r", "--checkpoint-every", "0", "--track", f"{OWN}=own"),
        held=tmp_path,
    )
    sent = Path("own/r-r.jsonl")
    wait_for(lambda: sent.exists() and sent.read_text().count('\n{"t"') == held.ROWS, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: '"unfinished"' in sent.read_text())  # the process beside it ends by itself
    assert n_rows(Path("r")) == held.ROWS
    done = coterie("run", "--resume", "r", *held.NAMED, "--track", f"{OWN}=own")
    assert done.exit_code == 0, done.output
    check_own(sent, Path("r"))


def test_ctrl_c_leaves_a_tracked_run_that_goes_on(tmp_path: Path) -> None:
    words = ("run", experiment(**held.ALGORITHM), "--out", "r", "--track", f"{OWN}=own")
    process = start(*words, held=tmp_path)
    wait_for((tmp_path / "held-2").exists, process)
    os.killpg(process.pid, signal.SIGINT)
    held.let_go(tmp_path)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "go on with: coterie run --resume r" in said
    lines = own_tracker.read(Path("own/r-r.jsonl"))
    assert lines[-1]["status"] == "interrupted"
    assert sum("t" in line for line in lines) == n_rows(Path("r")) == held.ROWS + 1
    assert coterie("run", "--resume", "r", *held.NAMED, "--track", f"{OWN}=own").exit_code == 0
    check_own(Path("own/r-r.jsonl"), Path("r"))


def test_no_function_is_called_because_a_folder_says_so() -> None:
    stopped_at(5, tiny("hierfavg"), Path("r"))
    Path("precious").mkdir()
    Path("r/tracking.json").write_text('{"to": ["shutil:rmtree=precious"]}')
    done = coterie("run", "--resume", "r")
    assert done.exit_code == 0, done.output
    assert "not tracked: to use it again, say --track shutil:rmtree=precious" in done.stderr
    assert Path("precious").is_dir()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("fails", "own_tracker:open: the server said no (r); send the rest with: "),
        ("fails-in-add", "own_tracker:open: KeyError (r); send the rest with: "),
        ("dies", "own_tracker:open's process ended; send the rest with: "),
    ],
)
def test_a_tracker_that_fails_is_told_of_in_one_line_and_the_run_goes_on(
    how: str, says: str
) -> None:
    done = coterie("run", experiment(), "--out", "r", "--track", f"{OWN}={how}")
    assert done.exit_code == 0, done.output
    told = done.stderr.replace(f"{OWN}: sending the rest\n", "")  # where it takes its time
    assert told.count("\n") == 1
    assert f"{says}coterie track r --to {OWN}={how}" in told.replace("\n", "")
    assert n_rows(Path("r")) == 13


def test_a_tracker_that_hangs_is_told_of_and_then_given_up() -> None:
    execute(tiny("hierfavg"), Path("r"))
    said: list[str] = []
    target, clock = parse_target(f"{OWN}=hangs"), ticking(3.0)
    tracker = Beside(target, Path("r"), said.append, patience_s=20.0, clock=clock)
    tracker.begun(Path("r"))
    tracker.over()
    tracker.close()
    first, last = said
    assert first == f"{OWN}: sending the rest"
    assert last.startswith(f"{OWN}: no answer for 20 s, gave up; send the rest with: coterie")


def test_a_tracker_lost_before_any_row_is_told_of_when_there_is_one_to_send() -> None:
    said: list[str] = []
    tracker = Beside(parse_target(f"{OWN}=seen"), Path("r"), said.append)
    tracker._process.kill()
    tracker._ear.join(PATIENCE_S)
    assert said == []
    tracker.begun(Path("r"))
    tracker.close()
    way = f"coterie track r --to {OWN}=seen"
    assert said == [f"{OWN}: {OWN}'s process ended; send the rest with: {way}"]


def test_what_a_tracker_prints_does_not_reach_the_terminal() -> None:
    process = start("run", experiment(), "--out", "r", "--track", f"{OWN}=noise")
    said = process.communicate()
    assert process.returncode == 0
    assert "noise" not in "".join(said)
    check_own(Path("noise/r-r.jsonl"), Path("r"))


def test_a_folder_where_nothing_can_be_noted_disturbs_no_run(tmp_path: Path) -> None:
    execute(tiny("hierfavg"), Path("r"))
    said: list[str] = []
    whole = tmp_path / "own_tracker.py"  # not a folder
    target, folders = parse_target(f"{OWN}=own"), {"r": Path("r")}
    with beside([target], whole, folders, said.append, clock=stopped) as begun:
        begun("r")
        begun("r")
    assert len(said) == 1
    assert "where it is tracked is not remembered" in said[0]
    check_own(Path("own/r-r.jsonl"), Path("r"))


def test_recorded_runs_are_sent_once_however_often_they_are_sent(tmp_path: Path) -> None:
    assert coterie("run", sweep(tmp_path, seeds=2, steps=6), "--out", "many").exit_code == 0
    for _ in range(2):
        done = coterie("track", "many", "--to", f"{OWN}=own")
        assert done.exit_code == 0, done.output
        assert done.output == f"2 runs are in {OWN}=own\n"
    for seed in range(2):
        lines = check_own(Path(f"own/many-seed{seed}.jsonl"), Path(f"many/seed{seed}"))
        assert sum("params" in line for line in lines) == 1  # not even opened again
    assert coterie("track", "many", "--to", f"{OWN}=elsewhere").exit_code == 0
    check_own(Path("elsewhere/many-seed0.jsonl"), Path("many/seed0"))
    done = coterie("track", "many", "--to", f"{OWN}=fails")
    assert (done.exit_code, done.output) == (
        2,
        f"coterie: {OWN}: the server said no (seed0)\n",
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_run_that_cannot_be_noted_is_not_begun_in_a_tracker() -> None:
    execute(tiny("hierfavg"), Path("r"))
    Path("r").chmod(0o500)
    with pytest.raises(TrackingError, match="r: must be writable"):
        Follower(Path("r"), parse_target(f"{OWN}=own")).look()
    assert not Path("own").exists()


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_library_is_one_line_before_anything_runs(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, kind, None)  # as if it were not installed
    before = sorted(Path().rglob("*"))
    for words in (["run", "quickstart", "--track", kind], ["track", "nowhere", "--to", kind]):
        done = coterie(*words)
        assert done.exit_code == 2
        needs = f"needs coterie[{kind}]: pip install 'coterie[{kind}]'"
        assert done.output == f"coterie: {kind}: {needs}\n"
    assert sorted(Path().rglob("*")) == before


def test_a_tracker_only_remembered_and_gone_stops_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_at(5, tiny("hierfavg"), Path("r"))
    Path("r/tracking.json").write_text('{"to": ["mlflow=mlflow.db", "gone", 7]}')
    monkeypatch.setitem(sys.modules, "mlflow", None)
    done = coterie("run", "--resume", "r")
    assert done.exit_code == 0
    assert "not tracked: mlflow: needs coterie[mlflow]" in done.stderr
    assert "not tracked: unknown tracker 'gone'" in done.stderr


@pytest.mark.parametrize("content", ["", "{", "[]", '{"to": 1}', '{"to": {}}'])
def test_what_was_remembered_and_damaged_is_forgotten(content: str) -> None:
    stopped_at(5, tiny("hierfavg"), Path("r"))
    Path("r/tracking.json").write_text(content)
    Path("r/tracked-own_tracker.open.json").write_text(content)
    assert coterie("run", "--resume", "r", "--track", f"{OWN}=own").exit_code == 0
    check_own(Path("own/r-r.jsonl"), Path("r"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mlfow", "unknown tracker 'mlfow'; did you mean 'mlflow'?"),
        ("", "unknown tracker ''"),
        ("mlflow=runs", "mlflow must be given a server such as http://localhost:5000 or a file"),
        ("tensorboard=own_tracker.py", "tensorboard must be given a folder"),
        ("wandb=a/b/c", "wandb must be given PROJECT or ENTITY/PROJECT, got 'a/b/c'"),
        ("nowhere:open", "no module 'nowhere'"),
        ("own_tracker:nothing", "own_tracker has no function 'nothing'"),
    ],
)
def test_a_tracker_that_cannot_be_meant_is_one_line_and_nothing_written(
    text: str, says: str
) -> None:
    before = sorted(Path().glob("*"))
    done = coterie("run", "quickstart", "--track", text)
    assert done.exit_code == 2
    assert says in done.output
    assert done.output.count("\n") == 1
    assert sorted(path for path in Path().glob("*") if path.name != "__pycache__") == before


def test_one_tracker_has_one_destination_at_a_time() -> None:
    done = coterie("run", "quickstart", "--track", f"{OWN}=a", "--track", f"{OWN}=b")
    assert done.output == f"coterie: {OWN} is given twice; one destination at a time\n"


def test_destinations_hold_from_any_folder(tmp_path: Path) -> None:
    assert str(parse_target("tensorboard")) == f"tensorboard={tmp_path / 'tensorboard'}"
    assert str(parse_target("mlflow=a.db")) == f"mlflow=sqlite:///{tmp_path / 'a.db'}"
    assert str(parse_target("mlflow=http://host:5000")) == "mlflow=http://host:5000"
    assert str(parse_target("wandb=me/mine")) == "wandb=me/mine"
    assert parse_target(str(parse_target("mlflow"))) == parse_target("mlflow")


def test_a_password_is_neither_shown_nor_written() -> None:
    text = f"{OWN}=own://me:secret@host/fails"
    assert str(parse_target(text)) == f"{OWN}=own://me:***@host/fails"
    execute(tiny("hierfavg"), Path("r"))
    with pytest.raises(TrackingError, match="said no") as raised:
        Follower(Path("r"), parse_target(text)).look()
    assert "secret" not in str(raised.value)
    done = coterie("run", experiment(), "--out", "s", "--track", text)
    assert done.exit_code == 0
    assert "secret" not in done.output
    for path in Path("s").iterdir():
        assert b"secret" not in path.read_bytes()
