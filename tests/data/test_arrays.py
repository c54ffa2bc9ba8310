"""A user's own arrays, from files or a function: what is read, and what is refused."""

import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from coterie.core.errors import DataError
from coterie.data.arrays import find_arrays, from_pair, read_arrays
from coterie.data.dataset import Dataset, check_dataset
from datafiles import FUZZ, damaged


@pytest.mark.parametrize("form", ["npz", "packed npz", "folder"])
@pytest.mark.parametrize("with_user", [True, False])
def test_your_own_arrays_are_read_from_an_npz_or_a_folder(
    tmp_path: Path, form: str, with_user: bool
) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, NDArray[np.generic]] = {
        "x": rng.integers(0, 256, (6, 5, 4), dtype=np.uint8),
        "y": np.array([0, 1, 2, 0, 1, 2], np.int16),
    }
    if with_user:
        arrays["user"] = np.array(["b", "b", "a", "a", "c", "c"])
    path = tmp_path / "mine.npz"
    if form == "folder":
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
        path = tmp_path
    else:
        (np.savez if form == "npz" else np.savez_compressed)(path, **arrays)  # type: ignore[arg-type]
    data = read_arrays(find_arrays(path))
    assert data.x.shape == (6, 1, 5, 4)
    assert np.array_equal(data.x[:, 0], arrays["x"])
    assert data.n_classes == 3
    assert data.y.dtype == np.int64
    if with_user:
        assert data.user_names == ("a", "b", "c")
        assert data.users is not None
        assert data.users.tolist() == [1, 1, 0, 0, 2, 2]


def test_features_that_are_numbers_are_kept_as_they_are(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 7))
    np.savez(tmp_path / "f.npz", x=x, y=np.array([0, 1, 0, 1]))
    data = read_arrays(find_arrays(tmp_path / "f.npz"))
    assert data.x.dtype == np.float32
    assert data.input_shape == (7,)
    assert np.allclose(data.x, x)


LABELS = np.array([0, 1])


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (
            {"x": np.zeros((2, 3), np.uint8)},
            "'x', 'y' and perhaps 'user', 'test', has 'x'",
        ),
        (
            {"X": np.zeros((2, 3), np.uint8), "label": LABELS},
            "'user', 'test', has 'X', 'label'",
        ),
        (
            {"x": np.zeros((3, 3), np.uint8), "y": LABELS},
            r"for each example of x, \[3\], got \[2\]",
        ),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS[:, None]}, r"\[2\], got \[2, 1\]"),
        ({"x": np.zeros((0, 3), np.uint8), "y": LABELS[:0]}, "x has no examples"),
        ({"x": np.zeros((2, 3), np.int64), "y": LABELS}, r"x\.astype\(np\.uint8\).* got int64"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS / 2}, "got 0.0, 0.5; in Python use coterie"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS - 1}, "without gaps, got -1, 0; store"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS + 1}, "without gaps, got 1, 2; store"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS * 9}, "without gaps, got 0, 9; store"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS.astype("U")}, "got 0, 1; store np.unique"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS * 0}, "all labels are 0"),
        ({"x": np.full((2, 4, 4), 255.0), "y": LABELS}, r"pixels; store x\.astype\(np\.uint8\)"),
        ({"x": np.full((2, 3), np.nan), "y": LABELS}, "values that are not finite"),
        ({"x": np.zeros((2, 8, 8, 3), np.uint8), "y": LABELS}, r"transpose\(0, 3, 1, 2\)"),
        ({"x": np.zeros(2, np.uint8), "y": LABELS}, r"pixels .uint8. or numbers .float32. \[N"),
        (
            {"x": np.zeros((2, 3), np.uint8), "y": LABELS, "user": LABELS / 2},
            "user must be a whole number or name",
        ),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS, "user": LABELS[:1]}, "example of x"),
        ({"x": np.zeros((2, 3), np.uint8), "y": np.array([None, 1])}, "y.npy holds Python objects"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, NDArray[np.generic]], says: str
) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=says) as caught:
        read_arrays(find_arrays(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (np.zeros((2, 3)), LABELS / 2, "got 0.0, 0.5; in Python use {regression}"),
        (np.zeros((2, 3)), LABELS[:, None] / 2, r"\[2\], got \[2, 1\]; in Python use {regression}"),
        (np.zeros((2, 3)), LABELS * 9, r"store np.unique\(.*\[1\]; .* {regression} if they are"),
        (np.ones((2, 3), int), np.ones((2, 3), int), r"got \[2, 3\]; in Python use {next-token}"),
        (np.zeros((2, 3)), np.ones((2, 4), int), "use {multi-label}, or 'regression'"),
        (np.ones((2, 3), int), LABELS, "got int64; tokens need a coterie.Dataset in Python"),
    ],
)
def test_targets_of_another_task_are_sent_to_what_takes_them(
    x: NDArray[np.generic], y: NDArray[np.generic], says: str
) -> None:
    for task in ("regression", "next-token", "multi-label"):
        says = says.replace(f"{{{task}}}", rf"coterie\.Dataset\(\.\.\., task='{task}'\)")
    with pytest.raises(DataError, match=f"^dataset \\(x, y\\): .*{says}") as caught:
        from_pair(x, y)
    assert "\n" not in str(caught.value)


