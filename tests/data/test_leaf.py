"""LEAF's JSON: what is read, and what is refused in one line that names the file."""

import gzip
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.errors import DataError
from coterie.data.leaf import find_leaf, read_leaf
from datafiles import FUZZ, damaged, leaf_content, write_leaf

SHAPE = (1, 28, 28)


def test_leaf_files_are_pooled_and_a_user_in_two_of_them_is_one(tmp_path: Path) -> None:
    train = leaf_content({"b": [1, 61], "a": [0]}) | {"hierarchies": ["x", "y"]}
    write_leaf(tmp_path / "train" / "all_data_0.json.gz", train)
    write_leaf(tmp_path / "test" / "all_data_0.json", leaf_content({"b": [7]}, seed=1))
    x, y, users, names, test = read_leaf(find_leaf(tmp_path), 62, SHAPE)
    assert y.tolist() == [7, 1, 61, 0]
    assert [names[u] for u in users] == ["b", "b", "b", "a"]
    given = np.rint(np.array(train["user_data"]["b"]["x"]) * 255).reshape(2, 1, 28, 28)
    assert np.array_equal(x[1:3], given)
    assert test is not None
    assert test.tolist() == [True, False, False, False]


def test_leafs_test_part_is_known_by_its_folder_beside_train(tmp_path: Path) -> None:
    """One folder alone, whatever its name, says nothing of what is tested on."""
    for name in ("test", "all_data", "train"):
        write_leaf(tmp_path / name / name / "a.json", leaf_content({"u": [1, 2]}))
        *_, test = read_leaf(find_leaf(tmp_path / name), 62, SHAPE)
        assert test is None


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
        *(
            ({"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": x, "y": [0]}}}, says)
            for x, says in {
                "null": (None, "has num_samples 1, but -1 x"),
                "text": ("[[", "user 'u': x must be lists of numbers"),
                "flat": ([0.0] * 784, "has num_samples 1, but 0 x"),
                "a number between": ([[0.0] * 784, 3], "user 'u': x must be lists of numbers"),
                "text in a row": ([[*[0.0] * 783, "1"]], "user 'u': x must be lists of numbers"),
                "truth in a row": ([[*[0.0] * 783, True]], "user 'u': x must be lists of numbers"),
                "brackets in text": ([["[", *[0.0] * 783]], "has num_samples 1, but 2 x"),
            }.values()
        ),
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
            damaged(SMALL_LEAF),
            damaged(SMALL_LEAF).map(gzip.compress),
            damaged(gzip.compress(SMALL_LEAF)),
        )
    )
    path = tmp_path / "fuzzed.json"
    path.write_bytes(content)
    try:
        x, y, users, names, _ = read_leaf([path], 2, (1, 2, 1))
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


def test_only_train_and_test_are_read_of_what_leaf_leaves_behind(tmp_path: Path) -> None:
    whole = leaf_content({"u": [1, 2, 3]})
    for folder in ("all_data", "sampled_data", "rem_user_data"):
        write_leaf(tmp_path / folder / "all_data_0.json", whole)
    with pytest.raises(DataError, match=r"has files in .*all_data and .*rem_user_data; give one"):
        find_leaf(tmp_path)
    write_leaf(tmp_path / "train" / "all_data_0.json", leaf_content({"u": [1, 2]}))
    write_leaf(tmp_path / "test" / "all_data_0.json", leaf_content({"u": [3]}, seed=1))
    _, y, *_ = read_leaf(find_leaf(tmp_path), 62, SHAPE)
    assert y.tolist() == [3, 1, 2]


def test_the_same_file_twice_is_refused(tmp_path: Path) -> None:
    for name in ("a.json", "b.json.gz"):
        write_leaf(tmp_path / name, leaf_content({"u": [1]}))
    with pytest.raises(DataError, match=r"b\.json\.gz: is the same as .*a\.json; keep one"):
        read_leaf(find_leaf(tmp_path), 62, SHAPE)


def test_a_small_gzip_of_much_json_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    zeros = b"0," * 20_000_000
    packed = gzip.compress(b'{"user_data": {"u": {"y": [], "x": [[' + zeros + b"0]]}}}")
    path.write_bytes(packed)
    tracemalloc.start()
    with pytest.raises(DataError, match=f"over 100 times its {len(packed):,}; if .* gunzip it"):
        read_leaf([path], 62, SHAPE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40_000_000


def test_a_file_of_many_pixels_takes_little_more_memory_than_its_text(tmp_path: Path) -> None:
    row = b"[" + b",".join([b"0"] * 784) + b"]"
    n = 8000
    path = tmp_path / "a.json"
    path.write_bytes(
        b'{"users": ["u"], "num_samples": [%d], "user_data": {"u": {"y": [%s], "x": [%s]}}}'
        % (n, b",".join([b"1"] * n), b", ".join([row] * n))
    )
    tracemalloc.start()
    x, *_ = read_leaf([path], 62, SHAPE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert x.shape == (n, *SHAPE)
    assert peak < 5 * path.stat().st_size
