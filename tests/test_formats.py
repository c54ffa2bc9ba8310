"""The readers: what they read, and what they refuse, each in one line that names the file."""

import gzip
import json
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from coterie.data.arrays import find_arrays, read_arrays
from coterie.data.celeba import find_celeba, read_celeba
from coterie.data.dataset import Dataset, check_dataset
from coterie.data.idx import find_idx, read_idx, read_idx_pairs
from coterie.data.leaf import find_leaf, read_leaf
from coterie.errors import DataError
from datafiles import idx_bytes, leaf_content, write_celeba, write_leaf, write_mnist

SHAPE = (1, 28, 28)
FUZZ = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_an_idx_file_reads_back(tmp_path: Path, pack: type[bytes]) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "file").write_bytes(pack(idx_bytes(array)))
    assert (read_idx(tmp_path / "file") == array).all()


BILLIONS = struct.pack(">BBBB3I", 0, 0, 8, 3, 4_000_000_000, 28, 28)
WHOLE = gzip.compress(idx_bytes(np.zeros((3, 2), np.uint8)))


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
        (BILLIONS, "needs 3,136,000,000,000 bytes, more than a file of its size can hold"),
        (gzip.compress(BILLIONS), "more than a file of its size can hold"),
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


@FUZZ
@given(st.data())
def test_no_idx_file_does_worse_than_our_error(tmp_path: Path, data: st.DataObject) -> None:
    """Arbitrary bytes, and whole files with bytes changed or cut off."""
    content = data.draw(st.one_of(st.binary(max_size=60), _damaged(WHOLE), _damaged(BILLIONS)))
    path = tmp_path / "fuzzed"
    path.write_bytes(content)
    try:
        array = read_idx(path)
    except DataError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
    else:
        assert array.dtype == np.uint8


def _damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Strategy of a file's content with a few bytes replaced, and perhaps its end cut off."""

    def damage(changes: list[tuple[int, int]], keep: float) -> bytes:
        changed = bytearray(content)
        for at, value in changes:
            changed[at % len(changed)] = value
        return bytes(changed[: round(keep * len(changed))])

    changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4)
    return st.builds(damage, changes, st.one_of(st.just(1.0), st.floats(0, 1)))


def test_the_four_files_are_pooled_wherever_below_the_folder_they_are(tmp_path: Path) -> None:
    plain = write_mnist(tmp_path / "a" / "package" / "data")
    packed = write_mnist(tmp_path / "b", pack=True)
    x, y = read_idx_pairs(find_idx(tmp_path / "a"), 10)
    assert x.shape == (70, 1, 28, 28)
    assert y.tolist() == [i % 10 for i in [*range(50), *range(20)]]
    again, _ = read_idx_pairs(find_idx(packed), 10)
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
    x, y = read_idx_pairs(files, 26, 1, transposed=True)
    assert np.array_equal(x[0, 0], picture[0].T)
    assert y.tolist() == [25, 25]


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        ((2, 3, 3), [0] * 5, r"images \[2, 3, 3\], but .* has labels \[5\]; there must be as many"),
        ((2, 3, 3), [0, 10], "labels must be 0 to 9, got 10 for example 1"),
        ((0, 3, 3), [], "there must be as many"),
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


def test_leaf_files_are_pooled_and_a_user_in_two_of_them_is_one(tmp_path: Path) -> None:
    train = leaf_content({"b": [1, 61], "a": [0]}) | {"hierarchies": ["x", "y"]}
    write_leaf(tmp_path / "train" / "all_data_0.json.gz", train)
    write_leaf(tmp_path / "test" / "all_data_0.json", leaf_content({"b": [7]}, seed=1))
    x, y, users, names = read_leaf(find_leaf(tmp_path), 62, SHAPE)
    assert y.tolist() == [7, 1, 61, 0]
    assert [names[u] for u in users] == ["b", "b", "b", "a"]
    given = np.rint(np.array(train["user_data"]["b"]["x"]) * 255).reshape(2, 1, 28, 28)
    assert np.array_equal(x[1:3], given)


