"""A run folder that holds anything at all: it is shown, or left out with a line that says why."""

import copy
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from coterie.analysis.compare import compare
from coterie.analysis.export import encode, rows_table, summary_table
from coterie.analysis.format import cells, columns, footing, heading
from coterie.config.toml import read_toml
from coterie.core.errors import CoterieError, RecordError
from coterie.render.page import page_data, render
from coterie.render.watch import Live
from coterie.runs.execute import execute
from coterie.runs.record import RecordedRun, ended, find_runs
from coterie.runs.retime import retime
from coterie.runs.sweep import recorded_jobs
from coterie.trackers import Follower, Target
from resuming import coterie, tiny

DEEP: Any = 1
for _ in range(200):
    DEEP = [DEEP]
VALUES: dict[str, Any] = {
    "nothing": None,
    "zero": 0,
    "no text": "",
    "no list": [],
    "no table": {},
    "less": -1,
    "infinite": float("inf"),
    "large": 1e99,
    "tiny": 1e-300,
    "long": "x" * 5000,
    "controls": "\x1b[2J\x00",
    "deep": DEEP,
    "digits": 10**400,
    "mixed": [1, "a", None],
}
FILES = ("config.toml", "meta.json", "summary.json", "grouping.json", "rows.jsonl")
SHARES = 4  # of all values at all places; the first is tried every day
Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two real runs, without their models."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("fedavg", "fedavg-ic"):
        execute(tiny(name, steps=2), folder / name)
        (folder / name / "model.safetensors").unlink()
    return folder


def places(content: Any, above: Place = ()) -> Iterator[Place]:
    """Where in a file something stands: every key, and the ends of every list."""
    some: Any = content.items() if isinstance(content, dict) else ()
    if isinstance(content, list) and content:
        some = [(at, content[at]) for at in sorted({0, len(content) - 1})]
    for key, value in some:
        yield (*above, key)
        yield from places(value, (*above, key))


def read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        return read_toml(text)
    lines = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else None
    return json.loads(text) if lines is None else lines


def put(content: Any, place: Place, value: object) -> Any:
    """Return a file's content with another value at a place, or none."""
    content = copy.deepcopy(content)
    at = content
    for key in place[:-1]:
        at = at[key]
    if value is ...:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return content


def written(name: str, content: Any) -> str:
    if name.endswith(".toml"):
        return tomli_w.dumps(content)
    lines = content if name.endswith(".jsonl") else [content]
    return "".join(json.dumps(each).replace("Infinity", "1e999") + "\n" for each in lines)


def mutants(path: Path, share: int) -> Iterator[tuple[str, str]]:
    """Yield what was done to a file, and its text since; every value at every place in turn."""
    content = read(path)
    values = [("deleted", ...), *VALUES.items()]
    number = 0
    for place in places(content):
        for said, value in values:
            if path.suffix == ".toml" and (value is None or said == "mixed"):
                continue  # TOML has no null
            number += 1
            if number % SHARES == share:
                yield f"{path.name} {place} {said}", written(path.name, put(content, place, value))


def show_all(runs: list[RecordedRun], left_out: list[str], odd: Path) -> None:
    """Do with runs what commands do; what one of them does not let itself do may be refused."""
    for block in compare(runs):
        heading(block), columns([block]), cells(block.lines), footing(block)
    render(page_data(runs, None, left_out))
    for table in (rows_table(runs), summary_table(runs)):
        for name in ("x.csv", "x.parquet"):
            encode(table, Path(name))
    for run in runs:
        if run.folder == odd:
            try:
                retime(run, ["network.link_mbytes_per_s=10"])
            except CoterieError as error:
                assert str(odd) in str(error), error


def look_at(folder: Path, odd: Path) -> None:
    """Watch a folder, and do with a run of it what reads it alone."""
    assert json.loads(Live(folder).latest().body)["runs"]
    for act in (
        lambda: Follower(odd, Target("own_tracker:open", str(folder.parent / "tracked"))).look(),
        lambda: recorded_jobs(odd),
        lambda: ended(odd),
    ):
        try:
            act()
        except CoterieError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "share", [0, *(pytest.param(share, marks=pytest.mark.long) for share in range(1, SHARES))]
)
@pytest.mark.parametrize("name", FILES)
def test_whatever_a_file_of_a_run_holds_the_run_is_shown_or_left_out_with_one_line(
    tmp_path: Path, made: Path, name: str, share: int
) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(made, runs)
    odd = runs / "fedavg-ic"
    several = 0
    for what, text in mutants(made / "fedavg-ic" / name, share):
        (odd / name).write_text(text, encoding="utf-8")
        try:
            found, left_out = find_runs([runs])
            shown = [run.folder.name for run in found]
            assert shown in (["fedavg"], ["fedavg", "fedavg-ic"])
            assert len(left_out) == 2 - len(found)
            assert all(line.startswith(f"{odd}: ") and "\n" not in line for line in left_out)
            assert all(name in line for line in left_out), left_out
            several += bool(left_out)
            if not left_out:
                show_all(found, left_out, odd)
            look_at(runs, odd)
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        for note in odd.glob("tracked-*"):
            note.unlink()
    assert several  # of what was done, some cannot be read


@pytest.mark.parametrize("kind", ["pipe", "device", "sparse", "folder", "loop"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_keeps_nobody_waiting_and_is_named(
    tmp_path: Path, made: Path, name: str, kind: str
) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(made, runs)
    odd = runs / "fedavg-ic"
    (odd / name).unlink()
    if kind == "pipe":
        os.mkfifo(odd / name)
    elif kind == "device":
        (odd / name).symlink_to("/dev/zero")
    elif kind == "sparse":
        with (odd / name).open("wb") as file:
            file.truncate(2**40)
    elif kind == "folder":
        (odd / name).mkdir()
    else:
        (odd / name).symlink_to(odd / name)
    found, (line,) = find_runs([runs])
    assert [run.folder.name for run in found] == ["fedavg"]
    assert line.startswith(f"{odd}: ")
    if (name, kind) not in {("summary.json", "loop")}:  # which is as if there were none
        assert name in line
    look_at(runs, odd)
    done = coterie("compare", runs)
    assert done.exit_code == 0
    assert f"left out: {line}" in done.output


def test_nothing_but_odd_runs_is_one_line_and_exit_2(tmp_path: Path, made: Path) -> None:
    shutil.copytree(made / "fedavg", tmp_path / "runs" / "odd")
    config = tmp_path / "runs" / "odd" / "config.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("\nlr = ", "\n# lr = "), encoding="utf-8")
    for words in (["compare"], ["report", "-o", tmp_path / "page.html"]):
        done = coterie(words[0], tmp_path / "runs", *words[1:])
        assert (done.exit_code, done.output.count("\n")) == (2, 1)
        assert "config.toml: train: has no 'lr'" in done.output


def test_a_run_whose_rows_are_a_pipe_does_not_go_on(tmp_path: Path, made: Path) -> None:
    odd = tmp_path / "odd"
    shutil.copytree(made / "fedavg", odd)
    for name in ("rows.jsonl", "summary.json"):
        (odd / name).unlink()
    os.mkfifo(odd / "rows.jsonl")
    with pytest.raises(RecordError, match=r"rows\.jsonl: must be a regular file, is a pipe"):
        execute(tiny("fedavg", steps=2), odd, resume=True)
