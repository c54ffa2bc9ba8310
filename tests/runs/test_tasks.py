"""Runs of any task, from the settings to the report."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import coterie
from coterie.cli import main
from coterie.config.files import make_config
from coterie.core.errors import ConfigError, CoterieError, DataError, ModelError, TrainingError
from coterie.runs.execute import execute
from coterie.runs.record import read_run
from coterie.runs.validate import metrics_of
from resuming import outcome, stopped_at
from tasked import NAMES, dataset, model

SMALL: dict[str, Any] = {
    "partition": {"kind": "iid", "num_nodes": 6, "num_edges": 2},
    "train": {"steps": 6, "batch_size": 8, "lr": 0.2},
}
PATHS = {
    "regression": ("tasked:numbers", "tasked:numbers_model"),
    "binary": ("tasked:sides", "tasked:sides_model"),
}


def by_path(task: str, name: str = "fedavg", /, **sections: Any) -> coterie.Config:
    """Return a config of data and a model by path; no speed decides how it is trained."""
    data, net = PATHS[task]
    content: dict[str, Any] = {
        **SMALL,
        "data": {"name": data},
        "model": {"name": net},
        "algorithm": {"name": name, "num_groups": 2, "tau2": 2},
    }
    content["train"] = {**SMALL["train"], "engine": "sequential"}
    for section, values in sections.items():
        content[section] = {**content.get(section, {}), **values}
    return make_config(content)


def cli(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for task, name in (("regression", "fedavg"), ("regression", "fedavg-ic"), ("binary", "fedavg")):
        execute(by_path(task, name), folder / f"{task}-{name}")
    return folder


@pytest.mark.parametrize("task", NAMES)
@pytest.mark.parametrize("engine", ["vectorized", "sequential"])
def test_every_task_is_learnt(task: str, engine: str) -> None:
    config = coterie.make_config({**SMALL, "train": {**SMALL["train"], "engine": engine}})
    rows = [s.row for s in coterie.simulate(config, dataset=dataset(task), model=model(task))]
    first, last = rows[0], rows[-1]
    assert first.test_loss is not None and last.test_loss is not None
    assert last.test_loss < first.test_loss
    if task == "classification":
        assert first.metrics is None
    else:
        assert last.metrics is not None
        assert list(last.metrics) == list(coterie.TASKS[task].known)
    assert (last.test_accuracy is None) == (task == "regression")


def test_a_run_of_numbers_is_recorded_with_its_metrics(runs: Path) -> None:
    run = read_run(runs / "regression-fedavg")
    measured = [row for row in run.rows if metrics_of(row)]
    assert len(measured) >= 2
    assert list(metrics_of(run.summary)) == ["mse", "mae", "r2"]
    assert metrics_of(run.rows[-1]) == metrics_of(run.summary)
    assert run.summary["test_accuracy"] is None
    assert run.summary["metrics.mse"] == pytest.approx(run.rows[-1]["test_loss"], rel=1e-5)
    assert run.summary["metrics.r2"] > 0.5


def test_metrics_that_are_asked_for_are_measured_and_no_others(tmp_path: Path) -> None:
    config = by_path("regression", task={"metrics": ["mae", "tasked:far"]})
    execute(config, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert list(metrics_of(run.summary)) == ["mae", "far"]
    assert run.summary["metrics.far"] >= run.summary["metrics.mae"]


def test_classification_has_metrics_where_they_are_asked_for(tmp_path: Path) -> None:
    config = make_config({**SMALL, "data": {"sample": 0.1}, "task": {"metrics": ["accuracy"]}})
    execute(config, tmp_path / "run")
    row = read_run(tmp_path / "run").rows[-1]
    assert row["metrics.accuracy"] == row["test_accuracy"]


def test_a_metric_of_ones_own_measures_a_task_that_knows_none(tmp_path: Path) -> None:
    task = {"name": "tasked:UNMEASURED", "metrics": ["tasked:far"]}
    execute(by_path("regression", task=task), tmp_path / "run")
    assert list(metrics_of(read_run(tmp_path / "run").summary)) == ["far"]


@pytest.mark.parametrize(
    ("task", "kind"), [("UNCOUNTED", "classification"), ("NO_SIDES_RIGHT", "binary")]
)
@pytest.mark.parametrize("engine", ["vectorized", "sequential"])
def test_what_has_no_accuracy_has_none_by_class(
    task: str, kind: str, engine: str, tmp_path: Path
) -> None:
    def run(*measures: str) -> None:
        train = {**SMALL["train"], "engine": engine, "measure": ["accuracy", *measures]}
        content = {**SMALL, "train": train, "task": {"name": f"tasked:{task}"}}
        coterie.run(content, tmp_path / "run", dataset=dataset(kind), model=model(kind))

    with pytest.raises(ConfigError, match="classes needs one class for every example"):
        run("classes")
    run()
    last = read_run(tmp_path / "run").rows[-1]
    assert (last["test_accuracy"], last["by_class"]) == (None, None)
    assert 0.5 < last["metrics.accuracy"] <= 1


def test_classification_with_parts_of_ones_own_is_tried_before_it_is_trained(
    tmp_path: Path,
) -> None:
    content = {**SMALL, "task": {"name": "tasked:COUNTED_IN_ALL"}}
    data, net = dataset("classification"), model("classification")
    with pytest.raises(ModelError, match="right of task 'counted-in-all' must be one number for"):
        coterie.run(content, tmp_path / "run", dataset=data, model=net)


@pytest.mark.parametrize("task", PATHS)
@pytest.mark.parametrize("stop", [0, 2, 4])
def test_a_run_goes_on_byte_for_byte(task: str, stop: int, runs: Path, tmp_path: Path) -> None:
    config = by_path(task)
    stopped_at(stop, config, tmp_path / "run")
    execute(config, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(runs / f"{task}-fedavg")


def test_nodes_have_the_metrics_of_their_own_examples(tmp_path: Path) -> None:
    config = by_path("binary", data={"split": "per-node"}, train={"measure": ["accuracy", "nodes"]})
    execute(config, tmp_path / "run")
    stopped_at(2, config, tmp_path / "again")
    execute(config, tmp_path / "again", resume=True)
    assert outcome(tmp_path / "again") == outcome(tmp_path / "run")
    nodes = coterie.read_run(tmp_path / "run").node_columns()
    assert len(nodes["metrics.auc"]) == 6
    assert all(value is None or 0 <= value <= 1 for value in nodes["metrics.auc"])


@pytest.mark.parametrize("split", ["per-node", "pooled"])
def test_nodes_without_an_accuracy_have_their_loss_and_metrics(split: str, tmp_path: Path) -> None:
    config = by_path(
        "regression", data={"split": split}, train={"measure": ["accuracy", "nodes", "loss"]}
    )
    execute(config, tmp_path / "run")
    stopped_at(2, config, tmp_path / "again")
    execute(config, tmp_path / "again", resume=True)
    assert outcome(tmp_path / "again") == outcome(tmp_path / "run")
    run = coterie.read_run(tmp_path / "run")
    nodes = run.node_columns()
    assert nodes["accuracy"] == [None] * 6
    assert nodes["metrics.mse"] == pytest.approx(nodes["loss"], rel=1e-5)
    assert run.rows[-1]["node_loss"] == pytest.approx(sum(nodes["loss"]) / 6)
    assert run.rows[-1]["node_mean"] is None
    page = cli("report", tmp_path / "run", "-o", tmp_path / "page.html")
    assert page.exit_code == 0, page.output


@pytest.mark.parametrize("task", ["regression", "next-token", "multi-label"])
def test_classes_of_a_task_that_has_none_are_one_line(task: str) -> None:
    content = {**SMALL, "train": {**SMALL["train"], "measure": ["accuracy", "classes"]}}
    with pytest.raises(ConfigError, match=f"classes needs one class .* task '{task}' has not; l"):
        next(iter(coterie.simulate(content, dataset=dataset(task), model=model(task))))


def test_models_of_ones_own_are_measured_too() -> None:
    content = {**SMALL, "algorithm": {"name": "ditto"}}
    states = coterie.simulate(content, dataset=dataset("regression"), model=model("regression"))
    last = list(states)[-1].row
    assert last.metrics is not None and last.metrics["mse"] is not None
    assert last.metrics["mse"] == pytest.approx(last.test_loss, rel=1e-5)


def test_every_command_takes_runs_without_an_accuracy(runs: Path, tmp_path: Path) -> None:
    table = cli("compare", runs)
    assert table.exit_code == 0, table.output
    assert "mse" in table.output and "auc" in table.output
    out = ("-o", tmp_path / "slower")
    for words in (
        ("report", runs, "-o", tmp_path / "page.html"),
        ("figures", runs / "regression-fedavg", "-o", tmp_path / "figures"),
        ("export", runs, "-o", tmp_path / "rows.csv"),
        ("retime", runs / "regression-fedavg", "--set", "network.link_mbytes_per_s=10", *out),
    ):
        done = cli(*words)
        assert done.exit_code == 0, done.output
    with (tmp_path / "rows.csv").open() as file:
        assert "metrics.mse" in next(csv.reader(file))
    assert (tmp_path / "figures" / "mse-by-time.pdf").exists()
    page = (tmp_path / "page.html").read_text()
    assert '"metrics.mse"' in page and '"label":"r2"' in page.replace(": ", ":")
    slower = read_run(next((tmp_path / "slower").rglob("rows.jsonl")).parent)
    assert metrics_of(slower.summary) == metrics_of(read_run(runs / "regression-fedavg").summary)


def test_a_notebook_shows_a_run_by_its_first_metric(runs: Path) -> None:
    run = coterie.read_run(runs / "regression-fedavg")
    assert "mse" in repr(run)
    assert "mse by simulated seconds" in run._repr_html_()
    assert run.plot("metrics.r2") is not None
    assert run.plot() is not None
    assert coterie.compare(runs / "regression-fedavg").plot() is not None


BAD: dict[str, tuple[str, dict[str, Any], type[CoterieError], str]] = {
    "a target that does not fit": (
        "regression",
        {"task": {"name": "classification"}},
        DataError,
        "task.name 'classification' does not fit a dataset for regression: numbers: y must be 240",
    ),
    "a metric of another task": (
        "regression",
        {"task": {"metrics": ["auc"]}},
        ConfigError,
        "unknown task.metrics 'auc'; choose one of mse, mae, r2",
    ),
    "a metric that is not there": (
        "regression",
        {"task": {"metrics": ["tasked:nothing"]}},
        ConfigError,
        "tasked has no function 'nothing'",
    ),
    "a metric that raises": (
        "regression",
        {"task": {"metrics": ["tasked:breaks"]}},
        TrainingError,
        r"metric 'breaks' raised ValueError: no such luck \(tasked.py, line \d+\) at the start",
    ),
    "a metric that says nothing": (
        "binary",
        {"task": {"metrics": ["tasked:says_nothing"]}},
        TrainingError,
        "metric 'says_nothing' must return a number, got NoneType at the start",
    ),
    "a target accuracy of what has none": (
        "regression",
        {"algorithm": {"name": "fedavg-ic", "tau1": "auto", "target_accuracy": 0.5}},
        ConfigError,
        "target_accuracy is a share of right answers, which task 'regression' has not",
    ),
    "a loss that is a mean where it must be a sum": (
        "regression",
        {"task": {"name": "own_losses:MEANS"}},
        ModelError,
        "the loss of task 'means' must be the sum of the examples' losses with reduction 'sum', ",
    ),
    "a loss that is no tensor, with another engine": (
        "regression",
        {"task": {"name": "own_losses:FLOATS"}, "train": {"engine": "sequential"}},
        ModelError,
        "the loss of task 'floats' must be one number with reduction 'sum', got float",
    ),
    "a task that nothing measures": (
        "regression",
        {"task": {"name": "tasked:UNMEASURED"}},
        ConfigError,
        "task 'unmeasured' has neither an accuracy nor a metric, .*; name one in task.metrics",
    ),
    "a model of another width": (
        "regression",
        {"model": {"name": "tasked:sides_model"}},
        ModelError,
        "'tasked:sides_model' must return .*2.*got",
    ),
}


@pytest.mark.parametrize(("task", "sections", "kind", "says"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_one_line(
    task: str, sections: dict[str, Any], kind: type[CoterieError], says: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=says) as caught:
        execute(by_path(task, **sections), tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_metric_that_fails_later_names_the_step(tmp_path: Path) -> None:
    config = by_path("regression", task={"metrics": ["tasked:fails_later"]})
    with pytest.raises(TrainingError, match=r"metric 'fails_later' raised .* after step 2$"):
        execute(config, tmp_path / "run")


def test_a_folder_alone_names_no_metric_to_call(tmp_path: Path) -> None:
    config = by_path("regression", task={"metrics": ["mae", "tasked:far"]})
    stopped_at(2, config, tmp_path / "run")
    alone = cli("run", "--resume", tmp_path / "run")
    assert alone.exit_code == 2
    assert "names code" in alone.output
    meta = json.loads((tmp_path / "run" / "meta.json").read_text())
    assert "tasked:far" in meta["code"]


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A sweep of two learning rates, chosen by the loss on the validation part."""
    folder = tmp_path_factory.mktemp("rates")
    file = folder / "numbers.toml"
    data = "[data]\nname = 'tasked:numbers'\n[model]\nname = 'tasked:numbers_model'\n"
    plain = "[partition]\nkind = 'iid'\nnum_nodes = 6\n[train]\nsteps = 6\nbatch_size = 8\n"
    chosen = "[sweep]\nselect = 'val_loss'\n'train.lr' = [0.001, 0.2]\n"
    file.write_text(data + plain + chosen)
    return file, cli("sweep", file, "--out", folder / "runs", "--jobs", 1).output


