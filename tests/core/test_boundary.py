"""What nobody foresaw: a reader's own error with the file, or a line, and a file with the rest."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.core.boundary import DEBUG, reader, reading
from coterie.core.errors import DataError, RecordError
from coterie.core.unexpected import UnexpectedError, foreseen, in_our_words
from resuming import coterie


@reader(DataError)
def read(path: Path, fault: BaseException | None = None) -> str:
    """Read what is not there, or fail as told."""
    if fault:
        raise fault
    return path.name


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (IndexError("list index out of range"), "cannot be read (IndexError: list index out of r"),
        (ZeroDivisionError(), "cannot be read (ZeroDivisionError)"),
        (MemoryError(), "needs more memory than there is"),
        (RecursionError("maximum recursion depth exceeded"), "is nested too deeply"),
        (OSError(5, "Input/output error"), "cannot be read (Input/output error)"),
        (ValueError("one\ntwo" + 5000 * "x"), "cannot be read (ValueError: one two"),
    ],
)
def test_a_reader_raises_its_own_error_with_the_file(fault: Exception, says: str) -> None:
    with pytest.raises(DataError) as told:
        read(Path("x.idx"), fault)
    assert str(told.value).startswith(f"x.idx: {says}")
    assert len(str(told.value)) < 300
    assert told.value.__cause__ is fault
    assert told.value.unforeseen


def test_what_a_reader_says_itself_and_ctrl_c_pass_as_they_are() -> None:
    mine = RecordError("mine")
    for fault in (mine, KeyboardInterrupt()):
        with pytest.raises(type(fault)) as told:
            read(Path("x"), fault)
        assert told.value is fault
    assert not mine.unforeseen
    assert read(Path("x")) == "x"


def test_debugging_shows_what_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEBUG, "1")
    with pytest.raises(KeyError), reading("x", DataError):
        raise KeyError("lr")
    with pytest.raises(KeyError), foreseen():
        raise KeyError("lr")
    monkeypatch.setenv(DEBUG, "0")
    with pytest.raises(DataError), reading("x", DataError):
        raise KeyError("lr")


def test_what_the_program_is_to_blame_for_is_written_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(UnexpectedError) as told, foreseen():
        raise KeyError("lr")
    (file,) = tmp_path.iterdir()
    assert re.fullmatch(
        rf"coterie \S+ failed: KeyError: 'lr'; please report it, with {re.escape(str(file))}",
        str(told.value),
    )
    written = file.read_text(encoding="utf-8")
    assert 'raise KeyError("lr")' in written
    assert file.stat().st_mode & 0o077 == 0


def test_a_full_disk_is_nobodys_fault_but_told(monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(28, "No space left on device")
    assert str(in_our_words(full)) == "No space left on device; COTERIE_DEBUG=1 shows where"

    def nowhere(*_: object, **__: object) -> object:
        raise full

    monkeypatch.setattr("tempfile.mkstemp", nowhere)
    assert str(in_our_words(KeyError("lr"))).endswith(
        "please report it, with what COTERIE_DEBUG=1 shows"
    )


FAULTS = """
import sys
import torch

def leaves(input_shape, n_classes):
    sys.exit(0)

class Net(torch.nn.Module):
    steps = 0

    def __init__(self, n_classes, ends):
        super().__init__()
        self.layer = torch.nn.Linear(784, n_classes)
        self.ends = ends

    def forward(self, x):
        Net.steps += 1
        if Net.steps > 40:
            self.ends()
        return self.layer(x.flatten(1))

def leaves_later(n_classes):
    return Net(n_classes, sys.exit)
"""


@pytest.mark.parametrize("name", ["leaves", "leaves_later"])
def test_a_users_code_that_ends_the_program_is_told_of(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path(f"ends_{name}.py").write_text(FAULTS, encoding="utf-8")
    sets = ("partition.num_nodes=10", "train.steps=3", f"model.name=ends_{name}:{name}")
    done = coterie("run", "quickstart", *(w for one in sets for w in ("--set", one)))
    assert done.exit_code == 2, done.output
    assert "SystemExit" in done.output
    assert f"(ends_{name}.py, line " in done.output


OWN = """
import torch
from coterie import Algorithm, Update

class Stop(BaseException):
    pass

class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")

class Odd(Exception):
    def __str__(self):
        return 3

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.steps = torch.nn.Linear(784, 10), 0

    def forward(self, x):
        self.steps += 1
        if self.steps > 6:
            {act}
        return self.layer(x.flatten(1))

def later():
    return Net()

def fails(*_, **__):
    {act}
"""
KINDS = {
    "Stop": "raise Stop('enough')",
    "GeneratorExit": "raise GeneratorExit",
    "BaseExceptionGroup": "raise BaseExceptionGroup('some', [Stop('enough')])",
    "Mute": "raise Mute",
    "Odd": "raise Odd",
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_users_code_raises_is_one_line(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"raises_{kind.lower()}"
    Path(f"{name}.py").write_text(OWN.replace("{act}", KINDS[kind]), encoding="utf-8")
    Path(f"{name}_at_once.py").write_text(
        OWN.replace("{act}", "pass") + KINDS[kind], encoding="utf-8"
    )
    small = ("partition.num_nodes=10", "train.steps=3", "algorithm.num_groups=2")
    for part in (
        f"model.name={name}_at_once:fails",
        f"model.name={name}:fails",
        f"model.name={name}:later",
        f"data.name={name}:fails",
        f"algorithm.grouping={name}:fails",
        f"algorithm.name={name}:fails",
    ):
        words = [w for one in (*small, part) for w in ("--set", one)]
        done = coterie("run", "quickstart", *words)
        assert (done.exit_code, done.output.count("\n")) == (2, 1), (part, done.output)
        assert kind in done.output, (part, done.output)
        assert "please report" not in done.output


TRAINS_BADLY = """
from torch import nn
class Broken(nn.Linear):
    def forward(self, x):
        if self.training:
            raise ValueError("a bug\\nof this model")
        return super().forward(x)
def make():
    return nn.Sequential(nn.Flatten(), Broken(784, 10))
"""


def test_a_bug_of_a_users_model_is_not_taken_for_one_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("trains_badly.py").write_text(TRAINS_BADLY, encoding="utf-8")
    sets = ("partition.num_nodes=10", "train.steps=3", "model.name=trains_badly:make")
    done = coterie("run", "quickstart", *(w for one in sets for w in ("--set", one)))
    assert done.exit_code == 2, done.output
    why = "code that is not coterie's failed: ValueError: a bug (trains_badly.py, line 6)"
    assert f"{why}; COTERIE_DEBUG=1 shows where" in done.output


def test_a_command_that_fails_in_a_way_nobody_foresaw_is_one_line(tmp_path: Path) -> None:
    program = (
        "import coterie.analysis.compare as c, coterie.cli as cli\n"
        "c.compare = lambda *_: {}['lr']\n"
        "cli.find_complete = lambda _: []\n"
        "cli.main(['compare', '--json', '.'])\n"
    )
    said = {}
    for debug in ("", "1"):
        env = {**os.environ, "TMPDIR": str(tmp_path), DEBUG: debug}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False
        )
        assert done.returncode == 1
        said[debug] = done.stderr
    (file,) = tmp_path.iterdir()
    assert said[""].count("\n") == 1
    assert said[""].endswith(f"failed: KeyError: 'lr'; please report it, with {file}\n")
    assert said["1"].startswith("Traceback")
