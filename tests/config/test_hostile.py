"""Files, options and folders that nobody writes by accident: one line each, and nothing is run."""

import json
from pathlib import Path

import pytest

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
