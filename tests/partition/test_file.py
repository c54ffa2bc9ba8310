"""A user's own partition, as CSV or Parquet."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from coterie.core.errors import PartitionError
from coterie.partition import Examples, Partition, Rule, make_partition

CSV = "example,node,edge\n0,b,x\n1,a,x\n2,b,x\n3,c,y\n"


def deal(path: Path, n_examples: int = 4, **rule: object) -> Partition:
    examples = Examples(np.zeros(n_examples, dtype=np.int64))
    given = {"num_nodes": None, "num_edges": None, "file": str(path)} | rule
    return make_partition(Rule("file", **given), examples, np.random.default_rng(0))  # type: ignore[arg-type]


def as_csv(path: Path) -> Path:
    path.write_text(CSV)
    return path


def as_parquet(path: Path) -> Path:
    table = {"example": [3, 2, 1, 0], "node": ["c", "b", "a", "b"], "edge": ["y", "x", "x", "x"]}
    parquet.write_table(pa.table(table), path)
    return path


@pytest.mark.parametrize("write", [as_csv, as_parquet])
def test_a_file_says_who_holds_what_and_where(tmp_path: Path, write: object) -> None:
    assert callable(write)
    part = deal(write(tmp_path / "mine"))
    assert [i.tolist() for i in part.indices] == [[1], [0, 2], [3]]
    assert part.names == ("a", "b", "c")
    assert part.edge_of.tolist() == [0, 0, 1]
    assert part.edge_names == ("x", "y")


def test_nodes_that_are_numbers_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("node,example\r\n10,0\r\n9,1\r\n\r\n010,2\r\n")
    part = deal(tmp_path / "f.csv", 3)
    assert part.names == ("9", "010", "10")
    assert part.edge_of.tolist() == [0, 1, 2]  # no column of edges: up to ten, in order


def test_only_the_examples_that_are_dealt_are_looked_up(tmp_path: Path) -> None:
    rows = "".join(f"{e},n{e % 2}\n" for e in range(10))
    (tmp_path / "f.csv").write_text(f"example,node\n{rows}")
    examples = Examples(np.zeros(3, dtype=np.int64), numbers=np.array([1, 4, 7]), total=10)
    rule = Rule("file", None, 1, file=str(tmp_path / "f.csv"))
    part = make_partition(rule, examples, np.random.default_rng(0))
    assert [i.tolist() for i in part.indices] == [[1], [0, 2]]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "columns must be example, node and perhaps edge, separated by commas, got none"),
        ("example,edge\n0,1\n", "example, node and perhaps edge, separated by commas, got 'ex"),
        ("example,node,colour\n0,1,2\n", "commas, got 'example', 'node', 'colour'"),
        ("example,node,node\n0,1,1\n", "a column is there twice"),
        ("example,node\n", "has no rows"),
        ("example,node\n0,a\n1\n", "line 3: must have 2 values, got 1"),
        ("example,node\n0,a\n0,b\n1,a\n2,a\n3,a\n", "example 0 is there twice"),
        ("example,node\n0,a\n2,a\n", "example 1 is missing, and 1 more; .* counted from 0 to 3"),
        ("example,node\n0,a\n1,a\n2,a\n4,a\n", "example 4 is not in the data, .* 0 to 3"),
        ("example,node\n0,a\n1,a\n2,a\n-1,a\n", "example -1 is not in the data"),
        ("example,node\n0,a\n1, \n2,a\n3,a\n", "row 2 has no node"),
        ("example;node\n0;a\n", "separated by commas, got 'example;node'"),
        ("example,node\n5_99,a\n", "example must be a whole number, got '5_99'"),
        ("example,node\n-3,a\nabc,a\n", "example must be a whole number, got 'abc'"),
        ("example,node\nx,a\n", "example must be a whole number, got 'x'"),
        ("example,node\n99999999999999999999,a\n", "example must be a whole number, got '999"),
        (CSV.replace("2,b,x", "2,b,y"), "node 'b' is under edge 'x' and 'y'"),
        ('example,node\n0,"a\n', "not a CSV file"),
        ("example,node\n0,\xff\n", "is missing"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "f.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(PartitionError, match=says) as caught:
        deal(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match="cannot be read"):
        deal(tmp_path / "nowhere")
    with pytest.raises(PartitionError, match=r"needs partition\.file"):
        make_partition(
            Rule("file", None, None), Examples(np.zeros(2, int)), np.random.default_rng()
        )
    whole = as_parquet(tmp_path / "mine").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:-20])
    with pytest.raises(PartitionError, match="not a Parquet file"):
        deal(tmp_path / "cut")
    parquet.write_table(pa.table({"example": [0, None], "node": ["a", "b"]}), tmp_path / "gaps")
    with pytest.raises(PartitionError, match="has empty values"):
        deal(tmp_path / "gaps", 2)
    with pytest.raises(PartitionError, match="has 2 rows for 9 examples; one for each"):
        deal(tmp_path / "gaps", 9)
    with pytest.raises(PartitionError, match="has 3 for num_nodes, got num_nodes = 2; use 'auto'"):
        deal(as_csv(tmp_path / "f.csv"), num_nodes=2)


@settings(
    max_examples=300,
    deadline=None,
)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.lists(st.lists(st.text(max_size=3), max_size=3), max_size=5).map(
            lambda rows: "\n".join(map(",".join, [["example", "node"], *rows])).encode(
                errors="replace"
            )
        ),
        st.lists(st.tuples(st.integers(-2, 5), st.sampled_from("ab")), max_size=6).map(
            lambda rows: ("example,node\n" + "\n".join(f"{e},{n}" for e, n in rows)).encode()
        ),
    )
)
def test_no_csv_does_worse_than_our_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fuzzed.csv"
    path.write_bytes(content)
    try:
        part = deal(path, 2)
    except PartitionError as error:
        assert str(path) in str(error)
    else:
        assert np.array_equal(np.sort(np.concatenate(part.indices)), [0, 1])


def test_a_file_is_checked_whole_whichever_examples_are_dealt(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("example,node\n0,a\n1,a\n2,b\n")
    rule = Rule("file", None, 1, file=str(path))
    rng = np.random.default_rng(0)
    y = np.zeros(2, dtype=np.int64)
    with pytest.raises(PartitionError, match="example 3 is missing"):
        make_partition(rule, Examples(y, numbers=np.array([0, 1]), total=4), rng)
    with pytest.raises(PartitionError, match="node 'b' has no training example"):
        make_partition(rule, Examples(y, numbers=np.array([0, 1]), total=3), rng)


def test_a_file_that_says_the_edges_leaves_nothing_to_place(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match="placement must be 'paper', got 'random'"):
        deal(as_csv(tmp_path / "f.csv"), placement="random")


@pytest.mark.parametrize("cell", ["1\x1c", "\x1f1", "1\xa0", " 1 "])
def test_any_blank_around_a_number_is_left_out(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"example,node\n{cell},b\n0,a\n", encoding="utf-8")
    assert deal(path, 2).names == ("a", "b")
    path.write_text(f"example,node\n{cell}\0,b\n0,a\n", encoding="utf-8")
    with pytest.raises(PartitionError, match=r"must be a whole number, got .*x00'|not a CSV file"):
        deal(path, 2)


def test_parquet_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    raw = pa.array([b"\xff", b"a"], pa.binary())
    odd = pa.StringArray.from_buffers(2, *raw.buffers()[1:])
    for node in (raw, odd):
        parquet.write_table(pa.table({"example": [0, 1], "node": node}), path)
        with pytest.raises(PartitionError, match="not a Parquet file of text or numbers"):
            deal(path, 2)
