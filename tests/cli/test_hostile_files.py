"""Files and names that nobody expects, as commands meet them: one line, and nothing is broken."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coterie.cli import main
from made_runs import made_run, write_run


def coterie(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "one"
    write_run(made_run(folder))
    return folder


def test_output_goes_where_a_link_leads_and_through_what_is_no_file(
    tmp_path: Path, run: Path
) -> None:
    page, null = tmp_path / "page.html", tmp_path / "null.csv"
    page.symlink_to(tmp_path / "real.html")
    null.symlink_to("/dev/null")
    assert coterie("report", str(run), "-o", str(page)).exit_code == 0
    assert page.is_symlink()
    assert (tmp_path / "real.html").stat().st_size > 10_000
    assert coterie("export", str(run), "-o", str(null)).exit_code == 0
    assert null.is_symlink()
    assert null.is_char_device()


def test_a_device_that_takes_nothing_is_one_line(tmp_path: Path, run: Path) -> None:
    full = tmp_path / "full.csv"
    full.symlink_to("/dev/full")
    done = coterie("export", str(run), "-o", str(full))
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "full.csv: cannot be written (No space left on device)" in done.output


def test_a_page_with_pictures_is_refused_where_there_is_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = coterie("plan", "quickstart", "-o", str(pipe))
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "--out must name a regular file, such as plan.html" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("option", ["--out", "--save", "--export", "--csv"])
def test_a_name_that_is_no_text_is_refused_before_anything_runs(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = {"--out": "run", "--csv": "bound"}.get(option, "plan")
    done = coterie(command, "quickstart", option, os.fsdecode(b"r\xff.csv"))
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert f"{option} must be a name in UTF-8, got 'r\\udcff.csv'" in done.output
    assert list(tmp_path.iterdir()) == []


SWEEP = """
[partition]
num_nodes = 20
[train]
steps = 2
[sweep]
seed = [0, 1]
"""


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_folder_that_cannot_be_made_ends_a_sweep_in_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my.toml").write_text(SWEEP)
    done = coterie(command, str(tmp_path / "my.toml"), "-o", "/proc/x")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "coterie: /proc/x: cannot be written (" in done.output
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = coterie(command, str(tmp_path / "my.toml"), "-o", "x")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "(No such file or directory)" in done.output


@pytest.mark.parametrize("option", ["-o", "--save"])
def test_a_current_folder_that_is_gone_is_one_line(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = coterie("plan", "quickstart", option, "x.csv")
    assert done.output == "coterie: the current folder was deleted; change to another one\n"
    assert done.exit_code == 2


def test_names_of_folders_reach_no_terminal_as_they_are(tmp_path: Path) -> None:
    clear = "\x1b[2J\x9b31m\r\x07"
    write_run(made_run(tmp_path / clear / "one"))
    write_run(made_run(tmp_path / clear / "two", "hierfavg"))
    (tmp_path / clear / "two" / "summary.json").unlink()
    folder, page = str(tmp_path / clear), str(tmp_path / f"{clear}.html")
    for words in (
        ("report", folder, "-o", page),
        ("compare", folder),
        ("export", folder, "-o", str(tmp_path / f"{clear}.csv")),
        ("compare", str(tmp_path / clear / "nowhere\n")),
        ("data", "show", str(tmp_path / f"{clear}.toml")),
        ("run", "--resume", folder),
    ):
        done = coterie(*words)
        assert not {"\x1b", "\x9b", "\r", "\x07"} & set(done.output), words
        if done.exit_code:
            assert done.output.count("\n") == 1
    assert "\\x1b[2J\\x9b31m\\r\\x07" in coterie("report", folder, "-o", page).output


def test_a_run_in_a_folder_that_is_no_utf8_is_compared(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"r\xff")
    try:
        write_run(made_run(folder))
    except OSError:
        pytest.skip("a file system that takes UTF-8 only")
    assert coterie("compare", str(folder)).exit_code == 0
    (folder / "summary.json").unlink()
    done = coterie("compare", str(folder))
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "r\\udcff" in done.output
