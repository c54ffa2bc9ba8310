"""A table as its columns of cells: CSV or Parquet, and where in the file each cell stands."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.csv_rows import each_line, listed
from coterie.core.errors import DataError, did_you_mean, short
from coterie.core.parquet import has_parquet, read_cells

Cell = float | str | None  # a number (some of them `Spelt`), a text, or missing
ABSENT = frozenset(("", "?", "na", "n/a", "nan", "null", "none"))
MOST_BYTES = 1 << 27  # of a CSV file; a cell takes 60 bytes of memory
MOST_CELLS = 1 << 25
MOST_COLUMNS = 10_000
MOST_NUMBER = float(np.finfo(np.float32).max)
ODD = re.compile(r"[+-]?(0\d+|\d{16,})")  # whole numbers that a float may not have as written


class Spelt(float):
    """A whole number of which a float loses what tells names apart: 007, or 2**53 + 1.

    >>> Spelt(7.0, "007") == 7.0, Spelt(7.0, "007").text
    (True, '007')
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, number: float, text: str) -> "Spelt":
        """Remember how the number is written."""
        made = super().__new__(cls, number)
        made.text = text
        return made


@dataclass(frozen=True, eq=False)
class Cells:
    """The columns of a file by name, and the line (CSV) or row (Parquet) of each cell in them."""

    path: Path
    columns: dict[str, list[Cell]]
    lines: Sequence[int]
    unit: str

    def at(self, row: int, column: str) -> str:
        """Say where a cell is."""
        return f"{self.path}: {self.unit} {self.lines[row]}, column {short(column)}"

    def of(self, column: str, key: str) -> list[Cell]:
        """Return a column, or say that there is none of the name that `data.key` has."""
        if column not in self.columns:
            meant = did_you_mean(column[:200], list(self.columns)[:50])
            raise DataError(f"{self.path}: has no column {short(column)} for data.{key}{meant}")
        return self.columns[column]

    def without(self, rows: NDArray[np.bool_]) -> "Cells":
        """Leave out some rows."""
        kept = np.flatnonzero(~rows).tolist()
        columns = {name: [cells[i] for i in kept] for name, cells in self.columns.items()}
        return Cells(self.path, columns, [self.lines[i] for i in kept], self.unit)


def read_table_cells(path: Path) -> Cells:
    """Read a CSV file with a header, or a Parquet file; a column is of numbers or of text."""
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    table = _of_parquet(path) if is_parquet else _of_csv(path)
    if not table.lines:
        raise DataError(f"{path}: has no rows")
    return table


def _of_csv(path: Path) -> Cells:
    """Read lines; a column whose cells are all numbers, or missing, is one of numbers."""
    if (size := path.stat().st_size) > MOST_BYTES:
        raise DataError(
            f"{path}: has {size:,} bytes, a CSV file {MOST_BYTES:,} at most; use data.name = "
            "'arrays' for more"
        )
    lines = each_line(path, DataError)
    _, header = next(lines, (0, []))
    names = [name.strip() for name in header]
    if not all(names) or len(set(names)) < len(names) or not 2 <= len(names) <= MOST_COLUMNS:
        raise DataError(
            f"{path}: must begin with a line of 2 to {MOST_COLUMNS:,} different names, got "
            f"{short(listed(names[:8]))}"
        )
    texts: list[list[str]] = [[] for _ in names]
    numbers: list[int] = []
    for number, cells in lines:
        if len(cells) != len(names):
            raise DataError(
                f"{path}: line {number} must have {len(names)} values, got {len(cells)}"
            )
        for column, cell in zip(texts, cells, strict=True):
            column.append(cell)
        numbers.append(number)
    columns = {n: _typed(column) for n, column in zip(names, texts, strict=True)}
    return _checked(Cells(path, columns, numbers, "line"))


def _of_parquet(path: Path) -> Cells:
    if not has_parquet():
        raise DataError(f"{path}: Parquet needs pyarrow; install coterie[parquet], or use a .csv")
    try:
        found = read_cells(path, MOST_CELLS)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    names = [name.strip() for name in found]
    if not all(names) or len(set(names)) < len(names) or not 2 <= len(names) <= MOST_COLUMNS:
        raise DataError(f"{path}: must have 2 to {MOST_COLUMNS:,} columns of different names")
    n = len(next(iter(found.values())))
    table = Cells(path, {}, range(1, n + 1), "row")
    for name, values in zip(names, found.values(), strict=True):
        table.columns[name] = [_plain(v, table, row, name) for row, v in enumerate(values)]
        kinds = {isinstance(cell, str) for cell in table.columns[name] if cell is not None}
        if len(kinds) == 2:
            raise DataError(f"{path}: column {short(name)} has numbers and text")
    return _checked(table)


def _plain(value: Any, table: Cells, row: int, name: str) -> Cell:
    """Return what a Parquet file has in a cell as a number, a text, or missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool | int | float):
        number = float(value) if abs(value) < 2**1023 else math.inf
        return as_written(number, str(value))
    if isinstance(value, str):
        return None if value.strip().lower() in ABSENT else value
    kind = type(value).__name__
    raise DataError(f"{table.at(row, name)}: must be a number or a text, got {kind}")


def _typed(texts: list[str]) -> list[Cell]:
    """Return cells as numbers if all of them are, else as text; None for what is missing."""
    cells = [None if text.strip().lower() in ABSENT else text.strip() for text in texts]
    numbers = [None if cell is None else as_number(cell) for cell in cells]
    pairs = list(zip(numbers, cells, strict=True))
    if all((number is None) == (cell is None) for number, cell in pairs):
        return [None if n is None or c is None else as_written(n, c) for n, c in pairs]
    return list(cells)


def as_number(text: str) -> float | None:
    """Read a number as it is written with digits; None if it is none.

    >>> as_number("-1.5e3"), as_number("1_000"), as_number("one")
    (-1500.0, None, None)
    """
    if not text.isascii() or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def as_written(number: float, text: str) -> float:
    """Return a number, with its text where that says more: leading zeros, or digits past 2**53.

    >>> [type(as_written(float(text), text)).__name__ for text in ("7", "007", f"{10**18 + 1}")]
    ['float', 'Spelt', 'Spelt']
    """
    if not ODD.fullmatch(text) or not math.isfinite(number):
        return number
    digits = text.removeprefix("+")
    return number if digits == str(int(number)) else Spelt(number, digits)


def _checked(table: Cells) -> Cells:
    """Refuse numbers that no model can take."""
    for name, cells in table.columns.items():
        for row, cell in enumerate(cells):
            if isinstance(cell, float) and not abs(cell) <= MOST_NUMBER:
                raise DataError(f"{table.at(row, name)}: must be a finite number, got {cell}")
    return table
