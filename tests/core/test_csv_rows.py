"""One reader for every CSV file: what it takes, and what it refuses, with the place."""

from pathlib import Path

import pytest

from coterie.core.csv_rows import each_line, header, no_formula, read_lines, read_rows, read_table
from coterie.core.errors import CoterieError, PartitionError, TopologyError


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "f.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_rows_have_the_number_of_their_line_and_cells_by_column(tmp_path: Path) -> None:
    path = written(tmp_path, b'\xef\xbb\xbf a ,b\r\n\r\n1,"x\ny"\r\n2,z\r\n')
    columns, rows = read_rows(path, TopologyError)
    assert columns == ["a", "b"]
    assert rows == [
        (f"{path}: line 4", {"a": "1", "b": "x\ny"}),  # where its last line ends
        (f"{path}: line 5", {"a": "2", "b": "z"}),
    ]
    assert read_table(path, TopologyError) == (columns, [(4, ["1", "x\ny"]), (5, ["2", "z"])])
    assert header(path) == {"a", "b"}


def test_an_empty_file_has_no_columns_and_no_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "\n\n")
    assert read_lines(path, TopologyError) == []
    assert read_rows(path, TopologyError) == ([], [])
    assert header(path) == set()


def test_lines_are_read_one_by_one(tmp_path: Path) -> None:
    path = written(tmp_path, b'a,b\n\n1,2\n3,"4\n')
    lines = each_line(path, TopologyError)
    assert next(lines) == (1, ["a", "b"])
    assert next(lines) == (3, ["1", "2"])
    with pytest.raises(TopologyError, match="not a CSV file"):
        next(lines)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a,b\n1,2\n\n3\n", "line 4: must have 2 values, got 1"),
        ("a,b\n1,2,3\n", "line 2: must have 2 values, got 3"),
        ("a,b, a\n", "a column is there twice in 'a', 'b', 'a'"),
        ('a,b\n1,"2\n', "not a CSV file"),
        (b"a,b\n\xff,2\n", "not a CSV file"),
    ],
)
@pytest.mark.parametrize("error", [PartitionError, TopologyError])
def test_what_is_refused_is_an_error_of_who_reads(
    tmp_path: Path, content: str | bytes, says: str, error: type[CoterieError]
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(error) as refused:
        read_rows(path, error)
    assert str(refused.value).startswith(f"{path}: {says}")


def test_a_file_that_is_not_there_is_refused_and_has_no_header(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"none\.csv: cannot be read \(No such file"):
        read_lines(tmp_path / "none.csv", PartitionError)
    assert header(tmp_path / "none.csv") == set()
    assert header(written(tmp_path, b"\xff\n")) == set()


def test_a_name_that_is_no_formula_any_more_is_read_as_it_was(tmp_path: Path) -> None:
    names = ["=cmd|x!A1", "+1", "@a", "-", "'quoted'", "plain"]
    path = written(tmp_path, "\n".join(["node", *map(no_formula, names)]) + "\n")
    assert not any(line.startswith(("=", "+", "@", "-")) for line in path.read_text().splitlines())
    assert [cells["node"] for _, cells in read_rows(path, TopologyError)[1]] == names