def test_an_array_that_claims_more_than_its_file_holds_is_refused(tmp_path: Path) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": (4_000_000_000, 784)}
    with zipfile.ZipFile(tmp_path / "big.npz", "w") as archive:
        for name in ("x.npy", "y.npy"):
            with archive.open(name, "w") as file:
                np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(DataError, match="claims 3,136,000,000,000 bytes and has 0"):
        read_arrays(find_arrays(tmp_path / "big.npz"))
    with zipfile.ZipFile(tmp_path / "lies.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w") as file:
            np.lib.format.write_array_header_1_0(file, header)
        archive.infolist()[0].file_size += 4_000_000_000 * 784  # as the directory will have it
        archive.writestr("y.npy", _npy("'<i8'", "(2,)", bytes(16)))
    with pytest.raises(DataError, match=r"unpacks to 3,136,000,000,016 bytes, over 100 times its"):
        read_arrays(find_arrays(tmp_path / "lies.npz"))
    with pytest.raises(DataError, match=r"must be an \.npz file, or a folder"):
        find_arrays(tmp_path / "none")


@FUZZ
@given(st.data())
def test_no_npz_does_worse_than_our_error(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "fuzzed.npz"
    np.savez(path, x=np.zeros((2, 3), np.uint8), y=np.array([0, 1]))
    path.write_bytes(data.draw(st.one_of(st.binary(max_size=60), damaged(path.read_bytes()))))
    try:
        assert len(read_arrays([path]).y) == 2
    except DataError as error:
        assert "\n" not in str(error)


def test_an_npz_packed_in_another_way_or_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", x=np.zeros((2, 3), np.uint8), y=np.array([0, 1]))
    with zipfile.ZipFile(tmp_path / "good.npz") as good:
        members = {name: good.read(name) for name in good.namelist()}
    with zipfile.ZipFile(tmp_path / "bz2.npz", "w", zipfile.ZIP_BZIP2) as bad:
        for name, content in members.items():
            bad.writestr(name, content)
    with pytest.raises(DataError, match="packed in a way that NumPy does not use"):
        read_arrays([tmp_path / "bz2.npz"])
    with zipfile.ZipFile(tmp_path / "good.npz", "a") as bad:
        bad.writestr("x", members["x.npy"])
    with pytest.raises(DataError, match="x is there twice"):
        read_arrays([tmp_path / "good.npz"])


def test_a_dataset_of_your_own_making_is_checked() -> None:
    x, y = np.zeros((3, 4), np.float32), np.array([0, 1, 2])
    assert check_dataset(Dataset("mine", x, y, 3)).n_classes == 3
    users = np.array([0, 0, 1])
    for bad, says in {
        Dataset("mine", x, y, 2): "labels must be 0 to 1, got 2 for example 2",
        Dataset("mine", x, y[:2], 3): "y must be 3 whole numbers",
        Dataset("mine", x, y, 3, users - 1): "users must be numbers of user_names",
        Dataset("mine", x, y, 3, users, ("a",)): "users must be numbers of user_names, 0 to 0",
        Dataset("mine", x.tolist(), y, 3): "x must be a NumPy array, got list",  # type: ignore[arg-type]
        Dataset("mine", x, y, 3.0): "n_classes must be a whole number",  # type: ignore[arg-type]
        Dataset("mine", x, y, 10**12): "n_classes must be a whole number up to 1,000,000",
        Dataset("mine", x.astype(float), y, 3): "numbers .float32.",
        Dataset("mine", x, y, 3, test=[True] * 3): "test must be a NumPy array, got list",  # type: ignore[arg-type]
        Dataset("mine", x, y, 3, test=np.ones(2, bool)): r"test must be 3 times .*got bool \[2\]",
        Dataset("mine", x, y, 3, test=y): "test must be 3 times true or false .*got int64",
    }.items():
        with pytest.raises(DataError, match=says):
            check_dataset(bad)


def _npy(descr: str, shape: str, data: bytes = b"") -> bytes:
    """An .npy whose header says whatever it is told to."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


HOSTILE = {
    "V0": (_npy("'|V0'", "(-1,)"), r"type must be of numbers or text, got '\|V0'"),
    "S0": (_npy("'|S0'", "(-1,)"), r"type must be of numbers or text, got '\|S0'"),
    "U0": (_npy("'<U0'", "(1000000000,)"), "type must be of numbers or text, got '<U0'"),
    "fields": (_npy("[('a', '<i8')]", "(1,)", b"\0" * 8), "type must be of numbers or text"),
    "negative": (_npy("'|u1'", "(-2, -3)", b"\0" * 6), r"counts of an array, got \(-2, -3\)"),
    "true": (_npy("'|u1'", "(True,)", b"\0"), r"counts of an array, got \(True,\)"),
    "nothing, many": (_npy("'|u1'", f"(0, {2**63})"), "counts of an array"),
    "many dims": (_npy("'|u1'", f"({'1,' * 70})", b"\0"), "counts of an array"),
    "unclosed": (_npy("'|u1'", "(2, 3", b"\0" * 6), "header is broken"),
    "deep": (_npy("'|u1'", "(" * 3000, b"\0" * 6), "header is broken"),
    "long": (_npy("'|u1'", " " * 11_000 + "(1,)", b"\0"), "more than 10,000 bytes"),
    "cut off": (_npy("'|u1'", "(1,)")[:20], "cut off"),
    "no float": (_npy("'<f3'", "(1,)", b"\0" * 3), "type is not known, got <f3"),
    "too little": (_npy("'|u1'", "(4000000000,)", b"\0"), "claims 4,000,000,000 bytes and has 1"),
}


@pytest.mark.parametrize("which", HOSTILE)
@pytest.mark.parametrize("place", ["x", "y", "user", "test"])
def test_a_header_is_checked_before_numpy_believes_it(
    tmp_path: Path, which: str, place: str
) -> None:
    content, says = HOSTILE[which]
    good = {
        "x": _npy("'|u1'", "(2, 3)", b"\0" * 6),
        "y": _npy("'<i8'", "(2,)", np.arange(2).tobytes()),
    }
    files = {**good, place: content}
    for name, bytes_ in files.items():
        (tmp_path / f"{name}.npy").write_bytes(bytes_)
    with pytest.raises(DataError, match=says) as caught:
        read_arrays(find_arrays(tmp_path))
    assert "\n" not in str(caught.value)
    packed = tmp_path / "packed.npz"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, bytes_ in files.items():
            archive.writestr(f"{name}.npy", bytes_)
    with pytest.raises(DataError, match=says):
        read_arrays([packed])


def test_no_array_is_read_where_the_names_are_wrong(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "many.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(12):
            archive.writestr(f"a{number:02}.npy", b"not an array")
    with pytest.raises(DataError, match=r"has 'a00', .*'a07' and 4 more$"):
        read_arrays([tmp_path / "many.npz"])


def test_a_packed_npz_that_unpacks_to_much_more_is_refused_before_it_takes_memory(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bomb.npz"
    x, y = np.zeros((40_000, 1000), np.uint8), np.arange(40_000) % 2
    np.savez_compressed(path, x=x, y=y)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"40,320,000 bytes, over 100 times .* by np\.savez"):
        read_arrays([path])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000
    np.savez(path, x=x, y=y)  # as the error says
    assert read_arrays([path]).x.shape == (40_000, 1000)


def test_names_that_repeat_may_pack_well_beside_examples_that_do_not(tmp_path: Path) -> None:
    user = np.repeat([f"somebody with a long name {i}" for i in range(20)], 10_000)
    x = np.random.default_rng(0).integers(0, 256, (len(user), 4), dtype=np.uint8)
    np.savez_compressed(tmp_path / "a.npz", x=x, y=np.arange(len(user)) % 2, user=user)
    assert len(read_arrays([tmp_path / "a.npz"]).user_names) == 20


def test_numbers_too_large_for_32_bits_are_refused_without_a_warning(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.full((4, 2), 1e300), y=np.arange(4) % 2)
    with pytest.raises(DataError, match="not finite numbers"):
        read_arrays([tmp_path / "a.npz"])


@pytest.mark.parametrize("code", [0xD800, 0xDFFF, 0x110000, 0xFFFFFFFF])
@pytest.mark.parametrize("order", ["<", ">"])
def test_names_that_are_no_text_are_refused(tmp_path: Path, code: int, order: str) -> None:
    codes = np.full((4, 3), 0x1F600, f"{order}u4")
    files = {
        "x": _npy("'|u1'", "(4, 2)", bytes(8)),
        "y": _npy("'<i8'", "(4,)", (np.arange(4) % 2).tobytes()),
        "user": _npy(f"'{order}U3'", "(4,)", codes.tobytes()),
    }
    for name, content in files.items():
        (tmp_path / f"{name}.npy").write_bytes(content)
    assert read_arrays(find_arrays(tmp_path)).user_names == ("\U0001f600" * 3,)
    codes[2, 1] = code
    (tmp_path / "user.npy").write_bytes(_npy(f"'{order}U3'", "(4,)", codes.tobytes()))
    with pytest.raises(DataError, match=f"user of example 2 is no text, it has 0x{code:x}$"):
        read_arrays(find_arrays(tmp_path))
