"""A user's own partition: a CSV or Parquet file with columns example, node and perhaps edge."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coterie.errors import PartitionError
from coterie.partition.values import Dealt, Examples, Ints, Rule

NEEDED, KNOWN = {"example", "node"}, {"example", "node", "edge"}
PARQUET_MAGIC = b"PAR1"
Columns = dict[str, Sequence[str]]


def from_file(examples: Examples, rule: Rule, rng: np.random.Generator) -> Dealt:
    """Deal as a file says; every example that is dealt must be in it, once."""
    path = Path(rule.file)
    if not rule.file:
        raise PartitionError("partition 'file' needs partition.file, a .csv or .parquet")
    columns = read_columns(path)
    numbers = _whole(columns["example"], path)
    wanted = examples.numbers if examples.numbers is not None else np.arange(len(examples.y))
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    if (again := np.flatnonzero(np.diff(ordered) == 0)).size:
        raise PartitionError(f"{path}: example {ordered[again[0]]} is there twice")
    at = np.searchsorted(ordered, wanted)
    missing = np.flatnonzero(ordered[np.minimum(at, len(ordered) - 1)] != wanted)
    if missing.size:
        raise PartitionError(
            f"{path}: example {wanted[missing[0]]} is missing; every example needs a row"
        )
    names, node_of_row = _numbered(columns["node"])
    node_of = node_of_row[order][at]
    if (empty := np.setdiff1d(np.arange(len(names)), node_of)).size:
        raise PartitionError(
            f"{path}: node {names[empty[0]]!r} has no training example after the 3:1:1 split; "
            "give it more examples, or merge it with another"
        )
    edge_of = _edges(columns, node_of_row, names, path) if "edge" in columns else None
    _check_counts(rule, len(names), edge_of, path)
    return Dealt(node_of, edge_of, names)


def read_columns(path: Path) -> Columns:
    """Read a file's columns as text, and reject what is not such a file."""
    try:
        with path.open("rb") as file:
            is_parquet = file.read(4) == PARQUET_MAGIC
    except OSError as error:
        raise PartitionError(f"{path}: cannot be read ({error.strerror})") from error
    if is_parquet:
        from coterie.partition.parquet import read_parquet

        columns = read_parquet(path)
    else:
        columns = _read_csv(path)
    if not NEEDED <= set(columns) <= KNOWN:
        raise PartitionError(
            f"{path}: columns must be example, node and perhaps edge, got "
            f"{', '.join(map(repr, columns)) or 'none'}"
        )
    if not len(columns["example"]):
        raise PartitionError(f"{path}: has no rows")
    return columns


def _read_csv(path: Path) -> Columns:
    rows: list[list[str]] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            if len(set(header)) < len(header):
                raise PartitionError(f"{path}: a column is there twice in {header}")
            for row in reader:
                if len(row) == len(header):
                    rows.append(row)
                elif row:
                    raise PartitionError(
                        f"{path}: line {reader.line_num} must have {len(header)} values, got "
                        f"{len(row)}"
                    )
    except (csv.Error, UnicodeDecodeError) as error:
        raise PartitionError(f"{path}: not a CSV file ({error})") from error
    columns = list(zip(*rows, strict=True)) or [()] * len(header)
    return dict(zip(header, columns, strict=True))


def _whole(values: Sequence[str], path: Path) -> Ints:
    try:
        return np.array([int(v) for v in values], dtype=np.int64)
    except (ValueError, OverflowError):
        bad = next(v for v in values if not v.strip().isdecimal() or len(v.strip()) > 18)
        raise PartitionError(f"{path}: example must be a whole number, got {bad[:40]!r}") from None


def _numbered(values: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    """Number distinct values in their order: as numbers if all are, else as text."""
    distinct = {value.strip() for value in values}
    numeric = all(v.isascii() and v.isdigit() for v in distinct)
    names = tuple(sorted(distinct, key=(lambda v: (int(v[:4000]), v)) if numeric else None))
    number = {name: i for i, name in enumerate(names)}
    return names, np.array([number[value.strip()] for value in values], dtype=np.int64)


def _edges(columns: Columns, node_of_row: Ints, names: tuple[str, ...], path: Path) -> Ints:
    """Edge of every node; a node under two is refused."""
    edge_names, edge_of_row = _numbered(columns["edge"])
    edge_of = np.empty(len(names), dtype=np.int64)
    edge_of[node_of_row] = edge_of_row
    if (torn := np.flatnonzero(edge_of[node_of_row] != edge_of_row)).size:
        node = node_of_row[torn[0]]
        one, other = edge_names[edge_of_row[torn[0]]], edge_names[edge_of[node]]
        raise PartitionError(f"{path}: node {names[node]!r} is under edge {one!r} and {other!r}")
    return edge_of


def _check_counts(rule: Rule, n: int, edge_of: Ints | None, path: Path) -> None:
    found = {"num_nodes": n}
    if edge_of is not None:
        found["num_edges"] = int(edge_of.max()) + 1
    for key, has in found.items():
        if (asked := getattr(rule, key)) not in (None, has):
            raise PartitionError(f"{path}: has {has} for {key}, got {key} = {asked}; use 'auto'")
