"""IDX: what is read, and what is refused in one line that names the file."""

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.errors import DataError
from coterie.data.files import PACKED_MOST, content_sha256
from coterie.data.idx import find_idx, read_idx, read_idx_pairs
from datafiles import FUZZ, damaged, idx_bytes, write_mnist


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_an_idx_file_reads_back(tmp_path: Path, pack: type[bytes]) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "file").write_bytes(pack(idx_bytes(array)))
    assert (read_idx(tmp_path / "file") == array).all()


BILLIONS = struct.pack(">BBBB3I", 0, 0, 8, 3, 4_000_000_000, 28, 28)
WHOLE = gzip.compress(idx_bytes(np.zeros((3, 2), np.uint8)), mtime=0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "must begin 00 00 08, got nothing"),
        (b"\0\0\x0d\1\0\0\0\1\0\0\0\0", "not an IDX file of unsigned bytes; .* got 00 00 0d"),
        (b"\0\0\x08\3\0\0", "header is cut off"),
        (b"\0\0\x08\1\0\0\0\5abc", "needs 5 bytes, the file has 3"),
        (b"\0\0\x08\1\0\0\0\2abc", "needs 2 bytes, the file has more"),
        (b"\x1f\x8bnot gzip", "cannot be read"),
        (WHOLE[:-9], "cannot be read .*(cut off|ended before)"),
        (WHOLE[:-8] + b"\0" * 8, "cannot be read"),
        (BILLIONS, "needs 3,136,000,000,000 bytes, the file has"),
        (gzip.compress(BILLIONS, mtime=0), "unpacks to 3,136,000,000,000 bytes or more, over 100"),
    ],
)
def test_what_is_not_idx_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read_idx(tmp_path / "file")
    assert str(tmp_path / "file") in str(caught.value)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    header = struct.pack(">BBBBI", 0, 0, 8, 1, 1000)
    (tmp_path / "bomb").write_bytes(gzip.compress(header + bytes(200_000_000), 1))
    tracemalloc.start()
    with pytest.raises(DataError, match="needs 1,000 bytes, the file has more"):
        read_idx(tmp_path / "bomb")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_a_bomb_whose_header_is_right_is_not_unpacked_either(tmp_path: Path) -> None:
    header = struct.pack(">BBBBI", 0, 0, 8, 1, 50_000_000)
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(header + bytes(50_000_000)))
    tracemalloc.start()
    with pytest.raises(DataError, match="unpacks to 50,000,000 bytes or more, over 100 times its"):
        read_idx(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000
    path.write_bytes(header + bytes(50_000_000))  # gunzipped, as the error says
    assert read_idx(path).shape == (50_000_000,)


def test_nothing_of_a_great_many_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_bytes(bytes.fromhex("00000803 ee000000 8a000000 00000000"))
    with pytest.raises(DataError, match=r"\[3992977408, 2315255808, 0\] is too large"):
        read_idx(path)
    path.write_bytes(bytes([0, 0, 8, 200]) + 200 * bytes([0, 0, 0, 1]) + b"x")
    with pytest.raises(DataError, match="is too large for an array"):
        read_idx(path)
    path.write_bytes(bytes.fromhex("00000803 00000000 0000001c 0000001c"))
    assert read_idx(path).shape == (0, 28, 28)


@FUZZ
@given(st.data())
def test_no_idx_file_does_worse_than_our_error(tmp_path: Path, data: st.DataObject) -> None:
    """Arbitrary bytes, and whole files with bytes changed or cut off."""
    content = data.draw(st.one_of(st.binary(max_size=60), damaged(WHOLE), damaged(BILLIONS)))
    path = tmp_path / "fuzzed"
    path.write_bytes(content)
    try:
        array = read_idx(path)
    except DataError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
    else:
        assert array.dtype == np.uint8


def test_the_four_files_are_pooled_wherever_below_the_folder_they_are(tmp_path: Path) -> None:
    plain = write_mnist(tmp_path / "a" / "package" / "data")
    packed = write_mnist(tmp_path / "b", pack=True)
    x, y, test = read_idx_pairs(find_idx(tmp_path / "a"), 10)
    assert x.shape == (70, 1, 28, 28)
    assert y.tolist() == [i % 10 for i in [*range(50), *range(20)]]
    assert test.tolist() == [False] * 50 + [True] * 20
    again, *_ = read_idx_pairs(find_idx(packed), 10)
    assert np.array_equal(x, again)
    (plain / "extra").mkdir()
    write_mnist(plain / "extra")
    with pytest.raises(DataError, match=r"has both .* keep one"):
        find_idx(tmp_path / "a")


def test_emnists_pictures_are_turned_and_its_letters_count_from_one(tmp_path: Path) -> None:
    picture = np.arange(784, dtype=np.uint8).reshape(1, 28, 28)
    for part in ("train", "test"):
        for kind, array in {
            "images-idx3": picture,
            "labels-idx1": np.array([26], np.uint8),
        }.items():
            path = tmp_path / f"emnist-letters-{part}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(idx_bytes(array)))
    files = find_idx(tmp_path, "emnist-letters-", "test")
    x, y, test = read_idx_pairs(files, 26, 1, transposed=True)
    assert np.array_equal(x[0, 0], picture[0].T)
    assert y.tolist() == [25, 25]
    assert test.tolist() == [False, True]


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        ((2, 3, 3), [0] * 5, r"images \[2, 3, 3\], but .* has labels \[5\]; there must be as many"),
        ((2, 3, 3), [0, 10], "labels must be 0 to 9, got 10 for example 1"),
        ((0, 3, 3), [], "there must be as many"),
        ((2, 0, 3), [0, 0], "there must be as many"),
    ],
)
def test_images_and_labels_must_agree(
    tmp_path: Path, images: tuple[int, ...], labels: list[int], says: str
) -> None:
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(np.zeros(images, np.uint8)))
        content = idx_bytes(np.array(labels, np.uint8))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(content)
    with pytest.raises(DataError, match=says):
        read_idx_pairs(find_idx(tmp_path), 10)


