"""Runs as one tidy table."""

import csv
import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from coterie.analysis.export import Table, encode, flat, rows_table, summary_table, to_csv
from coterie.config.files import expand
from coterie.runs.execute import execute
from coterie.runs.record import RecordedRun, find_runs
from coterie.runs.sweep import plan_jobs
from recorded import recorded
from resuming import coterie

SWEEP = {
    "partition": {"num_nodes": 20},
    "train": {"steps": 3},
    "sweep": {"algorithm.name": ["fedavg", "hierfavg"], "train.batch_size": ["full", 10]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for job in plan_jobs(expand(SWEEP), folder):
        execute(job.config, job.folder)
    return folder


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[RecordedRun]:
    return find_runs([folder])[0]


def lines_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_every_row_of_every_run_is_a_line_with_what_tells_the_runs_apart(
    folder: Path, runs: list[RecordedRun], tmp_path: Path
) -> None:
    done = coterie("export", folder, "-o", tmp_path / "rows.csv")
    assert done.exit_code == 0, done.output
    lines = lines_of(tmp_path / "rows.csv")
    assert f"{len(lines)} lines, {len(lines[0])} columns, 4 runs" in done.output
    assert sorted(list(lines[0])[:3]) == ["algorithm.name", "run", "train.batch_size"]
    assert list(lines[0])[3:6] == ["seed", "t", "epoch"]
    assert len(lines) == sum(len(run.rows) for run in runs)
    whole = [{**row, "of": run.folder.name} for run in runs for row in run.rows]
    for line, row in zip(lines, whole, strict=True):
        assert line["run"] == row["of"]
        assert float(line["seconds"]) == row["seconds"]  # to the last digit
        assert line["train_loss"] == ("" if row["train_loss"] is None else str(row["train_loss"]))
        assert int(line["groups"]) == len(row["group_sizes"])
        assert line["bytes.core"] == str(row["bytes_by_tier"].get("core", ""))


def test_labels_are_a_column_where_runs_have_some() -> None:
    runs = [recorded([(0.0, 0.1), (1.0, 0.5)], seed, label="mine") for seed in (0, 1)]
    runs.append(recorded([(0.0, 0.1), (1.0, 0.5)]))
    assert rows_table(runs)["label"] == ["mine"] * 4 + [None] * 2
    assert summary_table(runs)["label"] == ["mine", "mine", None]
    assert "label" not in summary_table(runs[2:])


def test_a_summary_has_one_line_for_every_run(
    folder: Path, runs: list[RecordedRun], tmp_path: Path
) -> None:
    assert coterie("export", folder, "--summary", "-o", tmp_path / "runs.csv").exit_code == 0
    lines = lines_of(tmp_path / "runs.csv")
    assert [line["run"] for line in lines] == [run.folder.name for run in runs]
    assert [float(line["test_accuracy"]) for line in lines] == [
        run.summary["test_accuracy"] for run in runs
    ]
    assert {line["status"] for line in lines} == {"complete"}
    assert {line["group_sizes"] for line in lines} == {"20", "10x2"}


def test_parquet_holds_the_same_with_types(
    folder: Path, runs: list[RecordedRun], tmp_path: Path
) -> None:
    assert coterie("export", folder, "-o", tmp_path / "rows.parquet").exit_code == 0
    read = parquet.read_table(tmp_path / "rows.parquet")
    assert read.to_pydict() == {
        name: [None if v is None else str(v) for v in values]
        if name == "train.batch_size"
        else values
        for name, values in rows_table(runs).items()
    }
    kinds = {name: str(read.schema.field(name).type) for name in read.column_names}
    assert kinds["t"] == kinds["bytes.core"] == "int64"
    assert kinds["seconds"] == kinds["Delta"] == "double"
    assert kinds["train.batch_size"] == "string"  # full, or a number


def test_the_same_runs_give_the_same_bytes(runs: list[RecordedRun]) -> None:
    for name in ("a.csv", "a.parquet"):
        both = [encode(table(runs), Path(name)) for table in (rows_table, rows_table)]
        assert both[0] == both[1]
    assert len(next(iter(summary_table(runs).values()))) == len(runs)


def test_one_run_is_named_by_its_folder(folder: Path, tmp_path: Path) -> None:
    one = next(path for path in sorted(folder.iterdir()) if path.is_dir())
    assert coterie("export", one, "-o", tmp_path / "one.CSV").exit_code == 0
    assert {line["run"] for line in lines_of(tmp_path / "one.CSV")} == {one.name}


@pytest.mark.parametrize("text", ["=1+1", "+x", "-x", "@x", "\tx", "=cmd|' /C calc'!A0"])
def test_no_text_of_a_csv_is_a_formula_and_no_number_is_touched(text: str) -> None:
    (line,) = csv.DictReader(io.StringIO(to_csv({text: [text], "n": [-1.5]}).decode()))
    assert line == {f"'{text}": f"'{text}", "n": "-1.5"}


def test_what_is_nested_and_unknown_is_json() -> None:
    assert flat({"odd": [1, {"a": 2}], "group_sizes": []}) == {
        "odd": json.dumps([1, {"a": 2}]),
        "group_sizes": "[]",
    }


@pytest.mark.skipif(
    sys.getfilesystemencoding() != "utf-8", reason="names of files are not UTF-8 in this locale"
)
def test_a_folder_whose_name_is_no_text_is_written_with_its_bytes(
    folder: Path, tmp_path: Path
) -> None:
    one = next(path for path in sorted(folder.iterdir()) if path.is_dir())
    for name in (b"caf\xe9", "café".encode()):
        shutil.copytree(one, os.fsdecode(os.fsencode(tmp_path / "runs") + b"/" + name))
    for out in ("rows.csv", "rows.parquet"):
        done = coterie("export", tmp_path / "runs", "-o", tmp_path / out)
        assert done.exit_code == 0, done.output
    assert {line["run"] for line in lines_of(tmp_path / "rows.csv")} == {"café", "caf\\xe9"}
    read = parquet.read_table(tmp_path / "rows.parquet")
    assert set(read.to_pydict()["run"]) == {"café", "caf\\xe9"}


def test_text_that_cannot_be_encoded_is_escaped() -> None:
    table = {"event": ["\ud800", "global"]}
    assert to_csv(table) == b"event\n\\ud800\nglobal\n"
    assert b"\\ud800" in encode(table, Path("a.parquet"))


@pytest.mark.parametrize(
    ("name", "says"),
    [("rows.xlsx", "must end in .csv or .parquet, got '.xlsx'"), ("rows", "got 'no suffix'")],
)
def test_other_formats_are_refused_before_anything_is_read(
    name: str, says: str, tmp_path: Path
) -> None:
    done = coterie("export", tmp_path / "nowhere", "-o", tmp_path / name)
    assert done.exit_code == 2
    assert says in done.output
    assert done.output.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_one_line_and_leaves_nothing(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.csv").mkdir()
    for out in (tmp_path / "file" / "x.csv", tmp_path / "folder.csv"):
        done = coterie("export", folder, "-o", out)
        assert done.exit_code == 2
        assert done.output.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder.csv"]


def test_runs_left_out_are_told_of(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "runs")
    first = next(path for path in sorted((tmp_path / "runs").iterdir()) if path.is_dir())
    (first / "summary.json").unlink()
    done = coterie("export", tmp_path / "runs", "--summary", "-o", tmp_path / "rows.csv")
    assert f"left out: {first}: unfinished" in done.output
    assert len(lines_of(tmp_path / "rows.csv")) == 3


def test_parquet_takes_numbers_and_names_of_any_size_and_make(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table: Table = {
        "big": [2**64, -1, None],
        "mixed": [2**60 + 1, 0.5, None],
        "huge": [10**400, 0.5, 1],
    }
    path.write_bytes(encode({**table, "\ud800": ["\udcff", None, "b"]}, path))
    assert parquet.read_table(path).to_pydict() == {
        "big": [str(2**64), "-1", None],
        "mixed": [float(2**60), 0.5, None],
        "huge": [str(10**400), "0.5", "1"],
        "\\ud800": ["\\udcff", None, "b"],
    }
