"""Files, options and folders that nobody writes by accident: one line each, and nothing is run."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from coterie.config import files, room
from coterie.config.factories import check_room
from coterie.config.files import make_config
from coterie.config.room import check_memory
from coterie.core.errors import ConfigError, TopologyError
from coterie.data import Dataset
from coterie.topology import fat_tree
from resuming import coterie, stopped_at, tiny

LONG = 5000 * "9"
DEEP = 5000 * "[" + 5000 * "]"
TOO_LONG = "a whole number has more than 4,300 digits"
TOO_DEEP = "tables or lists are nested more than 20 deep"
NUL = "must be a text of at most 4,096 characters, none of them NUL, got 'a\\x00b'"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(*words: object) -> str:
    """Return the one line that a command ends with."""
    done = coterie(*words)
    assert done.exit_code == 2, done.output or done.exception
    (line,) = done.output.splitlines()
    assert len(line) < 1000
    assert not Path("runs").exists()
    return line.removeprefix("coterie: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"[train]\nsteps = {LONG}", f"x.toml: not TOML: {TOO_LONG}"),
        (f"seed = {DEEP}", f"x.toml: not TOML: {TOO_DEEP}"),
        (f"[a{5000 * '.a'}]\nb = 1", f"x.toml: not TOML: {TOO_DEEP}"),
        ('[data]\npath = "a\\u0000b"', f"data.path {NUL}"),
        ('[partition]\nkind = "file"\nfile = "a\\u0000b"', f"partition.file {NUL}"),
        ('[algorithm]\ncapacity_file = "a\\u0000b"', f"algorithm.capacity_file {NUL}"),
        ('[network]\naccess_file = "a\\u0000b"', f"network.access_file {NUL}"),
        (f'[sweep]\n"{5000 * "a."}a" = [1]', "unknown setting 'a.a."),
        (f"[sweep]\nseed = {10 * '['}{10 * ']'}", "seed must be a whole number, got [[[["),
        (f"{5000 * 'a'} = 1", "unknown setting 'aaa"),
    ],
)
@pytest.mark.parametrize("command", [("run",), ("sweep",), ("plan",), ("data", "show")])
def test_a_file_that_cannot_be_meant_is_a_line(
    command: tuple[str, ...], text: str, says: str
) -> None:
    Path("x.toml").write_text(text, encoding="utf-8")
    assert refusal(*command, "x.toml").startswith(says)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (f"seed={LONG}", TOO_LONG),
        (f"seed={DEEP}", TOO_DEEP),
        ("seed=1\ntrain.steps=2", "takes one setting, got 'seed=1\\ntrain.steps=2'; give"),
        ("seed=1\n[train]\nsteps=2", "takes one setting, got"),
        ("data.path=a\0b", NUL),
    ],
)
@pytest.mark.parametrize("option", ["--set", "--only"])
def test_an_option_that_cannot_be_meant_is_a_line(option: str, given: str, says: str) -> None:
    assert says in refusal("sweep", "quickstart", option, given)


@pytest.mark.parametrize("name", ["a\0b", 5000 * "a", "\udcff"])
def test_a_name_that_no_file_has_is_a_line(name: str) -> None:
    assert ": no such file" in refusal("run", name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"seed = {LONG}", TOO_LONG),
        (f"seed = {DEEP}", TOO_DEEP),
        ('[data]\npath = "a\\u0000b"', f"data.path {NUL}"),
    ],
)
def test_a_folder_that_cannot_be_meant_is_a_line_when_it_goes_on(text: str, says: str) -> None:
    stopped_at(2, tiny(), Path("r"))
    Path("r/config.toml").write_text(text, encoding="utf-8")
    assert refusal("run", "--resume", "r") == f"r/config.toml: {says}"


@pytest.mark.parametrize("value", [LONG, DEEP, 500 * '{"a": ' + "1" + 500 * "}"])
def test_the_list_of_a_sweep_that_cannot_be_meant_is_a_line_when_it_goes_on(value: str) -> None:
    Path("s").mkdir()
    Path("s/runs.json").write_text(
        f'{{"runs": [{{"folder": "a", "config": {{"seed": {value}}}}}]}}'
    )
    assert refusal("run", "--resume", "s").startswith("s/runs.json: cannot be read (")


def test_a_finished_run_of_settings_that_cannot_be_meant_is_a_line() -> None:
    stopped_at(2, tiny(), Path("r"))
    text = Path("r/config.toml").read_text()
    Path("r/config.toml").write_text(f"x = {DEEP}\n{text}")
    told = json.loads(Path("r/summary.json").read_text())
    Path("r/summary.json").write_text(json.dumps({**told, "status": "complete"}))
    assert TOO_DEEP in refusal("compare", "r")


def test_the_runs_of_a_sweep_are_counted_before_they_are_listed() -> None:
    axes = [f'"{key}" = {list(range(1, 3001))}' for key in ("seed", "train.steps", "train.lr")]
    Path("x.toml").write_text("\n".join(["[sweep]", *axes]), encoding="utf-8")
    assert refusal("sweep", "x.toml") == (
        "a sweep has at most 100,000 runs, got 3,000 x 3,000 x 3,000 = 27,000,000,000; list fewer "
        "values, or write several files"
    )


def test_the_values_of_a_sweep_are_checked_before_any_run_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = list[object]()
    monkeypatch.setattr(files, "make_config", made.append)
    for values in ({"seed": [0, 1, -1]}, {"algorithm": [{"name": "fedavg"}, {"tau2": 0}]}):
        with pytest.raises(ConfigError, match="must be >= "):
            files.expand({"sweep": values})
    assert made == []


def test_sketches_that_memory_has_no_room_for_are_refused_before_anything_is_computed() -> None:
    words = ("--set", "algorithm.evidence=sketch", "--set", "algorithm.sketch_size=1000000000")
    said = refusal("run", "quickstart", *words, "--set", "partition.num_nodes=4000")
    assert said.startswith(
        "sketches of 1,000,000,000 numbers need 32 TB of memory for 4,000 nodes, this machine has "
    )
    assert said.endswith("; lower algorithm.sketch_size")


def test_more_nodes_than_a_search_has_memory_for_are_refused_with_how_much_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"needs 16 TB of memory for 1,000,000 nodes, this"):
        check_room(make_config({}), "gradients", 1_000_000)
    check_room(make_config({"algorithm": {"evidence": "sketch"}}), "gradients", 100_000)
    check_room(make_config({}), "nothing", 1_000_000)


def test_more_than_memory_has_room_for_is_refused_with_what_needs_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = np.zeros((100, 4), np.uint8), np.zeros(100, np.int64)
    data, d = Dataset("d", x, y, 2), 1_000
    plain, scaffold = (make_config({"algorithm": {"name": a}}) for a in ("fedavg", "scaffold"))
    monkeypatch.setattr(room, "physical_memory", lambda: 2**31)
    update = plain.algorithm.made.update
    check_memory(data, 100_000, d, update, 10, searched=True)
    with pytest.raises(ConfigError, match=r"nodes need 4.6 GB .*, 4 GB of it for the search for"):
        check_memory(data, 1_000_000, d, update, 100, searched=True)
    with pytest.raises(ConfigError, match=r", 8 GB of it for what nodes keep; this machine has 2."):
        check_memory(data, 1_000_000, d, scaffold.algorithm.made.update, 1, searched=False)


def test_a_fat_tree_of_too_many_pods_is_refused_before_it_is_built() -> None:
    with pytest.raises(TopologyError, match=r"2,000,000 switches for nodes, .* need \d+ TB"):
        fat_tree(np.arange(2_000))


def test_threads_have_a_most_that_the_cores_decide() -> None:
    cores = os.cpu_count() or 1
    rule = f"must be <= {64 * cores:,} here, 64 for each of {cores} cores, got 100,000"
    given = ("run", "quickstart", "--set", "train.steps=1")
    assert refusal(*given, "--set", "train.threads=100000") == f"train.threads {rule}"
    for option in ("--jobs", "--workers"):
        assert refusal(*given, option, 100_000) == f"{option} {rule}"
