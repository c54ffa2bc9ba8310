"""Heart disease in four hospitals, UCI's processed.*.data, prepared as FLamby does it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Bools, Floats, Ints
from coterie.core.boundary import reader
from coterie.core.csv_rows import each_line, place
from coterie.core.errors import DataError, short
from coterie.core.types import Tick
from coterie.data.asked import Asked
from coterie.data.cache import Reader
from coterie.data.cells import as_number
from coterie.data.dataset import Dataset, Room
from coterie.data.files import find_all
from coterie.data.table import filled

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"),
    *("slope", "ca", "thal", "target"),
)
USED = 10  # of the columns; most hospitals have no slope, ca and thal
CODED = {"sex": (0, 1), "cp": (1, 4), "fbs": (0, 1), "restecg": (0, 2), "exang": (0, 1)}
TARGETS = (0, 4)
ONE_HOT = ("cp", "restecg")
ABSENT = ("?", "")
MOST_LINES = 100_000


def find_heart(folder: Path) -> list[Path]:
    """Find the file of every hospital."""
    names = [f"processed.{hospital}.data" for hospital in HOSPITALS]
    return find_all(folder, {name: (name, f"{name}.csv") for name in names})


@reader(DataError)
def read_heart(files: list[Path], missing: str = "auto") -> Dataset:
    """Read x [N, 13], y whether there is a disease, and which hospital each patient is from.

    The columns slope, ca and thal are not used. Patients with another value missing are left out,
    or with `missing` = "mean" given the column's mean over all patients, and of cp and restecg
    none of the values. These two become 3 and 2 columns of 0 and 1, without their first value.
    """
    patients, ys, users = [], [], []
    for number, path in enumerate(files):
        rows = list(_rows(path))
        values, target = np.array([row[:-1] for row in rows]), np.array([row[-1] for row in rows])
        absent = np.isnan(values)
        if missing == "refuse" and absent.any():
            row, column = (int(i) for i in np.argwhere(absent)[0])
            raise DataError(
                f"{path}: patient {row + 1}, column {COLUMNS[column]!r}: is missing; set "
                "data.missing = 'auto' (leave out) or 'mean'"
            )
        kept = ~absent.any(axis=1) | (missing == "mean")
        patients.append(values[kept])
        ys.append(target[kept] > 0)
        users.append(np.full(kept.sum(), number))
    y: Ints = np.concatenate(ys).astype(np.int64)
    if len(np.unique(y)) < 2:
        raise DataError(f"{files[0].parent}: all patients are alike; there must be some of both")
    owners: Ints = np.concatenate(users).astype(np.int64)
    x = _features(np.concatenate(patients))
    return Dataset("", x, y, 2, owners, HOSPITALS, task="binary")


def reading_heart(asked: Asked) -> Reader:
    """Return a reader that does with missing values what is asked."""

    def read(files: list[Path], room: Room, tick: Tick) -> Dataset:
        return read_heart(files, asked.missing)

    return read


def _features(values: Floats) -> NDArray[np.float32]:
    """Return the columns [N, 10] as features [N, 13], in FLamby's order: coded ones come last."""
    plain, coded = list[Floats](), list[Floats | Bools]()
    for name, column in zip(COLUMNS, values.T, strict=False):
        if name in ONE_HOT:
            first, last = CODED[name]
            coded += [column == value for value in range(first + 1, last + 1)]
        else:
            cells = [None if np.isnan(value) else float(value) for value in column]
            plain.append(filled(cells))
    return np.stack([*plain, *coded], axis=1).astype(np.float32)


def _rows(path: Path) -> Iterator[list[float]]:
    """Yield the ten columns that are used and the target of every patient; NaN is missing."""
    found = 0
    for number, line in each_line(path, DataError):
        cells = [cell.strip() for cell in line]
        if len(cells) != len(COLUMNS):
            raise DataError(
                f"{place(path, number)}: must have {len(COLUMNS)} values, got {len(cells)}"
            )
        if not found and cells[0] == COLUMNS[0]:  # some copies name their columns
            continue
        found += 1
        if found > MOST_LINES:
            raise DataError(f"{path}: more than {MOST_LINES:,} patients")
        at = place(path, number)
        used = (*range(USED), len(COLUMNS) - 1)
        yield [_value(cells[i], COLUMNS[i], at) for i in used]
    if not found:
        raise DataError(f"{path}: has no patients")


def _value(cell: str, name: str, at: str) -> float:
    """Read a cell, which must be a number, and a code where the column has codes."""
    where = f"{at}, column {name!r}"
    is_target = name == COLUMNS[-1]
    if cell in ABSENT and not is_target:
        return np.nan
    value = as_number(cell)
    if value is None or not abs(value) < 1e6:
        raise DataError(f"{where}: must be a number, or '?' for a missing one, got {short(cell)}")
    codes = TARGETS if is_target else CODED.get(name)
    if codes and not (value.is_integer() and codes[0] <= value <= codes[1]):
        raise DataError(f"{where}: must be {codes[0]} to {codes[1]}, got {short(cell)}")
    return value
