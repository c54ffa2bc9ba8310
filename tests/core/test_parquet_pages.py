"""Parquet's pages are measured by their own headers, whoever wrote them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from coterie.core.errors import PartitionError
from coterie.core.parquet import read_columns, read_parquet

TABLE = {"example": list(range(3000)), "node": [f"site {i % 7}" for i in range(3000)]}
WAYS: list[dict[str, Any]] = [
    {},
    {"compression": "none", "use_dictionary": False},
    {"compression": "gzip", "data_page_version": "2.0"},
    {"compression": "zstd", "data_page_size": 500, "row_group_size": 700},
    {"compression": "brotli", "write_page_checksum": True, "write_page_index": True},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_file_is_read_however_it_was_written(tmp_path: Path, way: dict[str, Any]) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table(TABLE), path, **way)
    assert read_columns(path) == TABLE


def test_pages_that_unpack_to_much_more_than_their_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"node": ["0" * 10**8]})
    parquet.write_table(table, path, compression="gzip", use_dictionary=False)
    assert path.stat().st_size < 10**6
    with pytest.raises(PartitionError, match="its pages unpack to 100,000,0"):
        read_parquet(path, 1)
    with pytest.raises(ValueError, match="its pages unpack to"):
        read_columns(path)
