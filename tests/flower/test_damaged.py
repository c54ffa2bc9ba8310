"""Flower's files as a bad disk or somebody else leaves them: one line, and never anything else."""

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from altered import bytes_of, texts_of
from coterie.flower import FlowerError
from coterie.flower import spool as spooling
from coterie.flower.algorithm import Added, added
from coterie.flower.groups import Groups
from coterie.flower.health import said_row
from coterie.flower.memory import begin, check_memory
from coterie.flower.messages import COUNTS, Arrays
from coterie.flower.rounds import overall
from coterie.flower.spool import Filled, Order, Spool
from coterie.flower.state import FILE, State, carry_state, load_state, save_state, saved
from coterie.flower.tensorfile import read_tensors
from coterie.simulation.schedule import Schedule
from coterie.simulation.state import Plan

MODEL: Arrays = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "seen": np.array(3, dtype=np.int64),
    "none": np.zeros((0, 2)),
}
FIRST, SCHEDULE, ABOUT = State(0, (MODEL,)), Schedule(1, 2), {"seed": 0, "config.lr": 0.5}
SCAFFOLD: Added = added("scaffold")
NAMES = ("a", "b", "c")
MANY, EVERY = 200, 17  # mutations of a file's bytes; and one in so many of its values


def written(folder: Path) -> Path:
    """A state between two global means, with all that a state can have."""
    rows = (
        {"t": 2, "round": 1, "counted": 3, "event": "group", "train.loss": 0.5, "test.x": None},
        {"t": 4, "round": 2, "counted": 3, "dropped": [], "train.nodes-counted": 3.0},
    )
    groups = Plan(SCHEDULE, Groups((("a",), ("b", "c")), ("a", "b")))
    weights = {"a": 2.0, "b": 1.0, "c": 3.0}
    memory = begin(SCAFFOLD, {"w": MODEL["w"]}, NAMES)
    state = State(4, (MODEL, MODEL), groups, weights, rows, (0, 1), (2.0, 4.0), memory)
    save_state(folder, state, ABOUT)
    return folder / FILE


