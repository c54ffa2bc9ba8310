"""Measured speeds in CSV files: a matrix of every pair of devices, or a row for every device."""

import difflib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.csv_rows import Cells, Rows, listed, place, read_lines, read_rows
from coterie.core.errors import TopologyError, unknown
from coterie.topology.values import Speed, Topology

BYTES_PER_MBYTE = 1e6
SPEEDS = ("mbytes_per_s", "up_mbytes_per_s", "down_mbytes_per_s")
LATENCIES = ("latency_s", "latency_ms")
NODE_COLUMNS = ("node", *SPEEDS, *LATENCIES, "gflops", "capacity")


def read_matrix(bandwidth: Path, latency: Path | None, default: Speed) -> Topology:
    """Build the network that measured speeds [n, n] describe, in MByte/s from row i to column j.

    Every device sits on its own switch. A measured pair is joined by its own link, with its speed
    each way and the mean of its two latencies, in seconds; a pair left empty, or `nan`, has none
    (an empty latency is that of the other way, or the default).
    What a device sends at once shares its access link, which has no latency and is as fast as the
    fastest pair: up the maximum of its row, down of its column. The diagonal is ignored.
    """
    names, speed = _read_square(bandwidth, SPEEDS[0])
    n = len(speed)
    called = names or [f"node {i}" for i in range(n)]
    odd = np.argwhere(np.isnan(speed) & ~np.isnan(speed.T))
    if len(odd):
        i, j = (called[k] for k in odd[0])
        raise TopologyError(f"{bandwidth}: {j!r} to {i!r} has a speed, but the way back has none")
    pairs = np.argwhere(np.triu(~np.isnan(speed)))  # [L, 2]
    check_connected(pairs, called, bandwidth)
    i, j = pairs.T
    seconds = _mean_latency(latency, names, n)[i, j]
    access = np.stack([np.nanmax(speed, axis=1), np.nanmax(speed, axis=0)], axis=1)
    between = np.stack([speed[i, j], speed[j, i]], axis=1)
    return Topology(
        np.arange(n, dtype=np.int64),
        pairs.astype(np.int64),
        ("core",) * len(pairs),
        n,
        np.concatenate([access, between]).ravel(),
        np.concatenate([np.zeros(n), np.where(np.isnan(seconds), default.latency_s, seconds)]),
        names=(*names, *(f"switch of {name}" for name in names)),
    )


def read_access(path: Path, names: Sequence[str], n: int) -> tuple[Floats, Floats, Floats]:
    """Read speeds up and down in bytes/s and latencies in seconds, [n] each, NaN where not given.

    Column `node` has names of the network or numbers 0..n-1; without it, row i is node i.
    """
    columns, rows = read_rows(path, TopologyError)
    _check_columns(columns, path)
    if not {*SPEEDS, *LATENCIES} & set(columns):
        raise TopologyError(
            f"{path}: needs a column of {', '.join(SPEEDS + LATENCIES)}, got {listed(columns)}"
        )
    table = np.full((3, n), np.nan)
    for node, (where, cells) in zip(_nodes(path, rows, names, n), rows, strict=True):
        table[:, node] = speeds(cells, where)
    up, down, latency_s = table
    return up, down, latency_s


def read_column(path: Path, names: Sequence[str], n: int, column: str) -> Floats:
    """Read a number above 0 for every node [n], such as `gflops`."""
    columns, rows = read_rows(path, TopologyError)
    _check_columns(columns, path)
    if column not in columns:
        raise TopologyError(f"{path}: needs a column {column}, got {listed(columns)}")
    values = np.full(n, np.nan)
    for node, (where, cells) in zip(_nodes(path, rows, names, n), rows, strict=True):
        values[node] = number(cells, column, where)
    if (gaps := np.flatnonzero(np.isnan(values))).size:
        name = names[gaps[0]] if names else str(gaps[0])
        raise TopologyError(f"{path}: node {name!r} has no {column}; every node needs one")
    return values


def _check_columns(columns: list[str], path: Path) -> None:
    """Refuse what is no column of a file of nodes; one file may have all of theirs."""
    for name in columns:
        if name not in NODE_COLUMNS:
            raise TopologyError(f"{path}: {unknown('column', name, NODE_COLUMNS)}")


def speeds(cells: Cells, where: str) -> tuple[float, float, float]:
    """Read speed up, speed down and latency, NaN where not given.

    >>> speeds({"mbytes_per_s": "8", "down_mbytes_per_s": "20", "latency_ms": "5"}, "net.csv")
    (8000000.0, 20000000.0, 0.005)
    """
    both, up, down, seconds, ms = (number(cells, name, where) for name in SPEEDS + LATENCIES)
    if not (math.isnan(seconds) or math.isnan(ms)):
        raise TopologyError(f"{where}: has latency_s and latency_ms; keep one of them")
    return (
        both if math.isnan(up) else up,
        both if math.isnan(down) else down,
        ms if math.isnan(seconds) else seconds,
    )


