"""Any table: a CSV or Parquet file with a column to predict, and perhaps one of users."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Floats, Ints
from coterie.core.boundary import reader
from coterie.core.csv_rows import listed
from coterie.core.errors import DataError, short
from coterie.core.types import Tick
from coterie.data.asked import Asked
from coterie.data.cache import Reader
from coterie.data.cells import Cell, Cells, Spelt, as_number, read_table_cells
from coterie.data.dataset import Dataset, Room
from coterie.data.targets import quantiles

SUFFIXES = (".csv", ".parquet")
FEW = 20  # whole numbers up to so many different ones are classes, where nobody says what they are
STRAY = 0.05  # of a target's cells: fewer texts among numbers are slips, not classes
MOST_VALUES = 100  # different texts of a column, each of which becomes a feature
MOST_CLASSES = 1_000
MOST_FEATURES = 10_000
WAYS_OUT = "set data.missing = 'mean' or 'drop'"
Answer = tuple[NDArray[Any], int, str]  # y, the number of classes, and the task


def find_table(path: Path) -> list[Path]:
    """Find the one .csv or .parquet in a folder; or take a file as it is."""
    if path.is_file():
        return [path]
    found = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES)
    if len(found) != 1:
        raise DataError(f"{path}: must be a .csv or .parquet file, or a folder with just one")
    return found


@reader(DataError)
def read_table(files: list[Path], asked: Asked) -> Dataset:
    """Read x [N, features], y as the task has it, and users and strata where they are asked for.

    Numbers are features as they are. Of a text every value is a feature, 1 where it stands and 0
    elsewhere, in the order of the alphabet.
    """
    path = files[0]
    if not asked.target:
        raise DataError(f"{path}: set data.target to the column that is to be predicted")
    table = read_table_cells(path)
    given = {"target": asked.target, "user": _named(asked.user), "strata": _named(asked.strata)}
    for key, names in (given | {"features": asked.features}).items():
        for name in names:
            table.of(name, key)
    left_out = {*asked.target, *given["user"]}
    features = asked.features or tuple(name for name in table.columns if name not in left_out)
    if both := left_out.intersection(features):
        raise DataError(f"{path}: column {short(min(both))} is a feature, and target or user too")
    if not features:
        raise DataError(f"{path}: has no columns besides target and user")
    table = _whole(table, (*asked.target, *given["user"], *given["strata"]), features, asked)
    y, n_classes, task = _answer(table, asked.target, asked.task)
    users, names = _users(table.columns[asked.user]) if asked.user else (None, ())
    strata = _strata(table, asked.strata) if asked.strata else None
    return Dataset("", _features(table, features), y, n_classes, users, names, None, task, strata)


def reading_table(asked: Asked) -> Reader:
    """Return a reader of the columns that are asked."""

    def read(files: list[Path], room: Room, tick: Tick) -> Dataset:
        return read_table(files, asked)

    return read


def _named(name: str) -> tuple[str, ...]:
    return (name,) if name else ()


def _whole(table: Cells, needed: Sequence[str], features: Sequence[str], asked: Asked) -> Cells:
    """Drop rows with missing cells, or refuse the first of them; means are taken later."""
    gone = np.zeros(len(table.lines), dtype=bool)
    for name in (*needed, *features):
        rows = np.array([cell is None for cell in table.columns[name]])
        if asked.missing == "drop":
            gone |= rows
        elif rows.any() and (asked.missing != "mean" or name in needed):
            ways = "set data.missing = 'drop'" if name in needed else WAYS_OUT
            at = table.at(int(np.flatnonzero(rows)[0]), name)
            raise DataError(f"{at}: is missing, as {rows.sum():,} in that column are; {ways}")
    if gone.all():
        raise DataError(f"{table.path}: has no row without something missing")
    return table.without(gone) if gone.any() else table


def _features(table: Cells, names: Sequence[str]) -> NDArray[np.float32]:
    """Return x [N, features]."""
    found: list[NDArray[np.float32]] = []
    for name in names:
        cells = table.columns[name]
        if is_text(cells):
            found += _one_hot(table, name)
        else:
            found.append(filled(cells).astype(np.float32))
        if len(found) > MOST_FEATURES:
            raise DataError(
                f"{table.path}: more than {MOST_FEATURES:,} features; set data.features"
            )
    return np.stack(found, axis=1)


def _one_hot(table: Cells, name: str) -> list[NDArray[np.float32]]:
    """Return a feature for every text of a column; what is missing has none of them."""
    cells = table.columns[name]
    known = sorted({str(cell) for cell in cells if cell is not None})
    if len(known) > MOST_VALUES:
        row = _first_text(cells)
        raise DataError(
            f"{table.at(row, name)}: is text, {short(cells[row])}, one of {len(known):,} values; "
            f"at most {MOST_VALUES} become features; leave the column out by data.features"
        )
    return [np.array([cell == text for cell in cells], dtype=np.float32) for text in known]


def filled(cells: Sequence[Cell]) -> Floats:
    """Return numbers, and for what is missing the mean of the others; 0 where there are none.

    >>> filled([1.0, None, 3.0]).tolist()
    [1.0, 2.0, 3.0]
    """
    values = np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)
    absent = np.isnan(values)
    values[absent] = values[~absent].mean() if not absent.all() else 0.0
    return values


def is_text(cells: Iterable[Cell]) -> bool:
    """Whether a column is of text."""
    return any(isinstance(cell, str) for cell in cells)


def _first_text(cells: Sequence[Cell]) -> int:
    """Return the row of the first text that is no number, as it may be the one that is wrong."""
    texts = [row for row, cell in enumerate(cells) if isinstance(cell, str)]
    return next((row for row in texts if _is_word(cells[row])), texts[0])


def _users(cells: Sequence[Cell]) -> tuple[Ints, tuple[str, ...]]:
    """Number users in the order in which they appear."""
    number: dict[str, int] = {}
    owners = [number.setdefault(_name(cell), len(number)) for cell in cells]
    return np.array(owners, dtype=np.int64), tuple(number)


def _name(cell: Cell) -> str:
    """Write a number as one does, or as the file does where it has zeros or digits to tell apart.

    >>> _name(3.0), _name(2.5), _name("site a"), _name(Spelt(7.0, "007"))
    ('3', '2.5', 'site a', '007')
    """
    if isinstance(cell, Spelt):
        return cell.text
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _strata(table: Cells, name: str) -> Ints:
    """Number the values of a column; of real numbers, or of many, ten quantiles."""
    cells = table.columns[name]
    known, numbers = _values(cells)
    if len(known) <= MOST_VALUES:
        return numbers
    if is_text(cells):
        raise DataError(
            f"{table.path}: column {short(name)}, data.strata, has {len(known):,} different texts; "
            f"at most {MOST_VALUES}"
        )
    return quantiles(np.array(cells, dtype=np.float64))[0]


def _values(cells: Sequence[Cell]) -> tuple[list[Any], Ints]:
    """Return the different values of a column in their order, and the number of each cell's.

    >>> _values([7.0, Spelt(7.0, "007"), 2.0, 7.0])[1].tolist()
    [1, 2, 0, 1]
    """
    keys = [_key(cell) for cell in cells]
    known = sorted(set(keys))
    number = {key: i for i, key in enumerate(known)}
    return known, np.array([number[key] for key in keys], dtype=np.int64)


def _key(cell: Cell) -> tuple[Any, str]:
    """Tell a value from others: numbers by size, and those of one size as they are written."""
    return cell, cell.text if isinstance(cell, Spelt) else ""


def _answer(table: Cells, names: Sequence[str], task: str) -> Answer:
    """Return the target as a task has it, which is told by the values unless it is set."""
    columns = [table.columns[name] for name in names]
    chosen = _task(table, names) if task == "auto" else task
    if chosen in ("regression", "multi-label"):
        values = _numbers(table, names, chosen)
        if chosen == "regression":
            return values.astype(np.float32), len(names), chosen
        for name, column in zip(names, values.T, strict=True):
            if (odd := np.flatnonzero((column != 0) & (column != 1))).size:
                where = table.at(int(odd[0]), name)
                raise DataError(f"{where}: must be 0 or 1 for multi-label, got {column[odd[0]]:g}")
        return values.astype(np.int64), len(names), chosen
    if chosen not in ("classification", "binary"):
        raise DataError(f"{table.path}: a table is not for task {chosen!r}")
    if len(names) > 1:
        raise DataError(
            f"{table.path}: data.target has {len(names)} columns, and {chosen} takes one; use "
            "task.name = 'multi-label' or 'regression'"
        )
    known, y = _values(columns[0])
    most = 2 if chosen == "binary" else MOST_CLASSES
    if not 2 <= len(known) <= most:
        raise DataError(
            f"{table.path}: column {short(names[0])}, data.target, has {len(known):,} different "
            f"values, {chosen} takes 2{f' to {most:,}' if most > 2 else ''}"
        )
    return y, len(known), chosen


def _task(table: Cells, names: Sequence[str]) -> str:
    """Tell the task by the values of the target."""
    columns = [table.columns[name] for name in names]
    if len(names) > 1:
        text = [name for name, cells in zip(names, columns, strict=True) if is_text(cells)]
        if text:
            raise DataError(
                f"{table.path}: of several targets each must be numbers, {listed(text)} is text"
            )
        on_off = all(cell in (0.0, 1.0) for cells in columns for cell in cells)
        return "multi-label" if on_off else "regression"
    _refuse_stray(table, names[0])
    known = {_key(cell): cell for cell in columns[0]}.values()
    if len(known) == 2 and (is_text(known) or _are_whole(known)):
        return "binary"
    few = is_text(known) or (len(known) <= FEW and _are_whole(known))
    return "classification" if few else "regression"


def _refuse_stray(table: Cells, name: str) -> None:
    """Refuse a text in a target where nearly all cells are numbers: it would make them classes."""
    cells = table.columns[name]
    odd = [row for row, cell in enumerate(cells) if _is_word(cell)]
    if 0 < len(odd) < STRAY * len(cells):
        raise DataError(
            f"{table.at(odd[0], name)}: must be a number, as {len(cells) - len(odd):,} of "
            f"{len(cells):,} there are, got {short(cells[odd[0]])}; correct it, or set task.name = "
            "'classification' if all of them are classes"
        )


def _is_word(cell: Cell) -> bool:
    return isinstance(cell, str) and as_number(cell) is None


def _are_whole(cells: Iterable[Cell]) -> bool:
    return all(isinstance(cell, float) and cell.is_integer() for cell in cells)


def _numbers(table: Cells, names: Sequence[str], task: str) -> Floats:
    """Return targets [N, m] that must be numbers."""
    for name in names:
        if is_text(table.columns[name]):
            row = _first_text(table.columns[name])
            text = short(table.columns[name][row])
            raise DataError(f"{table.at(row, name)}: must be a number for {task}, got {text}")
    return np.array([table.columns[name] for name in names], dtype=np.float64).T
