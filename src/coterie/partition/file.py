"""A user's own partition: a CSV or Parquet file with columns example, node and perhaps edge."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coterie.core.arrays import Ints
from coterie.core.boundary import reader
from coterie.core.csv_rows import read_table
from coterie.core.errors import PartitionError
from coterie.core.inputs import with_an_end
from coterie.partition.values import Dealt, Examples, Rule

NEEDED, KNOWN = {"example", "node"}, {"example", "node", "edge"}
PARQUET_MAGIC = b"PAR1"
Columns = dict[str, Sequence[str]]


def from_file(examples: Examples, rule: Rule, rng: np.random.Generator) -> Dealt:
    """Deal as a file says; every example that is dealt must be in it, once."""
    path = Path(rule.file)
    if not rule.file:
        raise PartitionError("partition 'file' needs partition.file, a .csv or .parquet")
    total = examples.total if examples.total is not None else len(examples.y)
    columns = read_columns(path, total)
    order = _order(_whole(columns["example"], path), total, path)
    names, node_of_row = _numbered(columns["node"])
    wanted = examples.numbers if examples.numbers is not None else np.arange(len(examples.y))
    node_of = node_of_row[order[wanted]]
    if (empty := np.setdiff1d(np.arange(len(names)), node_of)).size:
        raise PartitionError(
            f"{path}: node {names[empty[0]]!r} has no training example left after sampling and "
            "splitting; give it more examples, or merge it with another"
        )
    edge_names: tuple[str, ...] = ()
    edge_of = None
    if "edge" in columns:
        edge_names, edge_of = _edges(columns, node_of_row, names, path)
        if rule.placement != "paper":
            raise PartitionError(
                f"{path}: says the edges, so that placement must be 'paper', got {rule.placement!r}"
            )
    _check_counts(rule, len(names), edge_of, path)
    return Dealt(node_of, edge_of, names, edge_names)


def _order(numbers: Ints, total: int, path: Path) -> Ints:
    """Row of every example of the dataset; each must have one, whichever are dealt this time."""
    outside = numbers[(numbers < 0) | (numbers >= total)]
    if len(outside):
        raise PartitionError(
            f"{path}: example {outside[0]} is not in the data, which counts from 0 to {total - 1}"
        )
    rows = np.bincount(numbers, minlength=total)
    if rows.max() > 1:
        raise PartitionError(f"{path}: example {rows.argmax()} is there twice")
    if rows.min() == 0:
        raise PartitionError(
            f"{path}: example {rows.argmin()} is missing, and {(rows == 0).sum() - 1:,} more; "
            f"every example needs a row, counted from 0 to {total - 1}"
        )
    return np.argsort(numbers)


@reader(PartitionError)
def read_columns(path: Path, total: int) -> Columns:
    """Read a file's columns as text, and reject what is not such a file for so many examples."""
    try:
        with with_an_end(path).open("rb") as file:
            is_parquet = file.read(4) == PARQUET_MAGIC
    except OSError as error:
        raise PartitionError(f"{path}: cannot be read ({error.strerror})") from error
    if is_parquet:
        from coterie.core.parquet import read_parquet

        columns = read_parquet(path, total)
    else:
        columns = _read_csv(path)
    if not NEEDED <= set(columns) <= KNOWN:
        raise PartitionError(
            f"{path}: columns must be example, node and perhaps edge, separated by commas, got "
            f"{', '.join(map(repr, columns)) or 'none'}"
        )
    if not len(columns["example"]):
        raise PartitionError(f"{path}: has no rows")
    for name, values in columns.items():
        if (gap := next((i for i, v in enumerate(values) if not v.strip()), None)) is not None:
            raise PartitionError(f"{path}: row {gap + 1} has no {name}")
    return columns


def _read_csv(path: Path) -> Columns:
    names, lines = read_table(path, PartitionError)
    columns = list(zip(*(cells for _, cells in lines), strict=True)) or [()] * len(names)
    return dict(zip(names, columns, strict=True))


def _whole(values: Sequence[str], path: Path) -> Ints:
    for value in values:
        digits = value.strip().removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            raise PartitionError(f"{path}: example must be a whole number, got {value[:40]!r}")
    return np.array([int(value.strip()) for value in values], dtype=np.int64)  # int() leaves \x1c


def _numbered(values: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    """Number distinct values in their order: as numbers if all are, else as text."""
    distinct = {value.strip() for value in values}
    numeric = all(v.isascii() and v.isdigit() for v in distinct)
    names = tuple(sorted(distinct, key=(lambda v: (int(v[:4000]), v)) if numeric else None))
    number = {name: i for i, name in enumerate(names)}
    return names, np.array([number[value.strip()] for value in values], dtype=np.int64)


def _edges(
    columns: Columns, node_of_row: Ints, names: tuple[str, ...], path: Path
) -> tuple[tuple[str, ...], Ints]:
    """Names of the edges, and the edge of every node; a node under two is refused."""
    edge_names, edge_of_row = _numbered(columns["edge"])
    edge_of = np.empty(len(names), dtype=np.int64)
    edge_of[node_of_row] = edge_of_row
    if (torn := np.flatnonzero(edge_of[node_of_row] != edge_of_row)).size:
        node = node_of_row[torn[0]]
        one, other = edge_names[edge_of_row[torn[0]]], edge_names[edge_of[node]]
        raise PartitionError(f"{path}: node {names[node]!r} is under edge {one!r} and {other!r}")
    return edge_names, edge_of


def _check_counts(rule: Rule, n: int, edge_of: Ints | None, path: Path) -> None:
    found = {"num_nodes": n}
    if edge_of is not None:
        found["num_edges"] = int(edge_of.max()) + 1
    for key, has in found.items():
        if (asked := getattr(rule, key)) not in (None, has):
            raise PartitionError(f"{path}: has {has} for {key}, got {key} = {asked}; use 'auto'")