def _leaf(**changes: object) -> dict[str, object]:
    return leaf_content({"u": [1, 2], "v": [3]}) | changes


PIXELS = [[0.5] * 784]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (_leaf(num_samples=[2, 2]), "user 'v' has num_samples 2, but 1 x and 1 y"),
        (_leaf(num_samples=[2]), "2 users but 1 num_samples"),
        (_leaf(users=["u", "w"]), "users and user_data differ, first in 'v'"),
        (_leaf(users=["u", "u"], num_samples=[2, 2]), "users and user_data differ"),
        (leaf_content({"u": [62]}), "user 'u': labels must be 0 to 61, got 62 for example 0"),
        (leaf_content({"u": [-1]}), "labels must be 0 to 61, got -1"),
        (leaf_content({"u": [2**70]}), "labels must be 0 to 61|not a LEAF file"),
        (_leaf(metadata=3), "not a LEAF file .*metadata"),
        ({"users": []}, "not a LEAF file .*num_samples"),
        ([], "not a LEAF file"),
        (_leaf(user_data=3), "not a LEAF file"),
        (
            {"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": [[1.0]], "y": [0]}}},
            r"user 'u' has an x of 1 numbers; 784 make \[1, 28, 28\]",
        ),
        (
            {"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": [[]], "y": [0]}}},
            r"user 'u' has an x of 0 numbers",
        ),
        (
            {
                "users": ["u"],
                "num_samples": [1],
                "user_data": {"u": {"x": [[7.0] * 784], "y": [0]}},
            },
            "a pixel 7; it must be a byte divided by 255",
        ),
        (
            {"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": PIXELS, "y": [0]}}},
            "a pixel 0.5; it must be a byte divided by 255",
        ),
        ({"users": [], "num_samples": [], "user_data": {}}, "the files have no examples"),
    ],
)
def test_what_is_not_leafs_is_refused(tmp_path: Path, content: object, says: str) -> None:
    path = write_leaf(tmp_path / "all_data.json", content)
    with pytest.raises(DataError, match=says) as caught:
        read_leaf(find_leaf(tmp_path), 62, SHAPE)
    assert str(path.parent) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_json_that_is_cut_in_the_middle_is_refused(tmp_path: Path) -> None:
    data = json.dumps(_leaf()).encode()
    (tmp_path / "cut.json").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"cut\.json: not a LEAF file .*truncated"):
        read_leaf(find_leaf(tmp_path), 62, SHAPE)
    (tmp_path / "cut.json").write_bytes(gzip.compress(data)[:-20])
    with pytest.raises(DataError, match=r"cut\.json: cannot be read"):
        read_leaf(find_leaf(tmp_path), 62, SHAPE)
    with pytest.raises(DataError, match=r"no \.json or \.json\.gz"):
        find_leaf(tmp_path / "nowhere")
    write_leaf(tmp_path / "cut.json.gz", _leaf())
    with pytest.raises(DataError, match="is there unpacked as well"):
        find_leaf(tmp_path)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["users", "num_samples", "user_data", "x", "y"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["users", "num_samples", "user_data", "x", "y", "u"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
SMALL_LEAF = json.dumps(
    {"users": ["u"], "num_samples": [2], "user_data": {"u": {"x": [[0, 1.0], [1, 0]], "y": [1, 0]}}}
).encode()


@FUZZ
@given(st.data())
def test_no_leaf_file_does_worse_than_our_error(tmp_path: Path, data: st.DataObject) -> None:
    """Arbitrary bytes and JSON, and whole files with bytes changed or cut off, packed or not."""
    content = data.draw(
        st.one_of(
            st.binary(max_size=60),
            JSON_VALUES.map(lambda value: json.dumps(value).encode()),
            _damaged(SMALL_LEAF),
            _damaged(SMALL_LEAF).map(gzip.compress),
            _damaged(gzip.compress(SMALL_LEAF)),
        )
    )
    path = tmp_path / "fuzzed.json"
    path.write_bytes(content)
    try:
        x, y, users, names = read_leaf([path], 2, (1, 2, 1))
    except DataError as error:
        assert str(path.parent) in str(error)
        assert "\n" not in str(error)
    else:
        assert len(x) == len(y) == len(users) > 0
        assert users.max() < len(names)


def test_deep_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_bytes(b'{"hierarchies":' + b"[" * 100_000)
    with pytest.raises(DataError, match="not a LEAF file"):
        read_leaf([path], 62, SHAPE)


def test_celeba_in_its_official_layout_is_read_as_leaf_reads_it(tmp_path: Path) -> None:
    write_celeba(tmp_path, {2880: 6, 3: 5, 77: 4})
    x, y, users, names = read_celeba(find_celeba(tmp_path))
    assert x.shape == (11, 3, 84, 84)
    assert names == ("3", "2880")  # 77 has fewer than five pictures
    assert np.bincount(users).tolist() == [5, 6]
    lines = (tmp_path / "identity_CelebA.txt").read_text().split("\n")
    who = dict(line.split() for line in lines if line)
    kept = sorted((int(who[name]), name) for name in who if who[name] != "77")
    assert y.tolist() == [int(int(name[:6]) % 3 == 0) for _, name in kept]
    for i, (_, name) in enumerate(kept):
        with Image.open(tmp_path / "img_align_celeba" / name) as picture:
            expected = np.asarray(picture.resize((84, 84)).convert("RGB")).transpose(2, 0, 1)
        assert np.array_equal(x[i], expected)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ("corrupt", r"000003\.jpg: not a whole JPEG"),
        ("cut", r"000003\.jpg: not a whole JPEG"),
        ("png", r"000003\.jpg: not a whole JPEG"),
        ("no image", r"identity_CelebA\.txt: names a picture that is not there, 000003\.jpg"),
        ("no identity", r"identity_CelebA\.txt: has no line for 999999\.jpg"),
        ("no attributes", r"list_attr_celeba\.txt: (says 10 pictures, has 9)"),
        ("strange identity", r"identity_CelebA\.txt: line 2 must be a picture and a number"),
        ("twice", r"identity_CelebA\.txt: line 11 names 000001\.jpg again"),
        ("strange value", r"list_attr_celeba\.txt: line 3 must be a picture and 40 times"),
        ("no header", r"list_attr_celeba\.txt: must begin with a count and 40 names"),
        ("empty", r"list_attr_celeba\.txt: must begin with a count and 40 names"),
        ("binary", r"identity_CelebA\.txt: not a text file"),
        ("few", "nobody has 5 pictures or more"),
        ("no list", r"no identity_CelebA\.txt in it"),
        ("no folder", "no folder img_align_celeba with .jpg files in it"),
    ],
)
def test_celeba_that_does_not_fit_together_is_refused(
    tmp_path: Path, spoil: str, says: str
) -> None:
    write_celeba(tmp_path, dict.fromkeys(range(3), 3) | {9: 1} if spoil == "few" else {1: 5, 2: 5})
    picture = tmp_path / "img_align_celeba" / "000003.jpg"
    identities, attributes = tmp_path / "identity_CelebA.txt", tmp_path / "list_attr_celeba.txt"
    who, what = identities.read_text(), attributes.read_text()
    if spoil == "corrupt":
        picture.write_bytes(b"not a picture")
    elif spoil == "cut":
        picture.write_bytes(picture.read_bytes()[:300])
    elif spoil == "png":
        Image.new("RGB", (178, 218)).save(picture, format="PNG")
    elif spoil == "no image":
        picture.unlink()
    elif spoil == "no identity":
        picture.with_name("999999.jpg").write_bytes(picture.read_bytes())
    elif spoil == "no attributes":
        attributes.write_text(what[: what.rstrip().rindex("\n") + 1])
    elif spoil == "strange identity":
        identities.write_text(who.replace("000002.jpg ", "000002.jpg x"))
    elif spoil == "twice":
        identities.write_text(who + "000001.jpg 1\n")
    elif spoil == "strange value":
        attributes.write_text(what.replace("000001.jpg -1", "000001.jpg -1 0"))
    elif spoil == "no header":
        attributes.write_text(what.partition("\n")[2])
    elif spoil == "empty":
        attributes.write_text("")
    elif spoil == "binary":
        identities.write_bytes(b"\xff\xfe\x00")
    elif spoil == "no list":
        identities.unlink()
    elif spoil == "no folder":
        (tmp_path / "img_align_celeba").rename(tmp_path / "pictures")
    with pytest.raises(DataError, match=says) as caught:
        read_celeba(find_celeba(tmp_path))
    assert "\n" not in str(caught.value)


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
        ({"x": np.zeros((2, 3), np.uint8)}, "has no 'y'"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS, "z": LABELS}, "has 'z'; known are x, y"),
        ({"x": np.zeros((3, 3), np.uint8), "y": LABELS}, r"one number for each example of x"),
        ({"x": np.zeros((2, 3), np.int64), "y": LABELS}, "bytes .uint8. or floats, got int64"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS / 2}, "y must be whole numbers, got float"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS - 1}, "must count from 0, got -1 to 0"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS * 9}, "must count from 0, got 0 to 9"),
        ({"x": np.full((2, 3), np.nan), "y": LABELS}, "values that are not finite"),
        ({"x": np.zeros((2, 8, 8, 3), np.uint8), "y": LABELS}, r"transpose\(0, 3, 1, 2\)"),
        ({"x": np.zeros(2, np.uint8), "y": LABELS}, r"bytes or 32-bit floats \[N, ...\]"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS, "user": LABELS / 2}, "user must be one"),
        ({"x": np.zeros((2, 3), np.uint8), "y": LABELS, "user": LABELS[:1]}, "users must be 2"),
        ({"x": np.zeros((2, 3), np.uint8), "y": np.array([None, 1])}, "not arrays as NumPy"),
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


