"""Odd values in recorded runs: each is left out with a line, whatever shows it."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from coterie.core.errors import RecordError
from coterie.render.watch import Live
from coterie.runs.record import RUNS, below, find_runs
from coterie.runs.sweep import recorded_jobs
from made_runs import made_run, write_run
from resuming import coterie

ODD = [
    ("summary.json", ("d_local",), 1e999, "summary.json: Number out of range"),
    ("summary.json", ("bytes_by_tier", "pod"), 1e999, "summary.json: Number out of range"),
    ("summary.json", ("seconds",), 1e306, "seconds must be < 1e+100, got 1e+306"),
    ("summary.json", ("steps",), 10**400, "steps must be a number, got 1000"),
    ("summary.json", ("val_accuracy",), "x", "val_accuracy must be a number, got 'x'"),
    ("summary.json", ("group_sizes",), ["a", 1], "group_sizes[0] must be a whole number, got 'a'"),
    (
        "summary.json",
        ("bytes_by_tier",),
        {"pod": "x"},
        "bytes_by_tier[...] must be a number, got",
    ),
    ("summary.json", ("status",), "new", "summary.json: unknown status 'new'"),
    ("summary.json", ("status",), ["complete"], "status must be text, got ['complete']"),
    ("grouping.json", ("edges",), ["one"], "edges must name all 10, or none"),
    ("grouping.json", ("class_counts",), [[]] * 20, "class_counts must count examples, got none"),
    ("grouping.json", ("class_counts",), [[0]] * 20, "class_counts must count examples, got none"),
    ("grouping.json", ("nodes",), None, "nodes must be a list, got None"),
    ("grouping.json", ("servers",), ["x"], "servers[0] must be a whole number, got 'x'"),
    ("grouping.json", ("edge_of", 0), 10**9, "edge_of names edge 1000000000 of 20 nodes"),
    (
        "grouping.json",
        ("class_counts", 0, 0),
        10**30,
        "class_counts[0][0] must be <= 90071992",
    ),
    ("grouping.json", ("class_counts", 0, 0), -1, "class_counts[0][0] must be >= 0, got -1"),
    (
        "config.toml",
        ("algorithm", "name"),
        ["fedavg"],
        "algorithm.name must be text, got ['f",
    ),
    ("config.toml", ("train", "lr"), float("nan"), "train.lr must be > -1e+100, got nan"),
    ("config.toml", ("train", "lr"), [0.1], "train.lr must be a number, got [0.1]"),
    ("config.toml", ("network",), 3, "config.toml: network must be an object, got 3"),
    ("config.toml", ("label",), 3, "config.toml: label must be text, got 3"),
    ("config.toml", ("seed",), True, "seed must be a whole number, got True"),
    ("rows.jsonl", (1, "seconds"), 1e999, "rows.jsonl line 2: Number out of range"),
    ("rows.jsonl", (1, "epoch"), None, "rows.jsonl line 2: epoch must be a number, got None"),
    (
        "rows.jsonl",
        (2, "group_sizes"),
        [20, "x"],
        "line 3: group_sizes[1] must be a whole number",
    ),
    ("rows.jsonl", (2, "t"), 1.5, "rows.jsonl line 3: t must be a whole number, got 1.5"),
]


def damage(path: Path, where: tuple[Any, ...], value: object) -> None:
    """Put a value into a file of a run; of an infinite one JSON has 1e999."""
    text = path.read_text()
    content: Any = (
        tomllib.loads(text)
        if path.suffix == ".toml"
        else [json.loads(line) for line in text.splitlines()]
    )
    at = content[0] if path.suffix == ".json" else content
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    if path.suffix == ".toml":
        path.write_text(tomli_w.dumps(content))
    else:
        lines = [json.dumps(line).replace("Infinity", "1e999") + "\n" for line in content]
        path.write_text("".join(lines))


@pytest.mark.parametrize(("name", "where", "value", "says"), ODD)
def test_an_odd_run_is_left_out_with_a_line_everywhere(
    tmp_path: Path, name: str, where: tuple[Any, ...], value: object, says: str
) -> None:
    runs = tmp_path / "runs"
    bad = write_run(made_run(runs / "bad", "fedavg-ic"))
    write_run(made_run(runs / "good"))
    damage(bad / name, where, value)
    found, (line,) = find_runs([runs])
    assert [run.folder.name for run in found] == ["good"]
    assert says in line
    data = json.loads(Live(runs).latest().body)
    assert {run["name"]: run["status"] for run in data["runs"]} == {
        "bad": "damaged",
        "good": "complete",
    }
    assert data["page"]["left_out"] == [line]
    for words in (
        ["compare", runs, "--json"],
        ["report", runs, "-o", tmp_path / "page.html"],
        ["export", runs, "-o", tmp_path / "rows.csv"],
        ["export", runs, "--summary", "-o", tmp_path / "runs.parquet"],
    ):
        done = coterie(*words)
        assert done.exit_code == 0, done.output
        assert f"left out: {line}" in done.output


def dropped(rows: list[str], at: int) -> list[str]:
    return rows[:at] + rows[at + 1 :]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows[:2], "complete with t from 0 to 1, must be 0 to 4"),
        (lambda rows: rows[1:], "complete with t from 1 to 4, must be 0 to 4"),
        (lambda rows: dropped(rows, 2), "complete with 4 rows, not those of config.toml"),
        (lambda rows: rows[::-1], "line 2: t must be > 4 of the line before, got 3"),
        (lambda rows: [*rows, *rows], "line 6: t must be > 4 of the line before, got 0"),
        (
            lambda rows: [row.replace('"t": 2', '"t": 0') for row in rows],
            "line 3: t must be > 1 of the line before, got 0",
        ),
        (
            lambda rows: [row.replace('"seconds": 0.0', '"seconds": -5') for row in rows],
            "line 1: seconds must be >= 0.0, got -5",
        ),
        (
            lambda rows: [row.replace('"seconds": 2.0', '"seconds": 0.5') for row in rows],
            "line 3: seconds must be >= 1.0, got 0.5",
        ),
        (
            lambda rows: [row.replace('"seconds": 4.0', '"seconds": 5.0') for row in rows],
            "its last seconds must be 4.0 as in summary.json, got 5.0",
        ),
        (
            lambda rows: [row.replace('_accuracy": 0.6', '_accuracy": 5.0') for row in rows],
            "line 4: test_accuracy must be from 0 to 1, got 5.0",
        ),
        (
            lambda rows: [row.replace('_accuracy": 0.7', '_accuracy": 0.8') for row in rows],
            "its last test_accuracy must be 0.7 as in summary.json, got 0.8",
        ),
    ],
)
def test_rows_that_were_lost_or_moved_or_changed_leave_a_complete_run_out(
    tmp_path: Path, change: Callable[[list[str]], list[str]], says: str
) -> None:
    path = (
        write_run(made_run(tmp_path / "run", accuracies=(0.1, 0.4, 0.5, 0.6, 0.7))) / "rows.jsonl"
    )
    assert len(find_runs([tmp_path])[0]) == 1
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    with pytest.raises(RecordError) as refused:
        find_runs([tmp_path])
    assert f"damaged run folder (rows.jsonl{'' if says.startswith('line') else ':'} {says}" in str(
        refused.value
    )


def test_a_complete_run_has_the_steps_of_its_settings(tmp_path: Path) -> None:
    run = write_run(made_run(tmp_path / "run"))
    damage(run / "config.toml", ("train", "steps"), 3)
    with pytest.raises(RecordError, match=r"complete after step 2, config\.toml has 3 steps"):
        find_runs([tmp_path])


def test_rows_of_a_run_under_way_are_in_order_too(tmp_path: Path) -> None:
    run = write_run(made_run(tmp_path / "run"))
    (run / "summary.json").unlink()
    rows = (run / "rows.jsonl").read_text().splitlines(keepends=True)
    (run / "rows.jsonl").write_text("".join(rows[:2]))
    assert json.loads(Live(tmp_path).latest().body)["runs"][0]["status"] != "damaged"
    (run / "rows.jsonl").write_text("".join(rows[1::-1]))
    assert json.loads(Live(tmp_path).latest().body)["runs"][0]["status"] == "damaged"


def test_a_complete_run_without_rows_is_left_out(tmp_path: Path) -> None:
    bad = write_run(made_run(tmp_path / "bad"))
    (bad / "rows.jsonl").write_text("")
    with pytest.raises(RecordError, match=r"rows\.jsonl: complete without test_accuracy"):
        find_runs([tmp_path])


def test_a_file_of_brackets_only_is_left_out(tmp_path: Path) -> None:
    bad = write_run(made_run(tmp_path / "bad"))
    (bad / "meta.json").write_text("[" * 100_000)
    with pytest.raises(RecordError, match=r"damaged run folder \(meta\.json: "):
        find_runs([tmp_path])


@pytest.mark.parametrize(
    "name",
    [
        "/etc",
        "../elsewhere",
        "a/../../b",
        "",
        ".",
        "a\0b",
        "a\nb",
        "a/" * 1000,
        "a/" * 20,
        "a" * 2000,
    ],
)
def test_a_sweeps_list_leads_nowhere_but_below_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a folder below it"):
        below(tmp_path, name)
    run = made_run(tmp_path / "a")
    told = {"runs": [{"folder": name, "config": run.config}]}
    (tmp_path / RUNS).write_text(json.dumps(told))
    with pytest.raises(RecordError, match=r"runs\.json: cannot be read \(.* a folder below it"):
        recorded_jobs(tmp_path)
    data = json.loads(Live(tmp_path).latest().body)
    assert data["runs"] == []
    assert "is not the name of a folder below it" in data["page"]["left_out"][0]
