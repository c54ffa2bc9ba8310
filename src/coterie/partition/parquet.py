"""Parquet, read with pyarrow: the only file that needs it (`pip install coterie[parquet]`)."""

from collections.abc import Sequence
from pathlib import Path

from coterie.errors import PartitionError


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
        rows = parquet.read_metadata(path).num_rows  # known before anything is unpacked
        if rows != total:
            raise PartitionError(f"{path}: has {rows:,} rows for {total:,} examples; one for each")
        table = parquet.read_table(path)
        if any(column.null_count for column in table.columns):
            raise PartitionError(f"{path}: has empty values")
        text = [column.cast(pa.string()).to_pylist() for column in table.columns]
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise PartitionError(f"{path}: not a Parquet file of text or numbers ({reason})") from error
    return dict(zip(table.column_names, text, strict=True))
