"""Any table: features, targets, users and strata, and what is refused."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.config.factories import divide, load_dataset
from coterie.config.files import make_config
from coterie.core.errors import ConfigError, DataError
from coterie.core.parquet import parquet_bytes
from coterie.data import DATASETS, load
from coterie.data.asked import Asked
from coterie.data.dataset import Dataset
from coterie.data.table import find_table, read_table
from datafiles import TABLE, write_all


def read(path: Path, content: bytes = TABLE, **asked: Any) -> Dataset:
    file = write_all(path, {"t.csv": content}) / "t.csv"
    return read_table(find_table(file), Asked(**{"target": ("bought",), **asked}))


def column(values: list[object], extra: str = "1") -> bytes:
    return "\n".join(["x,y", *(f"{extra},{v}" for v in values), ""]).encode()


def test_numbers_stay_and_texts_become_a_feature_for_every_value(tmp_path: Path) -> None:
    data = read(tmp_path, user="site")
    assert data.x.tolist() == [  # age; Bonn, Oslo, Rome; income
        [31, 0, 0, 1, 2.5],
        [42, 0, 1, 0, 1.5],
        [58, 0, 0, 1, 3.5],
        [23, 1, 0, 0, 2.0],
    ]
    assert (data.task, data.y.tolist()) == ("binary", [1, 0, 0, 1])  # no, yes
    assert data.users is not None
    assert (data.users.tolist(), data.user_names) == ([0, 1, 0, 2], ("a", "b", "c"))


def test_features_are_those_that_are_named_in_that_order(tmp_path: Path) -> None:
    data = read(tmp_path, features=("income", "age"))
    assert data.x[0].tolist() == [2.5, 31]


@pytest.mark.parametrize(
    ("values", "task", "y", "n_classes"),
    [
        ([3, 1, 3], "binary", [1, 0, 1], 2),
        (["b", "a", "c"], "classification", [1, 0, 2], 3),
        ([10, 30, 20], "classification", [0, 2, 1], 3),
        ([0.5, 1.5, 0.5], "regression", [[0.5], [1.5], [0.5]], 1),
        ([*range(21)], "regression", [[i] for i in range(21)], 1),
    ],
)
def test_the_task_is_told_by_the_values_of_the_target(
    tmp_path: Path, values: list[object], task: str, y: list[object], n_classes: int
) -> None:
    data = read(tmp_path, column(values), target=("y",))
    assert (data.task, data.y.tolist(), data.n_classes) == (task, y, n_classes)


def test_several_targets_are_labels_or_numbers(tmp_path: Path) -> None:
    content = b"x,a,b\n1,0,1\n2,1,1\n3,0,0\n"
    data = read(tmp_path, content, target=("a", "b"))
    assert (data.task, data.n_classes, data.y.dtype.name) == ("multi-label", 2, "int64")
    assert data.y.tolist() == [[0, 1], [1, 1], [0, 0]]
    other = read(tmp_path, content.replace(b"3,0", b"3,7"), target=("b", "a"))
    assert (other.task, other.y.dtype.name) == ("regression", "float32")
    assert other.y.tolist() == [[1, 0], [1, 1], [0, 7]]


def test_a_task_that_is_set_wins_over_the_values(tmp_path: Path) -> None:
    content = column([3, 1, 3])
    assert read(tmp_path, content, target=("y",), task="regression").y.tolist() == [[3], [1], [3]]
    classes = read(tmp_path, content, target=("y",), task="classification")
    assert (classes.task, classes.n_classes) == ("classification", 2)
    for task, says in (
        ("multi-label", "line 2, column 'y': must be 0 or 1 for multi-label, got 3"),
        ("next-token", "a table is not for task 'next-token'"),
    ):
        with pytest.raises(DataError, match=re.escape(says)):
            read(tmp_path, content, target=("y",), task=task)
    with pytest.raises(
        DataError, match=r"column 'y', data\.target, has 3 different values, binary"
    ):
        read(tmp_path, column([1, 2, 3]), target=("y",), task="binary")
    with pytest.raises(DataError, match="line 3, column 'y': must be a number for regression"):
        read(tmp_path, column(["a", "b"]).replace(b"1,a", b"1,5"), target=("y",), task="regression")


def test_a_text_among_the_numbers_of_a_target_is_refused_unless_they_are_classes(
    tmp_path: Path,
) -> None:
    content = column([*range(30), "oops"])
    says = (
        "t.csv: line 32, column 'y': must be a number, as 30 of 31 there are, got 'oops'; "
        "correct it, or set task.name = 'classification' if all of them are classes"
    )
    with pytest.raises(DataError, match=re.escape(says)):
        read(tmp_path, content, target=("y",))
    assert read(tmp_path, content, target=("y",), task="classification").n_classes == 31
    often = column([*range(30), "oops", "oops"])
    assert read(tmp_path, often, target=("y",)).n_classes == 31


def test_rows_are_dealt_and_split_by_a_column_that_is_named(tmp_path: Path) -> None:
    data = read(tmp_path, strata="city")
    assert data.by.tolist() == [2, 1, 2, 0]
    numbers = column([*range(300)], "2").replace(b"x,y", b"income,bought")
    swapped = read(tmp_path, numbers, target=("income",), strata="bought", task="regression")
    assert swapped.n_strata == 10  # quantiles of 300 different numbers
    assert np.bincount(swapped.by).tolist() == [30] * 10


def test_missing_cells_are_refused_dropped_or_given_the_mean(tmp_path: Path) -> None:
    content = TABLE.replace(b"42,Oslo", b"?,").replace(b"58,", b"NA,")
    with pytest.raises(DataError, match=r"t\.csv: line 3, column 'age': is missing, as 2 in that"):
        read(tmp_path, content)
    two = content.replace(b"c,yes", b"c,no")
    assert read(tmp_path, two, missing="drop").x[:, 0].tolist() == [31, 23]
    filled = read(tmp_path, content, missing="mean", features=("age", "city"))
    assert filled.x[:, 0].tolist() == [31, 27, 27, 23]
    assert filled.x[1, 1:].tolist() == [0, 0]  # Bonn and Rome; Oslo is gone
    gone = TABLE.replace(b"no", b"")
    with pytest.raises(DataError, match=r"line 3, column 'bought': is missing, .* = 'drop'"):
        read(tmp_path, gone, missing="mean")
    assert read(tmp_path, gone.replace(b"c,yes", b"c,no"), missing="drop").y.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("content", "asked", "says"),
    [
        (TABLE, {"target": ("buy",)}, "has no column 'buy' for data.target; choose one of age"),
        (TABLE, {"user": "sit"}, "has no column 'sit' for data.user; did you mean 'site'?"),
        (TABLE, {"strata": "zip"}, "has no column 'zip' for data.strata"),
        (TABLE, {"features": ("age", "zip")}, "has no column 'zip' for data.features"),
        (TABLE, {"features": ("age", "bought")}, "column 'bought' is a feature, and target or"),
        (TABLE, {"target": ()}, "set data.target to the column that is to be predicted"),
        (
            TABLE.replace(b"58", b"inf"),
            {},
            "line 4, column 'age': must be a finite number, got inf",
        ),
        (TABLE.replace(b"58", b"1e39"), {}, "line 4, column 'age': must be a finite number"),
        (TABLE.replace(b"a,no", b"a"), {}, "line 4 must have 5 values, got 4"),
        (TABLE.replace(b"city", b"age"), {}, "must begin with a line of 2 to 10,000 different"),
        (TABLE.splitlines()[0], {}, "has no rows"),
        (b"", {}, "must begin with a line of 2 to"),
        (b"\xff\xfe", {}, "not a CSV file"),
        (column(["a"]), {"target": ("y",)}, "column 'y', data.target, has 1 different values"),
        (b"y\n1\n", {"target": ("y",)}, "must begin with a line of 2 to"),
    ],
)
def test_what_is_no_table_for_that_is_refused(
    tmp_path: Path, content: bytes, asked: dict[str, Any], says: str
) -> None:
    with pytest.raises(DataError, match=r"t\.csv: ") as caught:
        read(tmp_path, content, **asked)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_column_of_too_many_texts_is_refused_with_the_first_of_them(tmp_path: Path) -> None:
    names = "".join(f"name-{i},{i % 2}\n" for i in range(101))
    with pytest.raises(DataError, match=r"line 2, column 'x': is text, 'name-0', one of 101"):
        read(tmp_path, f"x,y\n{names}".encode(), target=("y",))


def test_parquet_says_the_same_as_csv_and_names_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [line.split(",") for line in TABLE.decode().split()]
    columns = dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
    numbers = {"age", "income"}
    typed: dict[str, tuple[type, list[Any]]] = {
        n: (float, [*map(float, c)]) if n in numbers else (str, [*c]) for n, c in columns.items()
    }
    packed = parquet_bytes(typed)
    folder = write_all(tmp_path / "p", {"t.parquet": packed})
    asked = Asked(target=("bought",), user="site")
    plain, other = read(tmp_path, user="site"), read_table(find_table(folder), asked)
    assert np.array_equal(plain.x, other.x)
    assert plain.user_names == other.user_names
    holes: dict[str, tuple[type, list[Any]]] = {
        "age": (int, [1, None, 3]),
        "y": (bool, [True, False, True]),
    }
    (folder / "t.parquet").write_bytes(parquet_bytes(holes))
    with pytest.raises(DataError, match=r"t\.parquet: row 2, column 'age': is missing"):
        read_table(find_table(folder), Asked(target=("y",)))
    (folder / "t.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"t\.parquet: not a Parquet file of numbers and text"):
        read_table(find_table(folder), Asked(target=("y",)))


def test_small_pages_of_very_many_rows_are_not_unpacked(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    same = pa.array(np.zeros(20_000_000, np.int8))
    parquet.write_table(pa.table({"a": same, "b": same}), tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 1_000_000
    with pytest.raises(DataError, match=r"20,000,000 rows of 2 columns; 33,554,432 cells at most"):
        read_table([tmp_path / "t.parquet"], Asked(target=("a",)))


NAMES = [f"{10**18 + i // 10}" for i in range(40)]  # four, of which floats make one


def named_in(path: Path, kind: str, names: list[str]) -> Path:
    """Write a table whose column `who` has these names, as text or as whole numbers."""
    if kind == "csv":
        lines = "".join(f"{i % 3},{name},{i % 2}\n" for i, name in enumerate(names))
        return write_all(path, {"t.csv": f"x,who,y\n{lines}".encode()}) / "t.csv"
    pytest.importorskip("pyarrow")
    n = len(names)
    columns: dict[str, tuple[type, list[Any]]] = {
        "x": (int, [i % 3 for i in range(n)]),
        "who": (int, [int(name) for name in names]),
        "y": (int, [i % 2 for i in range(n)]),
    }
    return write_all(path, {"t.parquet": parquet_bytes(columns)}) / "t.parquet"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_whole_numbers_that_a_float_cannot_tell_apart_stay_apart(tmp_path: Path, kind: str) -> None:
    path, four = named_in(tmp_path, kind, NAMES), [i // 10 for i in range(40)]
    by_user = read_table([path], Asked(target=("y",), user="who"))
    assert by_user.users is not None
    assert by_user.users.tolist() == four
    assert by_user.user_names == tuple(dict.fromkeys(NAMES))
    assert read_table([path], Asked(target=("y",), strata="who")).by.tolist() == four
    classes = read_table([path], Asked(target=("who",)))
    assert (classes.task, classes.n_classes, classes.y.tolist()) == ("classification", 4, four)


def test_names_with_zeros_before_them_stay_what_they_are(tmp_path: Path) -> None:
    path = named_in(tmp_path, "csv", ["10", "007", "7", "7.0", "+7", "007", "-0", "0"])
    data = read_table([path], Asked(target=("y",), user="who"))
    assert data.user_names == ("10", "007", "7", "0")
    classes = read_table([path], Asked(target=("who",), task="classification"))
    assert classes.y.tolist() == [3, 2, 1, 1, 1, 2, 0, 0]


def test_numbers_with_zeros_before_them_are_numbers_still(tmp_path: Path) -> None:
    path = named_in(tmp_path, "csv", ["01", "00", "01", "00"])
    on_off = read_table([path], Asked(target=("who", "y")))
    assert (on_off.task, on_off.y[:, 0].tolist()) == ("multi-label", [1, 0, 1, 0])
    assert read_table([path], Asked(target=("y",))).x[:, 1].tolist() == [1, 0, 1, 0]
    numbers = read_table([path], Asked(target=("who",), task="regression"))
    assert numbers.y.tolist() == [[1], [0], [1], [0]]


def test_a_table_that_was_decoded_with_names_lost_is_decoded_anew(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, path = Asked(target=("y",), user="who"), named_in(tmp_path, "csv", NAMES)
    with monkeypatch.context() as earlier:
        earlier.setitem(DATASETS, "table", replace(DATASETS["table"], form=1))
        load("table", path, asked=asked)
    load("table", path, asked=asked)
    assert len([d for d in (cache / "table" / "decoded").iterdir() if d.name != "seen"]) == 2


def test_a_table_is_told_by_settings_and_split_before_it_is_standardised(
    tmp_path: Path, cache: Path
) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b},site {i % 4}" for i, (a, b) in enumerate(rng.normal(5, 3, (80, 2)))]
    path = write_all(tmp_path, {"t.csv": "\n".join(["a,y,s", *rows, ""]).encode()}) / "t.csv"
    what = {"name": "table", "path": str(path), "target": ["y"], "user": "s"}
    config = make_config({"data": what, "partition": {"kind": "natural"}})
    divided = divide(config, load_dataset(config))
    assert divided.dataset.task == "regression"
    assert len(divided.partition.indices) == 4
    seen = divided.dataset.x[divided.split.train]
    assert abs(seen.mean()) < 1e-6
    assert abs(seen.std() - 1) < 1e-6


def test_the_task_of_the_config_decides_how_the_target_is_read(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_all(tmp_path, {"t.csv": column([3, 1, 3, 2])}) / "t.csv"
    monkeypatch.syspath_prepend(tmp_path)
    code = b"from coterie.engine.task import TASKS\nhuber = TASKS['regression']\n"
    write_all(tmp_path, {"own_table_task.py": code})
    for task, kind, shape in (
        ("auto", "int64", (4,)),
        ("regression", "float32", (4, 1)),
        ("own_table_task:huber", "float32", (4, 1)),
    ):
        what = {"name": "table", "path": str(path), "target": "y"}
        data = load_dataset(make_config({"data": what, "task": {"name": task}}))
        assert (data.y.dtype.name, data.y.shape) == (kind, shape)


def test_settings_that_would_not_be_read_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.target is read with data\.name = 'table' only"):
        make_config({"data": {"target": "y"}})
    with pytest.raises(ConfigError, match=r"data\.missing is read with .* 'heart' or 'table' only"):
        make_config({"data": {"missing": "mean"}})
    pixels = make_config({"data": {"scale": "train"}})
    with pytest.raises(ConfigError, match="'train' is for numbers, and mnist-f-mini has pixels"):
        divide(pixels, load_dataset(pixels))


def test_a_folder_must_have_just_one_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"must be a \.csv or \.parquet file, or a folder"):
        find_table(tmp_path)
    file = write_all(tmp_path, {"t.csv": TABLE}) / "t.csv"
    assert find_table(tmp_path) == [file]
    (tmp_path / "u.csv").touch()
    with pytest.raises(DataError, match="or a folder with just one"):
        find_table(tmp_path)
