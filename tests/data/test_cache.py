"""Decoded data is kept under the sha256 of what it came from."""

import gzip
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coterie.core.errors import DataError
from coterie.data import load, sources
from datafiles import leaf_content, tree, write_celeba, write_leaf, write_mnist


class Counter:
    """Counts what is reported as progress."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def __call__(self, what: str, done: int, of: int) -> None:
        self.told.add(what)


def test_a_second_load_reads_the_same_arrays_from_a_memory_map(tmp_path: Path) -> None:
    source = write_celeba(tmp_path / "celeba", {1: 5, 2: 6})
    first = load("celeba", source)
    count = Counter()
    second = load("celeba", source, count)
    assert not count.told
    assert isinstance(first.x, np.memmap)
    assert isinstance(second.x, np.memmap)
    assert np.array_equal(first.x, second.x)
    assert np.array_equal(first.y, second.y)
    assert np.array_equal(first.users, second.users)  # type: ignore[arg-type]
    assert first.user_names == second.user_names == ("1", "2")


def test_files_that_were_touched_are_hashed_again_but_not_decoded(tmp_path: Path) -> None:
    source = write_mnist(tmp_path / "mnist")
    load("mnist-o", source)
    os.utime(source / "t10k-labels-idx1-ubyte", (1, 1))
    count = Counter()
    load("mnist-o", source, count)
    assert count.told == {"hashing"}


def test_files_that_were_changed_are_decoded_again(tmp_path: Path) -> None:
    path = write_leaf(tmp_path / "leaf" / "a.json", leaf_content({"u": [1, 2]}))
    assert load("femnist", path.parent).y.tolist() == [1, 2]
    write_leaf(path, leaf_content({"u": [3, 4]}))
    assert load("femnist", path.parent).y.tolist() == [3, 4]


def test_a_damaged_cache_is_made_anew(tmp_path: Path, cache: Path) -> None:
    source = write_mnist(tmp_path / "mnist")
    good = np.array(load("mnist-o", source).x)
    (decoded,) = (p for p in (cache / "mnist-o" / "decoded").iterdir() if p.name != "seen")
    whole = (decoded / "x.npy").read_bytes()
    (decoded / "x.npy").write_bytes(whole[:5000])
    assert np.array_equal(load("mnist-o", source).x, good)
    (decoded / "about.json").write_text("{")
    assert np.array_equal(load("mnist-o", source).x, good)


@pytest.mark.parametrize("name", ["x.npy", "y.npy", "test.npy"])
@pytest.mark.parametrize("descr", ["|V0", "|S0", "<U0", "broken '"])
def test_a_cache_whose_headers_lie_is_made_anew(
    tmp_path: Path, cache: Path, name: str, descr: str
) -> None:
    source = write_mnist(tmp_path / "mnist")
    good = load("mnist-o", source)
    (decoded,) = (p for p in (cache / "mnist-o" / "decoded").iterdir() if p.name != "seen")
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (-1,)}}".encode()
    (decoded / name).unlink()  # the one that is mapped above stays as it is
    (decoded / name).write_bytes(b"\x93NUMPY\x01\x00" + bytes([len(header), 0]) + header)
    again = load("mnist-o", source)
    assert np.array_equal(again.x, good.x)
    assert np.array_equal(again.y, good.y)


def test_arrays_that_do_not_fit_together_are_made_anew(tmp_path: Path, cache: Path) -> None:
    source = write_mnist(tmp_path / "mnist")
    good = load("mnist-o", source).y.copy()
    (decoded,) = (p for p in (cache / "mnist-o" / "decoded").iterdir() if p.name != "seen")
    for bad in (np.full(70, 200), np.zeros(3, dtype=np.int64)):
        np.save(decoded / "y.npy", bad)
        assert np.array_equal(load("mnist-o", source).y, good)
    about = (decoded / "about.json").read_text()
    (decoded / "about.json").write_text(about.replace("decoded 2", "decoded 1"))
    np.save(decoded / "y.npy", good[::-1])
    assert np.array_equal(load("mnist-o", source).y, good)


def test_the_official_test_part_is_kept_with_the_arrays(tmp_path: Path, cache: Path) -> None:
    source = write_mnist(tmp_path / "mnist")
    for _ in range(2):  # decoded, then from the cache
        test = load("mnist-o", source).test
        assert test is not None
        assert np.flatnonzero(test).tolist() == list(range(50, 70))
    (decoded,) = (p for p in (cache / "mnist-o" / "decoded").iterdir() if p.name != "seen")
    for bad in (np.ones(3, dtype=bool), np.ones(70, dtype=np.int64)):
        np.save(decoded / "test.npy", bad)
        assert np.array_equal(load("mnist-o", source).test, test)  # type: ignore[arg-type]
    (decoded / "test.npy").unlink()
    assert np.array_equal(load("mnist-o", source).test, test)  # type: ignore[arg-type]
    no_parts = write_leaf(tmp_path / "leaf" / "a.json", leaf_content({"u": [1, 2]})).parent
    assert load("femnist", no_parts).test is None
    assert load("femnist", no_parts).test is None


def test_arrays_of_an_older_form_are_replaced_in_their_place(tmp_path: Path, cache: Path) -> None:
    """Those of the first form do not say which examples are tested on."""
    sources.import_files("mnist-o", write_mnist(tmp_path / "m"), trust=True, progress=Counter())
    before = set((cache / "mnist-o" / "decoded").iterdir())
    (decoded,) = (p for p in before if p.name != "seen")
    about = json.loads((decoded / "about.json").read_text())
    del about["has_test"]
    (decoded / "about.json").write_text(json.dumps(about | {"form": "coterie decoded 1"}))
    (decoded / "test.npy").unlink()
    test = load("mnist-o").test
    assert test is not None
    assert test.sum() == 20
    assert set((cache / "mnist-o" / "decoded").iterdir()) - {decoded.with_name("seen")} == {decoded}
    count = Counter()
    load("mnist-o", progress=count)
    assert not count.told


def test_a_copy_of_an_imported_source_is_read_for_itself(tmp_path: Path, cache: Path) -> None:
    """Only the folder in the cache says which arrays are its; a copy may have been changed."""
    given = write_leaf(tmp_path / "given" / "a.json", leaf_content({"u": [1, 2]})).parent
    sources.import_files("femnist", given, trust=True, progress=Counter())
    shutil.copytree(cache / "femnist" / "source", tmp_path / "copy")
    write_leaf(tmp_path / "copy" / "a.json", leaf_content({"u": [3, 4]}))
    assert load("femnist", tmp_path / "copy").y.tolist() == [3, 4]
    assert load("femnist").y.tolist() == [1, 2]


def test_files_that_change_while_they_are_read_are_not_kept(tmp_path: Path, cache: Path) -> None:
    path = write_leaf(tmp_path / "leaf" / "a.json", leaf_content({"u": [1, 2]}))

    def change(what: str, done: int, of: int) -> None:
        if what == "decoding":
            write_leaf(path, leaf_content({"u": [3, 4, 5]}))

    with pytest.raises(DataError, match="changed while it was read; try again"):
        load("femnist", path.parent, change)
    assert not [p for p in tree(cache) if p.endswith(".npy")]
    assert load("femnist", path.parent).y.tolist() == [3, 4, 5]


def test_processes_that_decode_at_the_same_time_agree(tmp_path: Path, cache: Path) -> None:
    source = write_mnist(tmp_path / "mnist")
    code = "import sys; from pathlib import Path; from coterie.data import load"
    code += "; print(load('mnist-o', Path(sys.argv[1])).y.sum())"
    command = [sys.executable, "-c", code, str(source)]
    for damage in (False, True):
        if damage:
            (decoded,) = (p for p in (cache / "mnist-o" / "decoded").iterdir() if p.name != "seen")
            (decoded / "x.npy").write_bytes(b"damaged")
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        assert {process.communicate()[0] for process in running} == {"315\n"}
        assert {process.returncode for process in running} == {0}


def test_bad_files_leave_no_trace_of_arrays(tmp_path: Path, cache: Path) -> None:
    source = write_mnist(tmp_path / "mnist", pack=True)
    labels = source / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(gzip.decompress(labels.read_bytes())[:-1]))
    with pytest.raises(DataError, match="t10k-labels"):
        load("mnist-o", source)
    assert not [p for p in tree(cache) if p.endswith(".npy")]
    broken = write_celeba(tmp_path / "celeba", {1: 5})
    (broken / "img_align_celeba" / "000004.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=r"000004\.jpg"):
        load("celeba", broken)
    assert not [p for p in tree(cache) if p.endswith(".npy")]


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    """A limit on the size of files stands in for a full disk, in a process of its own."""
    source = write_celeba(tmp_path / "celeba", {1: 10})
    code = (
        "import resource, sys; from pathlib import Path; from coterie.data import load; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "
        "load('celeba', Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DataError" in done.stderr
    assert "cannot be written" in done.stderr
    assert not [p for p in tree(cache) if ".new" in p or p.endswith(".npy")]


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "file" / "cache"))
    source = write_mnist(tmp_path / "mnist")
    with caplog.at_level(logging.WARNING):
        assert load("mnist-o", source).x.shape == (70, 1, 28, 28)
    assert "set $COTERIE_DATA" in caplog.text


def test_the_cache_is_where_the_platform_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    from coterie.core.cache_folder import cache_folder

    monkeypatch.delenv("COTERIE_DATA")
    assert cache_folder().name == "coterie"
    assert cache_folder().is_absolute()


def test_a_function_of_yours_can_be_the_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_data.py").write_text(
        "import numpy as np\n"
        "import coterie\n"
        "def make(path=None):\n"
        "    x = np.zeros((6, 5), np.float32)\n"
        "    return coterie.Dataset('mine', x, np.arange(6) % 2, 2)\n"
        "def wrong(): return 3\n"
        "def broken(): raise ValueError('no\\nsuch file')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert load("my_data:make").input_shape == (5,)
    assert load("my_data:make", tmp_path).n_classes == 2
    for name, says in {
        "my_data:wrong": r"returned int, not a coterie\.Dataset",
        "my_data:broken": r"raised ValueError: no \(my_data\.py, line 7\)$",
        "my_data:nothing": "has no function 'nothing'",
    }.items():
        with pytest.raises(DataError, match=says):
            load(name)
