"""Runs that cannot be read are left out by name, with the way to have them again."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from coterie.cli import main
from coterie.core.errors import RecordError
from coterie.runs.record import find_runs
from made_runs import made_run, write_run


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            lambda f: f.joinpath("rows.jsonl").write_text('{"t": 0}\n'),
            "rows.jsonl line 1: has no 'seconds'",
        ),
        (
            lambda f: f.joinpath("rows.jsonl").write_text(
                f.joinpath("rows.jsonl").read_text().replace('"seconds": 1.0', '"seconds": oops')
            ),
            "rows.jsonl line 2: JSON is malformed: invalid character",
        ),
        (
            lambda f: f.joinpath("rows.jsonl").write_text(
                f.joinpath("rows.jsonl").read_text().replace("1.9", "NaN")
            ),
            "rows.jsonl line 1: JSON is malformed: invalid character",
        ),
        (
            lambda f: f.joinpath("rows.jsonl").write_text(
                f.joinpath("rows.jsonl").read_text().rstrip("}\n")
            ),
            "rows.jsonl line 3: cut off",
        ),
        (
            lambda f: f.joinpath("grouping.json").write_text('{"z": 1}'),
            "grouping.json: z must be a list, got 1",
        ),
        (
            lambda f: f.joinpath("grouping.json").write_text(
                f.joinpath("grouping.json").read_text().replace('"edge_of": [0, ', '"edge_of": [')
            ),
            "class_counts and edge_of must have an entry for every node",
        ),
        (
            lambda f: f.joinpath("grouping.json").write_text(
                f.joinpath("grouping.json").read_text().replace("[10, 0,", '["x", 0,')
            ),
            "grouping.json: class_counts[0][0] must be a whole number, got 'x'",
        ),
        (lambda f: f.joinpath("grouping.json").unlink(), "grouping.json is missing"),
        (lambda f: f.joinpath("meta.json").write_text("{}"), "not written by this version"),
        (
            lambda f: f.joinpath("config.toml").write_text(
                f.joinpath("config.toml").read_text().replace('"fedavg"', '"fedavg-9"')
            ),
            "config.toml: unknown algorithm.name 'fedavg-9'; did you mean",
        ),
        (lambda f: f.joinpath("rows.jsonl").write_bytes(b"\xff\xfe"), "damaged run folder"),
    ],
)
def test_a_damaged_run_is_left_out_by_name_and_the_rest_is_shown(
    tmp_path: Path, damage: Any, says: str
) -> None:
    bad = write_run(made_run(tmp_path / "runs" / "bad"))
    write_run(made_run(tmp_path / "runs" / "good", "fedavg-ic"))
    damage(bad)
    page = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["report", str(tmp_path / "runs"), "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert says in done.output
    assert f"to run it again: coterie run {bad / 'config.toml'} --out {bad}-again" in done.output
    assert f"report: {page}" in done.output
    content = re.search(r"id='data'>(.*?)</script>", page.read_text(), re.DOTALL)
    assert content
    data = json.loads(content[1])
    assert says in data["left_out"][0]
    assert [run["name"] for run in data["runs"]] == ["good"]


def test_a_damaged_run_of_a_sweep_is_had_again_from_the_sweep(tmp_path: Path) -> None:
    write_run(made_run(tmp_path / "good"))
    bad = write_run(made_run(tmp_path / "bad", "fedavg-ic"))
    (bad / "summary.json").write_text("{")
    (tmp_path / "runs.json").write_text("{}")
    _, (line,) = find_runs([tmp_path])
    assert line.endswith(f"move it away, then: coterie run --resume {tmp_path}")


def test_nothing_but_damaged_runs_is_one_line(tmp_path: Path) -> None:
    bad = write_run(made_run(tmp_path / "bad"))
    (bad / "rows.jsonl").write_text("?\n")
    with pytest.raises(RecordError, match=r"no complete run; .*rows.jsonl line 1"):
        find_runs([tmp_path])
    done = CliRunner().invoke(main, ["report", str(tmp_path), "-o", str(tmp_path / "x.html")])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert not (tmp_path / "x.html").exists()
