"""Scores node by node: what a run folder holds of them, and what a run that was stopped does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coterie.config.settings import Config
from coterie.core.errors import RecordError
from coterie.runs.execute import execute
from coterie.runs.node_scores import COLUMNS, LOG, accuracies, last_scores, read_log, read_table
from coterie.runs.record import read_run
from coterie.runs.retime import retime, write_retimed
from resuming import coterie, outcome, stopped_at, tiny


def measured(*words: str, groups: bool = True, **more: Any) -> Config:
    config = tiny(**more)
    train = replace(config.train, measure=words or ("accuracy", "nodes"), measure_groups=groups)
    return replace(config, train=train)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nodes") / "run"
    execute(measured(), folder)
    return folder


def test_there_is_a_line_for_every_node_and_measured_step(whole: Path) -> None:
    run, table = read_run(whole), read_table(whole)
    assert table is not None
    assert list(table) == list(COLUMNS)
    steps = [row["t"] for row in run.rows if row["node_mean"] is not None]
    assert len(steps) == len(run.rows)  # groups are scored, too
    assert table["t"] == [t for t in steps for _ in range(10)]
    assert table["node"] == list(range(10)) * len(steps)
    assert table["edge"][:10] == run.grouping["edge_of"]
    assert table["group"][-10:] == run.grouping["z"]
    assert table["group"][:10] == [0] * 10  # before there were groups
    assert table["examples"][:10] == [sum(counts) for counts in run.grouping["class_counts"]]
    for at, row in enumerate(run.rows):
        own = table["accuracy"][10 * at : 10 * at + 10]
        assert sum(own) / 10 == pytest.approx(row["node_mean"])
    assert len(set(table["accuracy"][-20:-10])) == 3  # three groups' models
    assert not (whole / LOG).exists()


def test_the_summary_has_the_spread_and_every_class(whole: Path) -> None:
    run = read_run(whole)
    table = read_table(whole)
    assert table is not None
    found = accuracies(table)
    assert run.summary["node_mean"] == pytest.approx(sum(found) / len(found))
    assert run.summary["node_worst"] == pytest.approx(min(found))
    assert run.summary["node_sd"] == 0
    assert len(run.summary["by_class"]) == 10
    assert set(last_scores(table)["t"]) == {12}


def test_a_run_that_does_not_score_nodes_has_no_table(tmp_path: Path) -> None:
    execute(measured("accuracy", groups=False), tmp_path / "run")
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith("nodes")]
    assert read_table(tmp_path / "run") is None
    assert read_run(tmp_path / "run").summary["node_mean"] is None


def test_where_pyarrow_is_missing_the_table_is_csv(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_pyarrow = read_table(whole)
    monkeypatch.setattr("coterie.runs.node_scores.has_parquet", lambda: False)
    execute(measured(), tmp_path / "run")
    assert (tmp_path / "run" / "nodes.csv").exists()
    assert not (tmp_path / "run" / "nodes.parquet").exists()
    assert read_table(tmp_path / "run") == with_pyarrow
    with pytest.raises(RecordError, match=r"nodes.parquet: needs coterie\[parquet\]"):
        read_table(whole)


@pytest.mark.parametrize("words", [("accuracy", "nodes"), ("accuracy/2", "nodes/3", "Delta/2")])
def test_a_run_stopped_on_the_way_ends_with_the_same_scores(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    what = measured(*words)
    execute(what, tmp_path / "undisturbed")
    for t in (0, 3, 6):
        stopped_at(t, what, tmp_path / "run")
        table = read_table(tmp_path / "run")
        assert table is not None  # of an interrupted run, as far as it came
        assert max(table["t"]) <= t
    execute(what, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


def test_what_was_scored_after_the_checkpoint_is_cut_off(tmp_path: Path) -> None:
    what = measured()
    execute(what, tmp_path / "undisturbed")
    stopped_at(6, what, tmp_path / "run")
    log = tmp_path / "run" / LOG
    lines = log.read_bytes()
    assert [line["t"] for line in read_log(tmp_path / "run")] == [0, 1, 2, 3, 4, 5, 6]
    last = json.loads(lines.splitlines()[-1])
    ahead = json.dumps({**last, "t": 7, "right": [0] * 10}).encode()
    log.write_bytes(lines + ahead + b"\n" + ahead[:40])  # as by a process that was killed
    execute(what, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


def test_a_checkpoint_whose_scores_are_lost_is_not_gone_on_from(tmp_path: Path) -> None:
    what = measured()
    execute(what, tmp_path / "undisturbed")
    stopped_at(6, what, tmp_path / "run")
    (tmp_path / "run" / LOG).unlink()
    said: list[str] = []
    execute(what, tmp_path / "run", resume=True, say=said.append)
    assert any("nodes.jsonl does not hold its 7 lines" in line for line in said)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("nodes.parquet", b"PAR1 no"),
        ("nodes.csv", b"t,node\n0,0\n"),
        ("nodes.csv", (",".join(COLUMNS) + "\n0,0,a,0,0,5,5,1.5,0.1\n").encode()),
        ("nodes.csv", (",".join(COLUMNS) + "\n0,-1,a,0,0,5,5,0.5,0.1\n").encode()),
        ("nodes.csv", (",".join(COLUMNS) + "\n0,x,a,0,0,5,5,0.5,0.1\n").encode()),
        ("nodes.csv", b""),
    ],
)
def test_a_damaged_table_is_refused_in_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecordError, match="damaged scores of nodes") as caught:
        read_table(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_run_timed_again_keeps_its_scores(whole: Path, tmp_path: Path) -> None:
    found = retime(read_run(whole), ["network.link_mbytes_per_s=10"])
    write_retimed(found, tmp_path / "again")
    again, before = read_table(tmp_path / "again"), read_table(whole)
    assert again == before is not None
    assert found.rows[-1]["node_mean"] == read_run(whole).rows[-1]["node_mean"]


def test_commands_read_runs_whose_rows_are_not_all_measured(tmp_path: Path) -> None:
    for name in ("fedavg", "fedavg-ic"):
        what = measured("accuracy/2", "loss/3", "nodes/5", name=name, groups=False)
        execute(what, tmp_path / "runs" / name)
    for words in (
        ("compare", tmp_path / "runs"),
        ("report", tmp_path / "runs", "-o", tmp_path / "page.html"),
        ("export", tmp_path / "runs", "-o", tmp_path / "rows.csv"),
        ("export", tmp_path / "runs", "-o", tmp_path / "rows.parquet"),
        ("figures", tmp_path / "runs", "-o", tmp_path / "figures"),
    ):
        done = coterie(*words)
        assert done.exit_code == 0, (words, done.output)
