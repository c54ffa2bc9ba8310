"""Runs that measure the test accuracy alone: everything that reads a run copes with that."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from coterie.config.files import expand, make_config, to_toml
from coterie.config.settings import Config
from coterie.core.errors import ConfigError, DivergenceError
from coterie.engine.contract import HeldPart, Models, NodeScores, Score
from coterie.engine.vectorized import Vectorized
from coterie.runs.execute import execute
from coterie.runs.record import read_run
from resuming import TINY, coterie, outcome, stopped_at, tiny


def alone(config: Config) -> Config:
    return replace(config, train=replace(config.train, measure=("accuracy",)))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    for name in ("fedavg", "fedavg-ic"):
        execute(alone(tiny(name)), folder / name)
    return folder


def test_no_row_and_no_summary_has_a_training_loss(runs: Path) -> None:
    run = read_run(runs / "fedavg")
    assert [row["train_loss"] for row in run.rows] == [None] * len(run.rows)
    assert run.summary["train_loss"] is None
    assert run.summary["test_accuracy"] == run.rows[-1]["test_accuracy"] is not None
    assert run.rows[0]["test_accuracy"] is not None


def test_the_rest_is_that_of_a_run_which_measures_more(runs: Path, tmp_path: Path) -> None:
    execute(tiny("fedavg"), tmp_path / "run")
    more, less = read_run(tmp_path / "run"), read_run(runs / "fedavg")
    for key in ("test_accuracy", "val_accuracy", "by_class", "seconds", "bytes_by_tier"):
        assert less.summary[key] == more.summary[key]
    model = "model.safetensors"
    assert (runs / "fedavg" / model).read_bytes() == (tmp_path / "run" / model).read_bytes()


def test_it_goes_on_where_it_stopped(runs: Path, tmp_path: Path) -> None:
    for t in (0, 6):
        stopped_at(t, alone(tiny("fedavg-ic")), tmp_path / "run")
    execute(alone(tiny("fedavg-ic")), tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(runs / "fedavg-ic")


@pytest.mark.parametrize(
    "words",
    [
        ("compare",),
        ("report", "-o", "page.html"),
        ("figures", "-o", "figures"),
        ("export", "-o", "rows.csv"),
        ("retime", "--set", "network.link_mbytes_per_s=10", "-o", "slower"),
    ],
    ids=lambda words: words[0],
)
def test_every_reader_takes_it(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = coterie(words[0], runs / "fedavg", runs / "fedavg-ic", *words[1:])
    assert done.exit_code == 0, done.output
    if "-o" in words:
        assert (tmp_path / words[-1]).exists()


def test_it_diverges_by_the_loss_on_the_test_part(tmp_path: Path) -> None:
    train = {"steps": 1, "lr": 1e38, "lr_decay": 1.0, "measure": ["accuracy"]}
    wild = make_config({**TINY, "algorithm": {"name": "fedavg"}, "train": train})
    with pytest.raises(DivergenceError, match=r"the loss is (nan|inf) after step 1; lower"):
        execute(wild, tmp_path / "run")
    assert read_run(tmp_path / "run").summary["status"] == "diverged"


def test_settings_cannot_be_chosen_by_a_loss_that_is_not_measured(tmp_path: Path) -> None:
    content = {"sweep": {"select": "train_loss", "seed": [0, 1]}, "train": {"measure": "accuracy"}}
    with pytest.raises(ConfigError, match=r"'train_loss' needs loss in train\.measure, got accur"):
        expand(content)
    content["train"] = {"measure": ["accuracy", "loss/10"]}
    assert len(expand(content)) == 2


def test_the_test_part_is_scored_once_for_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: Counter[str] = Counter()
    plain_evaluate, plain_nodes = Vectorized.evaluate, Vectorized.score_nodes

    def evaluate(engine: Vectorized, w: Tensor, part: HeldPart) -> Score:
        scored[part] += 1
        return plain_evaluate(engine, w, part)

    def score_nodes(engine: Vectorized, models: Models, part: HeldPart) -> NodeScores:
        scored[f"nodes {part}"] += 1
        return plain_nodes(engine, models, part)

    monkeypatch.setattr(Vectorized, "evaluate", evaluate)
    monkeypatch.setattr(Vectorized, "score_nodes", score_nodes)
    config = tiny("fedavg")
    execute(config, tmp_path / "run")
    run = read_run(tmp_path / "run")
    rows = sum(row["test_accuracy"] is not None for row in run.rows)
    assert scored == {"test": rows, "val": 1}
    assert np.mean(run.summary["by_class"]) == pytest.approx(run.summary["test_accuracy"], abs=0.05)


def test_what_a_pilot_goes_by_is_measured_all_the_same(tmp_path: Path) -> None:
    config = alone(tiny("fedavg-ic", steps=20, tau1="auto", tau2="auto", grouping="edge"))
    (tmp_path / "my.toml").write_text(to_toml(config))
    assert coterie("run", tmp_path / "my.toml", "-o", tmp_path / "run").exit_code == 0
    run = read_run(tmp_path / "run")
    assert run.rows[0]["train_loss"] > run.rows[-1]["train_loss"] > 0


def test_a_run_that_does_not_validate_is_the_same_and_scores_no_validation_part(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored = Counter[HeldPart]()
    evaluate = Vectorized.evaluate

    def counted(self: Vectorized, w: Tensor, part: HeldPart) -> Score:
        scored[part] += 1
        return evaluate(self, w, part)

    monkeypatch.setattr(Vectorized, "evaluate", counted)
    config = alone(tiny("fedavg"))
    execute(replace(config, train=replace(config.train, validate=False)), tmp_path / "run")
    assert scored["val"] == 0 < scored["test"]
    less, more = read_run(tmp_path / "run").summary, read_run(runs / "fedavg").summary
    assert less["val_accuracy"] is less["val_loss"] is None
    assert more["val_accuracy"] is not None
    assert all(less[key] == more[key] for key in more if not key.startswith(("val_", "wall")))
    done = coterie("compare", tmp_path / "run", "--best", "train.lr")
    assert "needs; run it again, with train.validate = true" in done.stderr
    assert coterie("compare", tmp_path / "run", runs / "fedavg").exit_code == 0


def test_settings_cannot_be_chosen_by_a_part_that_is_not_scored() -> None:
    told = {"sweep": {"select": "val_loss", "train.lr": [0.1]}, "train": {"validate": False}}
    with pytest.raises(ConfigError, match=r"sweep\.select = 'val_loss' needs train\.validate = tr"):
        expand(told)
