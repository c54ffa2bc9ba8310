"""The one reader of CSV files: with a header or without, and every line with its place."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from coterie.core.errors import CoterieError
from coterie.core.inputs import with_an_end

Cells = Mapping[str, str]
Rows = list[tuple[str, Cells]]  # "net.csv: line 4", and the cells by column
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # how a cell begins that a spreadsheet evaluates
Lines = list[tuple[int, list[str]]]  # the number of a line, and its cells


def read_lines(path: Path, error: type[CoterieError]) -> Lines:
    """Read the lines that are not empty; what is no CSV file is an `error`."""
    return list(each_line(path, error))


def each_line(path: Path, error: type[CoterieError]) -> Iterator[tuple[int, list[str]]]:
    """Read line by line, as `read_lines` does, for whom the first ones may be enough."""
    try:
        with with_an_end(path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            for line in reader:
                if line:
                    yield reader.line_num, [as_named(cell) for cell in line]
    except OSError as why:
        raise error(f"{path}: cannot be read ({why.strerror})") from why
    except (csv.Error, UnicodeDecodeError) as why:
        raise error(f"{path}: not a CSV file ({why})") from why


def read_table(path: Path, error: type[CoterieError]) -> tuple[list[str], Lines]:
    """Read the columns of a file, each there once, and lines with a cell for every column."""
    (_, header), *lines = read_lines(path, error) or [(0, [])]
    columns = [name.strip() for name in header]
    if len(set(columns)) < len(columns):
        raise error(f"{path}: a column is there twice in {listed(columns)}")
    for number, line in lines:
        if len(line) != len(columns):
            raise error(f"{place(path, number)}: must have {len(columns)} values, got {len(line)}")
    return columns, lines


def read_rows(path: Path, error: type[CoterieError]) -> tuple[list[str], Rows]:
    """Read the columns of a file, and every row by column with the place it stands at."""
    columns, lines = read_table(path, error)
    return columns, [(place(path, at), dict(zip(columns, line, strict=True))) for at, line in lines]


def header(path: Path) -> set[str]:
    """Return the cells of the first line; none where that cannot be read, which is said later."""
    try:
        with with_an_end(path).open(newline="", encoding="utf-8-sig") as file:
            return {cell.strip() for cell in next(filter(None, csv.reader(file)), [])}
    except (OSError, csv.Error, UnicodeDecodeError):
        return set()


def no_formula(text: str) -> str:
    """Put an apostrophe before what a spreadsheet would take for a formula.

    >>> no_formula("=1+1"), no_formula("n1")
    ("'=1+1", 'n1')
    """
    return f"'{text}" if text.startswith(FORMULA) else text


def as_named(cell: str) -> str:
    """Return what `no_formula` has made a cell of.

    >>> as_named("'=1+1"), as_named("'n1'")
    ('=1+1', "'n1'")
    """
    return cell[1:] if cell[:1] == "'" and cell[1:].startswith(FORMULA) else cell


def place(path: Path, number: int) -> str:
    """Say where a line is.

    >>> place(Path("net.csv"), 4)
    'net.csv: line 4'
    """
    return f"{path}: line {number}"


def listed(names: Iterable[str]) -> str:
    """Quote names, one after the other.

    >>> listed(["a", "b"]), listed([])
    ("'a', 'b'", 'none')
    """
    return ", ".join(map(repr, names)) or "none"