def parts(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """The header of a file, what it tells of its arrays without the sums, and the arrays."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    about = json.loads(header["__metadata__"]["coterie"])
    del about["sums"]
    return header, about, data[8 + length :]


def joined(header: str, body: bytes) -> bytes:
    words = header.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(words)) + words + body


def told(header: dict[str, Any], text: str, body: bytes) -> bytes:
    return joined(json.dumps({**header, "__metadata__": {"coterie": text}}), body)


def altered(data: bytes) -> Iterator[bytes]:
    """What may become of a file: of its bytes, with sums and without, and of every value."""
    yield from bytes_of(data, MANY)
    header, about, body = parts(data)
    older = told(header, json.dumps(about), body)
    yield from bytes_of(older, MANY, seed=1)
    changed = [told(header, text, body) for _, text in texts_of(about)]
    header["__metadata__"] = {"coterie": json.dumps(about)}
    changed += [joined(text, body) for _, text in texts_of(header)]
    yield from changed[::EVERY]


def in_one_line(path: Path, use: Callable[[], object]) -> bool:
    """Whether a reader takes a file; else it says in one line which file it is, and why not."""
    try:
        use()
    except FlowerError as error:
        line = str(error)
        assert str(path) in line
        assert "\n" not in line
        assert len(line) < 900
        return False
    return True


def test_a_state_that_was_altered_is_read_whole_or_refused_in_one_line(tmp_path: Path) -> None:
    path = written(tmp_path)
    good = path.read_bytes()

    def show() -> None:
        for row in saved(tmp_path).get("rows", []):
            said_row(row)

    def load() -> None:
        state = load_state(tmp_path, ABOUT, FIRST, SCHEDULE)
        overall(state)
        if state.memory.names:
            kept, n_groups = {"w": MODEL["w"]}, len(state.groups or [0])
            try:
                check_memory(SCAFFOLD, state.memory, kept, n_groups)
            except FlowerError as error:
                raise FlowerError(f"{path}: {error}") from error

    for data in altered(good):
        path.write_bytes(data)
        in_one_line(path, show)
        in_one_line(path, load)
        in_one_line(path, lambda: carry_state(tmp_path, tmp_path / "new", Groups(()), {}))


def test_a_byte_of_a_state_that_was_flipped_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path)
    good = path.read_bytes()
    for at in range(0, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        assert not in_one_line(path, lambda: load_state(tmp_path, ABOUT, FIRST, SCHEDULE)), at


def test_a_state_of_before_there_were_sums_is_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    header, about, body = parts(path.read_bytes())
    path.write_bytes(told(header, json.dumps(about), body))
    assert load_state(tmp_path, ABOUT, FIRST, SCHEDULE).t == 4


@pytest.mark.parametrize("declared", [2**63, 2**40, 10**8 + 1])
def test_no_memory_is_asked_for_by_what_a_file_declares(tmp_path: Path, declared: int) -> None:
    path = written(tmp_path)
    good = path.read_bytes()
    path.write_bytes(struct.pack("<Q", declared) + good[8:])
    assert not in_one_line(path, lambda: saved(tmp_path))
    header, about, body = parts(good)
    size = declared // 4 * 4
    header["0/w"] |= {"shape": [size // 4], "data_offsets": [0, size]}
    path.write_bytes(told(header, json.dumps(about), body))
    with pytest.raises(ValueError, match="its arrays do not end where the file does"):
        read_tensors(path, object)
    assert not in_one_line(path, lambda: load_state(tmp_path, ABOUT, FIRST, SCHEDULE))


def test_a_pipe_or_a_device_in_place_of_a_state_is_refused(tmp_path: Path) -> None:
    for kind in ("pipe", "device", "folder"):
        folder = tmp_path / kind
        folder.mkdir()
        path = folder / FILE
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        else:
            path.mkdir()
        with pytest.raises(FlowerError, match=r"damaged \(it is no regular file\)"):
            saved(folder)
        with pytest.raises(FlowerError, match=r"damaged \(it is no regular file\)"):
            load_state(folder, ABOUT, FIRST, SCHEDULE)


def once() -> Callable[[], bool]:
    """Stop after a look."""
    looks = iter([False, True])
    return lambda: next(looks)


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    monkeypatch.setattr(spooling, "POLL_S", 0.0)
    monkeypatch.setattr(spooling.log, "disabled", True)
    return Spool(tmp_path)


ORDER = Order({"w": MODEL["w"]}, 0, 3, last=False, settings="lr")


def test_an_order_that_was_altered_is_passed_over_and_written_again(spool: Spool) -> None:
    spool.put(ORDER)
    (path,) = spool.folder.iterdir()
    for data in altered(path.read_bytes()):
        path.write_bytes(data)
        found = spool.wait(once())
        assert found is None or found.key == ORDER.key, "never another order"
        spool.put(ORDER)
        again = spool.wait(once())
        assert again is not None
        assert again.key == ORDER.key


def test_a_result_that_was_altered_is_one_line_and_the_order_is_tried_again(spool: Spool) -> None:
    spool.put(ORDER)
    about = {"num_examples": 5.0, "metrics": {"loss": 0.5}, **dict.fromkeys(COUNTS, 1)}
    spool.fill(ORDER, Filled({"w": MODEL["w"]}, about))
    path = next(spool.folder.glob("result-*"))

    def use() -> None:
        found = spool.result(ORDER, 0.0)
        assert int(found.about["num_examples"]) > 0
        assert all(isinstance(found.about.get(key, 0), int) for key in COUNTS)
        assert all(isinstance(v, int | float) for v in found.about.get("metrics", {}).values())

    for data in altered(path.read_bytes()):
        path.write_bytes(data)
        try:
            use()
        except FlowerError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 900
            spool.put(ORDER)
            assert not path.exists(), "it is tried again"
