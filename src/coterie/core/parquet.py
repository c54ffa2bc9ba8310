"""Parquet, by pyarrow: the only file that needs it (`pip install 'coterie[parquet]'`)."""

import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coterie.core.errors import PartitionError, RecordError
from coterie.core.parquet_pages import check_pages

MOST_SAID = 200  # characters of what pyarrow says, which may be a whole value


def read_parquet(path: Path, total: int) -> dict[str, Sequence[str]]:
    """Read every column of a Parquet file as text; it must have a row for each example."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise PartitionError(
            f"{path}: Parquet needs pyarrow; install coterie[parquet], or use a .csv"
        ) from error
    try:
        rows = check_pages(path)  # before anything is unpacked
        if rows != total:
            raise PartitionError(f"{path}: has {rows:,} rows for {total:,} examples; one for each")
        table = parquet.read_table(path)
        if any(column.null_count for column in table.columns):
            raise PartitionError(f"{path}: has empty values")
        text = [column.cast(pa.string()).to_pylist() for column in table.columns]
        names = table.column_names
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0][:MOST_SAID]
        raise PartitionError(f"{path}: not a Parquet file of text or numbers ({reason})") from error
    return dict(zip(names, text, strict=True))


def has_parquet() -> bool:
    """Whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


def read_columns(path: Path) -> dict[str, list[Any]]:
    """Read every column of a Parquet file; what is none is a ValueError."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        check_pages(path)
        found: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0][:MOST_SAID]
        raise ValueError(f"{path.name}: not a Parquet file ({reason})") from error
    return found


def read_cells(path: Path, most: int) -> dict[str, list[Any]]:
    """Read every column of a Parquet file; what is none, or has more cells, is a ValueError.

    A page that says the same of many rows is small, so that rows are counted before they are made.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        rows = check_pages(path)
        with parquet.ParquetFile(path) as file:
            columns = file.metadata.num_columns
            if rows * columns > most or file.metadata.num_rows * columns > most:
                raise ValueError(f"{rows:,} rows of {columns:,} columns; {most:,} cells at most")
            names = file.schema_arrow.names
            if len(set(names)) < len(names):
                raise ValueError("a column is there twice")
            found: dict[str, list[Any]] = file.read().to_pydict()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0][:MOST_SAID]
        raise ValueError(f"not a Parquet file of numbers and text ({reason})") from error
    return found


def check_parquet(path: Path) -> None:
    """Say that a Parquet file cannot be written here, before anything takes its time."""
    try:
        import pyarrow as pa  # noqa: F401
    except ImportError as error:
        raise RecordError(
            f"{path}: needs coterie[parquet]: pip install 'coterie[parquet]'; or use a .csv"
        ) from error


def parquet_bytes(columns: Mapping[str, tuple[type, Sequence[Any]]]) -> bytes:
    r"""Return columns, each a type (int, float, bool or str) and values or None, as a Parquet file.

    Numbers that do not fit into 64 bits make a column of text, with all their digits. In text, what
    UTF-8 cannot say is written as \udc80.

    >>> parquet_bytes({"t": (int, [1, 2]), "loss": (float, [None, 0.5])})[:4]
    b'PAR1'
    """
    import pyarrow as pa
    from pyarrow import parquet

    types = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    table = {}
    for name, (given, values) in columns.items():
        kind = given if all(_fits(given, value) for value in values) else str
        stored = [None if value is None else _stored(kind, value) for value in values]
        table[_utf8(name)] = pa.array(stored, types[kind])
    buffer = io.BytesIO()
    parquet.write_table(pa.table(table), buffer)
    return buffer.getvalue()


def _fits(kind: type, value: Any) -> bool:
    """Whether a value can be stored as its kind in 64 bits."""
    if kind is float and isinstance(value, int):
        return abs(value) < 2**1023
    return kind is not int or value is None or -(2**63) <= value < 2**63


def _stored(kind: type, value: Any) -> Any:
    return _utf8(value) if kind is str else float(value) if kind is float else value


def _utf8(value: object) -> str:
    """Return text that is UTF-8, whatever it was."""
    return str(value).encode("utf-8", "backslashreplace").decode()