def number(cells: Cells, column: str, where: str) -> float:
    """Read a number in bytes/s or seconds if its column is a speed or latency; NaN if not given."""
    text = cells.get(column, "").strip()
    if not text:
        return math.nan
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if column in SPEEDS:
        value *= BYTES_PER_MBYTE
    elif column == "latency_ms":
        value /= 1000
    rule = ">= 0" if column in LATENCIES else "above 0"
    if not (math.isfinite(value) and (value > 0 or (value == 0 and column in LATENCIES))):
        raise TopologyError(f"{where}: {column} must be a finite number {rule}, got {text[:40]!r}")
    return value


def check_spelling(found: Iterable[str], known: Sequence[str], path: Path) -> None:
    """Refuse a name that is nearly a known one, where other names are passed over.

    >>> check_spelling(["latency_s", "colour"], LATENCIES, Path("net.json"))
    """
    for name in dict.fromkeys(found):
        close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.85)
        if close and name not in known:
            raise TopologyError(f"{path}: unknown {name!r}; did you mean {close[0]!r}?")


def check_connected(ends: Ints, names: Sequence[str], path: Path) -> None:
    """Refuse links [., 2] that leave some vertex out of reach of another."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    a, b = ends.reshape(-1, 2).T
    graph = coo_array((np.ones(len(a), dtype=bool), (a, b)), shape=(len(names), len(names)))
    part = connected_components(graph, directed=False)[1]
    if (apart := np.flatnonzero(part != part[0])).size:
        raise TopologyError(
            f"{path}: {names[0]!r} and {names[apart[0]]!r} cannot reach each other; "
            "join all in one network"
        )


def _nodes(path: Path, rows: Rows, names: Sequence[str], n: int) -> list[int]:
    """Node of every row."""
    if not rows or "node" not in rows[0][1]:
        if len(rows) != n:
            raise TopologyError(
                f"{path}: has {len(rows)} rows for {n} nodes; give each a row, or a column node"
            )
        return list(range(n))
    number_of = {name: i for i, name in enumerate(names[:n])}
    # Names that are numbers themselves need not count from 0.
    if not any(name.isdecimal() for name in number_of):
        number_of |= {str(i): i for i in range(n)}
    nodes: dict[int, None] = {}
    for where, cells in rows:
        name = cells["node"].strip()
        if name not in number_of:
            some = [*number_of][: min(n, 3)]
            more = f" and {n - 3} more" if n > 3 else ""
            raise TopologyError(f"{where}: unknown node {name!r}; there is {listed(some)}{more}")
        if number_of[name] in nodes:
            raise TopologyError(f"{where}: node {name!r} is there twice")
        nodes[number_of[name]] = None
    return list(nodes)


def _read_square(path: Path, unit: str) -> tuple[list[str], Floats]:
    """Read a matrix [n, n] and its names, if it has any; NaN on the diagonal and where empty."""
    lines = [
        (place(path, number), [cell.strip() for cell in line])
        for number, line in read_lines(path, TopologyError)
    ]
    header = bool(lines) and all(is_name(cell) for cell in lines[0][1][1:] or [""])
    body = lines[header:]
    column = bool(body) and all(is_name(line[0]) for _, line in body)
    across = lines[0][1][column:] if header else []
    down = [line[0] for _, line in body] if column else []
    body = [(where, line[column:]) for where, line in body]
    n = len(body)
    for where, line in body:
        if len(line) != n or n < 2:
            raise TopologyError(
                f"{where}: a matrix must have n rows of n values, n >= 2, got {len(line)} values "
                f"in one of {n} rows"
            )
    if not body:
        raise TopologyError(f"{path}: has no numbers")
    _check_names(across, down, [line for _, line in body], path)
    table = np.full((n, n), np.nan)
    for i, (where, line) in enumerate(body):
        for j, cell in enumerate(line):
            if i != j and (cell.lower() != "nan" or unit == "latency_s"):
                table[i, j] = number({unit: cell}, unit, f"{where}, value {j + 1}")
    return across or down, table


def _check_names(across: list[str], down: list[str], body: list[list[str]], path: Path) -> None:
    """Refuse names that do not tell the devices of a matrix apart, or are not told from speeds."""
    names, n = across or down, len(body)
    if across and down and across != down:
        raise TopologyError(f"{path}: the names of the rows and of the columns must be the same")
    if names and (len(names) != n or len(set(names)) < n or not all(names)):
        raise TopologyError(f"{path}: each of {n} devices needs its own name, got {listed(names)}")
    counts = [[str(i) for i in range(first, first + n - 1)] for first in (0, 1)]
    if n > 2 and body[0][1:] in counts and body[0][1:] == [line[0] for line in body[1:]]:
        raise TopologyError(
            f"{path}: names that are numbers cannot be told from speeds; use such as 'n1'"
        )


def is_name(cell: str) -> bool:
    """Whether a cell holds a name: neither nothing nor a number."""
    try:
        float(cell)
    except ValueError:
        return bool(cell.strip())
    return False


def _mean_latency(path: Path | None, names: list[str], n: int) -> Floats:
    """Mean of the latencies there and back [n, n], or the one that is measured, or NaN."""
    if path is None:
        return np.full((n, n), np.nan)
    called, there = _read_square(path, "latency_s")
    if len(there) != n or (called and names and called != names):
        raise TopologyError(f"{path}: must be of the same {n} devices as the speeds, in that order")
    there = np.where(np.isnan(there), there.T, there)
    return (there + there.T) / 2
