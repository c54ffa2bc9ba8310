"""Files that are whole or not there, and who may write them."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.errors import RecordError
from coterie.core.files import (
    json_bytes,
    lock,
    replacing,
    write_atomically,
    write_json,
    write_out,
    writing,
)
from coterie.core.regular import read_mapping


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_takes_its_place_when_it_is_whole_with_the_mode_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "program"
    with replacing(path, 0o755) as beside:
        beside.write_bytes(b"new")
        assert beside.stat().st_mode & 0o777 == 0o600
        assert not path.exists()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o755)
    with pytest.raises(KeyboardInterrupt), replacing(path) as beside:
        beside.write_bytes(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_read_as_an_empty_one(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    assert read_mapping(path) == {}
    write_json(path, {"a": 1})
    assert read_mapping(path) == {"a": 1}


def test_what_cannot_be_written_is_said_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "no such folder" / "x"
    with (
        pytest.raises(RecordError, match=r"x: cannot be written \(No such file.*\); make it$"),
        writing(path, "; make it"),
    ):
        write_atomically(path, b"")


def test_a_file_has_one_owner_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("ab") as first:
        lock(first, tmp_path)
        with pytest.raises(RecordError, match="another process is running it"):
            lock(path.open("ab"), tmp_path, wait_s=0.1)
    with path.open("ab") as second:
        lock(second, tmp_path)


def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "page.html", tmp_path / "page.html"
    link.symlink_to(target)
    for content in (b"one", b"two"):  # a link to nothing yet, then to a file
        write_out(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
        assert [path.name for path in target.parent.iterdir()] == ["page.html"]
    ring = tmp_path / "ring"
    ring.symlink_to(ring)
    with pytest.raises(OSError, match="symbolic links"):
        write_out(ring, b"x")
    assert ring.is_symlink()


def test_a_pipe_and_a_device_are_written_through(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_out(pipe, b"through")
    if pipe.is_fifo():  # or the reader waits for ever
        reader.join()
    assert (pipe.is_fifo(), read) == (True, [b"through"])
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    write_out(null, b"gone")
    assert null.is_symlink()
    assert Path("/dev/null").is_char_device()


def test_a_pipe_that_nobody_reads_is_refused_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.core.files.READER_S", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="nobody reads this pipe"):
        write_out(pipe, b"x")
    assert pipe.is_fifo()


def test_more_than_a_pipe_holds_is_written_as_it_is_read(tmp_path: Path) -> None:
    pipe, read, content = tmp_path / "pipe", list[bytes](), bytes(1_000_000)
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_out(pipe, content)
    reader.join()
    assert read == [content]


def test_standard_output_in_a_file_keeps_what_was_said_before_and_after(tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = (
        "import sys; from pathlib import Path; from coterie.core.files import write_out;"
        "print('before'); write_out(Path('/dev/stdout'), b'page\\n'); print('after')"
    )
    with said.open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert said.read_text() == "before\npage\nafter\n"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=3)
        | st.lists(st.lists(st.integers(), max_size=3), max_size=3)
    ),
    max_leaves=12,
)


@given(TREES | st.dictionaries(st.integers() | st.text(), TREES, max_size=3))
def test_json_is_what_the_encoder_that_indents_writes(content: object) -> None:
    try:
        known = json.dumps(content, indent=1, allow_nan=False)
    except ValueError:  # an infinity
        with pytest.raises(ValueError, match="JSON"):
            json_bytes(content)
    else:
        assert json_bytes(content) == f"{known}\n".encode()


def test_rows_of_whole_numbers_are_indented_as_others() -> None:
    text = [["],\n   ["], ["[", 1]]
    for rows in ([[1, 2], [3, 4]], [[1], []], [[1], [2.5]], text, [[True], [1]]):
        content = {"class_counts": rows, "z": [0, 1]}
        assert json_bytes(content) == (json.dumps(content, indent=1) + "\n").encode()