def test_an_array_that_claims_more_than_its_file_holds_is_refused(tmp_path: Path) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": (4_000_000_000, 784)}
    with zipfile.ZipFile(tmp_path / "big.npz", "w") as archive:
        for name in ("x.npy", "y.npy"):
            with archive.open(name, "w") as file:
                np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(DataError, match="claims 3,136,000,000,000 bytes and has 0"):
        read_arrays(find_arrays(tmp_path / "big.npz"))
    with pytest.raises(DataError, match=r"must be an \.npz file, or a folder"):
        find_arrays(tmp_path / "none")


@FUZZ
@given(st.data())
def test_no_npz_does_worse_than_our_error(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "fuzzed.npz"
    np.savez(path, x=np.zeros((2, 3), np.uint8), y=np.array([0, 1]))
    path.write_bytes(data.draw(st.one_of(st.binary(max_size=60), _damaged(path.read_bytes()))))
    try:
        assert len(read_arrays([path]).y) == 2
    except DataError as error:
        assert "\n" not in str(error)


def test_a_dataset_of_your_own_making_is_checked() -> None:
    x, y = np.zeros((3, 4), np.float32), np.array([0, 1, 2])
    assert check_dataset(Dataset("mine", x, y, 3)).n_classes == 3
    for bad, says in {
        Dataset("mine", x, y, 2): "labels must be 0 to 1, got 2 for example 2",
        Dataset("mine", x, y[:2], 3): "y must be 3 whole numbers",
        Dataset("mine", x, y, 3, np.array([0, 0, -1])): "users must be >= 0",
    }.items():
        with pytest.raises(DataError, match=says):
            check_dataset(bad)