def test_images_of_two_sizes_are_refused(tmp_path: Path) -> None:
    for part, side in (("train", 3), ("t10k", 4)):
        pictures, labels = np.zeros((2, side, side), np.uint8), np.zeros(2, np.uint8)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(pictures))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    with pytest.raises(DataError, match=r"one size, got \[4, 4\] after \[3, 3\]"):
        read_idx_pairs(find_idx(tmp_path), 10)


def test_a_gzip_file_of_many_members_is_read_whole(tmp_path: Path) -> None:
    whole = idx_bytes(np.arange(200, dtype=np.uint8))
    members = [gzip.compress(whole[i : i + 1]) + b"\0\0" for i in range(len(whole))]
    (tmp_path / "many").write_bytes(b"".join(members))
    assert read_idx(tmp_path / "many").tolist() == list(range(200))
    (tmp_path / "many").write_bytes(b"".join(members)[:-12])
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(tmp_path / "many")


def test_files_of_few_colours_and_sorted_labels_pass_packed(tmp_path: Path) -> None:
    white = np.full((20_000, 28, 28), 255, np.uint8)
    labels = np.repeat(np.arange(10), 2000).astype(np.uint8)
    for array in (white, labels):
        content = idx_bytes(array)
        packed = gzip.compress(content, mtime=0)
        assert len(content) > PACKED_MOST * len(packed)
        (tmp_path / "file.gz").write_bytes(packed)
        assert (read_idx(tmp_path / "file.gz") == array).all()


def test_hashing_stops_where_a_bomb_is_one(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(40_000_000)))
    with pytest.raises(DataError, match=r"bomb.gz: unpacks to 1[67],\d+,\d+ bytes or more"):
        content_sha256(path)