def test_a_sweep_without_an_accuracy_chooses_by_the_loss_on_the_validation_part(
    rates: tuple[Path, str],
) -> None:
    file, said = rates
    assert "best val_loss first" in said
    assert f"best: coterie run {file} --set train.lr=0.2" in said
    runs = [read_run(path.parent) for path in file.parent.rglob("summary.json")]
    losses = {run.config["train"]["lr"]: run.summary["val_loss"] for run in runs}
    assert losses[0.2] < losses[0.001]


def test_the_best_of_a_line_without_an_accuracy_is_the_one_of_least_loss(
    rates: tuple[Path, str],
) -> None:
    done = cli("compare", rates[0].parent / "runs", "--best", "train.lr")
    assert done.exit_code == 0, done.output
    assert "\nfedavg-ic  0.2 " in done.output


def test_to_choose_by_an_accuracy_that_a_task_has_not_is_refused_before_training(
    rates: tuple[Path, str], tmp_path: Path
) -> None:
    file = tmp_path / "numbers.toml"
    file.write_text(rates[0].read_text().replace("val_loss", "val_accuracy"))
    done = cli("sweep", file, "--out", tmp_path / "runs", "--jobs", 1)
    assert done.exit_code == 2
    assert done.output == (
        "coterie: sweep.select = 'val_accuracy': task 'regression' has no accuracy; take "
        "'val_loss', or 'train_loss' with loss in train.measure\n"
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("more", [(), ("--target", "0.8")])
def test_a_table_without_an_accuracy_says_that_it_has_no_target(
    rates: tuple[Path, str], more: tuple[str, ...]
) -> None:
    done = cli("compare", rates[0].parent / "runs", *more)
    assert done.exit_code == 0, done.output
    assert "target: none; this task has no accuracy to reach" in done.output
