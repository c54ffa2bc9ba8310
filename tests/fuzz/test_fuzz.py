"""A small part of the harness, and proof that it sees what it looks for. All of it: make fuzz."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("limits on memory are Linux's", allow_module_level=True)

from coterie.core.errors import DataError
from fuzz import lines
from fuzz.__main__ import summary
from fuzz.mutate import mutated
from fuzz.readers import READERS
from fuzz.worker import FINE, MOST_BYTES, Reader, Tally, attempt, lay_out, run

CORPUS = Path(__file__).parent / "corpus"
INPUTS, COMMANDS = 30, 36


def _made(label: str, tmp_path: Path) -> tuple[Reader, Path]:
    (tmp_path / "seeds").mkdir()
    (tmp_path / "folder").mkdir()
    return READERS[label](tmp_path / "seeds"), tmp_path / "folder"


@pytest.mark.parametrize("label", READERS)
def test_a_good_file_is_read_and_a_changed_one_is_read_or_refused(
    label: str, tmp_path: Path
) -> None:
    reader, folder = _made(label, tmp_path)
    lay_out(reader, folder)
    reader.read(folder)
    tally = run(label, reader, 0, INPUTS, folder)
    assert tally.findings == []
    assert sum(tally.ends[kind] for kind in FINE) == INPUTS


@pytest.mark.parametrize("found", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_what_broke_a_reader_once_does_not_break_it_again(found: Path, tmp_path: Path) -> None:
    told = json.loads((found / "finding.json").read_text(encoding="utf-8"))
    reader, folder = _made(told["label"], tmp_path)
    lay_out(reader, folder)
    content = (found / Path(told["name"]).name).read_bytes()
    kind, says = attempt(reader, folder, told["name"], content)
    assert kind in ("read", "refused"), says


def test_a_bad_command_line_is_answered_in_one_line(tmp_path: Path) -> None:
    tally = lines.run(0, COMMANDS, tmp_path)
    assert tally.findings == []
    assert tally.ends["refused"] > COMMANDS // 3


def test_every_command_is_tried() -> None:
    tried = {" ".join(line.split()[:n]) for line in lines.GOOD for n in (1, 2)}
    assert set(lines.commands()) <= tried


def test_a_number_is_always_the_same_input() -> None:
    reader = Reader({"x": b"one,two\n1,2\n", "y": b"{}"}, lambda folder: None)
    assert [reader.case("x", n) for n in range(50)] == [reader.case("x", n) for n in range(50)]
    assert len({reader.case("x", n) for n in range(50)}) > 40
    assert [lines.line(n) for n in range(50)] == [lines.line(n) for n in range(50)]


def _fails(folder: Path) -> None:
    """Fail in another way for every first letter."""
    match (folder / "x").read_bytes()[:1]:
        case b"k":
            raise KeyError("lr")
        case b"d":
            os.kill(os.getpid(), signal.SIGTRAP)
        case b"m":
            bytearray(2 * MOST_BYTES)
        case b"s":
            began = time.process_time()
            while time.process_time() < began + 60:
                pass
        case b"l":
            raise DataError("two\nlines")
        case b"e":
            raise SystemExit(0)
        case b"r":
            raise DataError("no")


def test_the_harness_sees_what_no_reader_may_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.worker.MOST_S", 0.2)
    ways = b"kdmsler."
    monkeypatch.setattr(
        Reader, "case", lambda self, label, number: ("x", ways[number : number + 1])
    )
    tally = run("fails", Reader({"x": b""}, _fails), 0, len(ways), tmp_path)
    kinds = {finding.number: finding.kind for finding in tally.findings}
    assert [kinds.get(n, "fine") for n in range(len(ways))] == [
        *("foreign", "signal", "memory", "slow", "long", "foreign", "fine", "fine")
    ]
    assert tally.ends.total() == len(ways)
    table = summary([{"name": "--set", **vars(tally), "findings": []}], 60.0)
    assert "8           1           1           0           2" in table


def test_a_command_that_fails_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("lr")

    monkeypatch.setattr(lines, "main", fails)
    (kind, says, _) = lines.ended(["list"], tmp_path, tmp_path)
    assert kind == "foreign"
    assert "KeyError: 'lr'" in says


def test_a_mutation_changes_a_file_nearly_always() -> None:
    import random

    rng = random.Random(0)
    good = json.dumps({"a": [1, 2, {"b": None}]}).encode()
    assert sum(mutated(good, rng) != good for _ in range(200)) > 180
    assert isinstance(Tally().longest_s, float)
