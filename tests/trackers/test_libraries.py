"""Runs in TensorBoard, MLflow and Weights & Biases, read back with their own readers."""

import json
from collections import Counter
from pathlib import Path

import pytest

from clocks import stopped
from coterie.trackers import Follower, beside, parse_target
from resuming import coterie, n_rows, stopped_at, tiny
from tracked import recorded, stand_in, summary


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch)


def stopped_and_sent(kind: str) -> Path:
    """Send a stopped run, let it go on, and send the rest; all in processes of their own."""
    folder = Path("r")
    stopped_at(5, tiny("hierfavg"), folder)
    said: list[str] = []
    with beside([parse_target(kind)], folder, {"r": folder}, said.append, clock=stopped) as begun:
        begun("r")
    assert said == []
    part = n_rows(folder)
    done = coterie("run", "--resume", folder)  # remembered
    assert done.exit_code == 0, done.output
    assert "send the rest with" not in done.stderr
    assert n_rows(folder) > part
    return folder


def figures_of(folder: Path, key: str) -> list[tuple[int, float]]:
    return [(row["t"], row[key]) for row in recorded(folder) if row[key] is not None]


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_has_every_row_once() -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="needs coterie[tensorboard]",
    )
    folder = stopped_and_sent("tensorboard")
    assert len(list(Path("tensorboard/r").iterdir())) == 2  # files: before, and after
    events = reader.EventAccumulator("tensorboard/r", size_guidance={"scalars": 0})
    events.Reload()
    for key in ("seconds", "test_accuracy", "Delta"):
        found = [(event.step, event.value) for event in events.Scalars(key)]
        assert found == [(t, pytest.approx(v, rel=1e-6)) for t, v in figures_of(folder, key)]
    final = events.Scalars("final/test_accuracy")
    assert [event.value for event in final] == pytest.approx([summary(folder)["test_accuracy"]])
    plugin = pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2")
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    settings = plugin.HParamsPluginData.FromString(content).session_start_info.hparams
    assert settings["algorithm.name"].string_value == "hierfavg"
    assert settings["train.steps"].number_value == 12


@pytest.mark.filterwarnings("ignore")
def test_an_event_file_cut_off_by_a_crash_gets_its_last_rows_again() -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="needs coterie[tensorboard]",
    )
    folder = Path("r")
    stopped_at(5, tiny("hierfavg"), folder)
    Follower(folder, parse_target("tensorboard")).look()
    (events,) = Path("tensorboard/r").iterdir()
    events.write_bytes(events.read_bytes()[:-500])
    assert coterie("run", "--resume", folder, "--track", "tensorboard").exit_code == 0
    read = reader.EventAccumulator("tensorboard/r", size_guidance={"scalars": 0})
    read.Reload()
    steps = [event.step for event in read.Scalars("seconds")]
    assert steps == [row["t"] for row in recorded(folder)]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_every_row_once() -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs coterie[mlflow]")
    folder = stopped_and_sent("mlflow=my.db")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{Path('my.db').absolute()}")
    experiment = client.get_experiment_by_name("r")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("r", "FINISHED")
    assert run.data.params["algorithm.name"] == "hierfavg"
    assert run.data.params["seed"] == "0"
    for key in ("seconds", "test_accuracy", "Delta"):
        history = client.get_metric_history(run.info.run_id, key)
        assert sorted((each.step, each.value) for each in history) == figures_of(folder, key)
    for key, value in summary(folder).items():
        assert run.data.metrics[f"final/{key}"] == value


@pytest.mark.filterwarnings("ignore")
def test_a_run_deleted_in_mlflow_goes_on_in_another_that_is_whole() -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs coterie[mlflow]")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{Path('my.db').absolute()}")
    stopped_at(5, tiny("hierfavg"), Path("r"))
    Follower(Path("r"), parse_target("mlflow=my.db")).look()
    experiment = client.get_experiment_by_name("r").experiment_id
    (before,) = client.search_runs([experiment])
    assert before.info.status == "KILLED"
    client.delete_run(before.info.run_id)
    assert coterie("run", "--resume", "r", "--track", "mlflow=my.db").exit_code == 0
    (after,) = client.search_runs([experiment])
    history = client.get_metric_history(after.info.run_id, "seconds")
    assert sorted((each.step, each.value) for each in history) == figures_of(Path("r"), "seconds")


@pytest.mark.filterwarnings("ignore")
def test_wandb_has_every_row_once() -> None:
    internal = pytest.importorskip("wandb.proto.wandb_internal_pb2", reason="needs coterie[wandb]")
    folder = stopped_and_sent("wandb=mine")
    parts = sorted(Path("wandb").glob("offline-run-*/*.wandb"))
    assert len(parts) == 2
    assert len({path.name for path in parts}) == 1  # the id
    records = [internal.Record.FromString(data) for path in parts for data in log_of(path)]
    begun = [record.run for record in records if record.HasField("run")]
    assert {(run.project, run.display_name, run.run_group) for run in begun} == {("mine", "r", "r")}
    config = {item.key or item.nested_key[0]: item.value_json for item in begun[0].config.update}
    assert json.loads(config["algorithm.name"]) == "hierfavg"
    history = [
        {
            (item.key or item.nested_key[0]): json.loads(item.value_json)
            for item in record.history.item
        }
        for record in records
        if record.HasField("history")
    ]
    for key in ("seconds", "test_accuracy", "Delta"):
        found = [(line["_step"], line[key]) for line in history if key in line]
        assert found == [(t, pytest.approx(v)) for t, v in figures_of(folder, key)]
    told: dict[str, str] = {}
    for record in records:
        if record.HasField("summary"):
            told |= {i.key or i.nested_key[0]: i.value_json for i in record.summary.update}
    assert json.loads(told["final/test_accuracy"]) == summary(folder)["test_accuracy"]
    ends = [record.exit.exit_code for record in records if record.HasField("exit")]
    assert Counter(ends) == {1: 1, 0: 1}  # interrupted, complete


def log_of(path: Path) -> list[bytes]:
    """Records of a .wandb file: a log like LevelDB's, which no Python of the library reads."""
    content, at, parts, records = path.read_bytes(), 7, [], []
    while at < len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts.append(content[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            records.append(b"".join(parts))
            parts = []
    return records
