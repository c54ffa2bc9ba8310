"""Measured speeds in CSV files: of every pair of devices or sites, or a row for every device."""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from coterie.core.arrays import Bools, Floats, Ints
from coterie.core.boundary import reader
from coterie.core.csv_rows import (
    Cells,
    Rows,
    each_line,
    listed,
    place,
    read_lines,
    read_rows,
)
from coterie.core.errors import TopologyError, unknown
from coterie.core.units import Kind, has_unit, plain_number, quantity
from coterie.topology.roles import ROLES, Role, add_said, read_role, serving
from coterie.topology.values import LEAST_BYTES_PER_S, Speed, Topology

BYTES_PER_MBYTE, BYTES_PER_MBIT = 1e6, 1e6 / 8
UNITS: dict[str, tuple[Kind, float]] = {  # what a number without a unit counts, by column
    "mbytes_per_s": ("rate", BYTES_PER_MBYTE),
    "up_mbytes_per_s": ("rate", BYTES_PER_MBYTE),
    "down_mbytes_per_s": ("rate", BYTES_PER_MBYTE),
    "mbit_per_s": ("rate", BYTES_PER_MBIT),
    "up_mbit_per_s": ("rate", BYTES_PER_MBIT),
    "down_mbit_per_s": ("rate", BYTES_PER_MBIT),
    "latency_s": ("time", 1.0),
    "latency_ms": ("time", 1e-3),
}
SPEEDS = tuple(column for column, (kind, _) in UNITS.items() if kind == "rate")
LATENCIES = tuple(column for column, (kind, _) in UNITS.items() if kind == "time")
BOTH_WAYS = ("mbytes_per_s", "mbit_per_s")
NODE_COLUMNS = ("node", *SPEEDS, *LATENCIES, "gflops", "capacity")
ACCESS_COLUMNS = (*NODE_COLUMNS, "site", "may_serve", "region")  # where a network is there, too
PAIR = ("from", "to")
PAIR_COLUMNS = (*PAIR, *BOTH_WAYS, *LATENCIES, *ROLES)


@dataclass(frozen=True, eq=False)
class _Measured:
    """Speeds in bytes/s and latencies in seconds [n, n], NaN where none; names, if there are."""

    names: list[str]
    speed: Floats
    latency_s: Floats
    roles: Mapping[str, Role] = field(default_factory=dict)


@reader(TopologyError)
def read_matrix(
    bandwidth: Path, latency: Path | None, default: Speed, *, sites: bool = False
) -> Topology:
    """Build the network that measured speeds [n, n] describe, in MByte/s from row i to column j.

    Every device sits on its own switch. A measured pair is joined by its own link, with its speed
    each way and the mean of its two latencies, in seconds; a pair left empty, or `nan`, has none
    (an empty latency is that of the other way, or the default).
    What a device sends at once shares its access link, which has no latency and is as fast as the
    fastest pair: up the maximum of its row, down of its column. The diagonal is ignored.

    The pairs of `sites` are switches alone, with no device on them yet. The same as rows of `from`
    and `to` is read too.
    """
    measured = _read_measured(bandwidth, latency)
    names, speed = measured.names, measured.speed
    n = len(speed)
    called = names or [f"node {i}" for i in range(n)]
    odd = np.argwhere(np.isnan(speed) & ~np.isnan(speed.T))
    if len(odd):
        i, j = (called[k] for k in odd[0])
        raise TopologyError(f"{bandwidth}: {j!r} to {i!r} has a speed, but the way back has none")
    pairs = np.argwhere(np.triu(~np.isnan(speed)))  # [L, 2]
    check_connected(pairs, called, bandwidth)
    i, j = pairs.T
    seconds = _both_ways(measured.latency_s)[i, j]
    between = np.stack([speed[i, j], speed[j, i]], axis=1)
    seconds = np.where(np.isnan(seconds), default.latency_s, seconds)
    if sites:
        if not names:
            raise TopologyError(
                f"{bandwidth}: does not name its sites; give the matrix a header of names"
            )
        on, access, vertices = np.zeros(0, dtype=np.int64), np.zeros((0, 2)), tuple(names)
    else:
        on = np.arange(n, dtype=np.int64)
        access = np.stack([np.nanmax(speed, axis=1), np.nanmax(speed, axis=0)], axis=1)
        vertices = (*names, *(f"switch of {name}" for name in names))
    places, capacity, may_serve = serving(vertices, len(on), measured.roles, bandwidth)
    return Topology(
        on,
        pairs.astype(np.int64),
        ("core",) * len(pairs),
        n,
        np.concatenate([access, between]).ravel(),
        np.concatenate([np.zeros(len(on)), seconds]),
        places,
        vertices,
        place_capacity=capacity,
        may_serve=may_serve,
    )


def matrix_names(path: Path) -> Iterator[str]:
    """Yield the names that a matrix, or a list of pairs, has, as soon as they can be known.

    A header of names is enough; no speed is read. What is no such file, or has no names, has none.
    """
    if is_pairs(path):
        lines = each_line(path, TopologyError)
        header = [cell.strip() for cell in next(lines)[1]]
        ends = [header.index(end) for end in PAIR]
        for _, line in lines:
            yield from (line[end].strip() for end in ends if end < len(line) and line[end].strip())
        return
    lines = each_line(path, TopologyError)
    first = [cell.strip() for cell in next(lines, (0, []))[1]]
    second = next(lines, (0, []))[1]
    column = is_name(second[0]) if second else False
    if all(is_name(cell) for cell in first[1:] or [""]):
        yield from first[column:]
    elif column and is_name(first[0]):
        yield from (first[0], second[0].strip())
        for _, line in lines:
            yield line[0].strip()


def is_pairs(path: Path) -> bool:
    """Whether a CSV lists pairs: under `from` and `to` are names, or there is a column of speeds.

    A matrix of devices that are called so has speeds under them.
    """
    lines = each_line(path, TopologyError)
    header = [cell.strip() for cell in next(lines, (0, []))[1]]
    if not set(PAIR) <= set(header):
        return False
    row, at = next(lines, (0, []))[1], header.index(PAIR[0])
    return bool(set(header) & set(SPEEDS)) or (at < len(row) and is_name(row[at]))


@reader(TopologyError)
def read_access(
    path: Path, names: Sequence[str], n: int, *, others: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Read speeds up and down in bytes/s and latencies in seconds, [n] each, NaN where not given.

    Column `node` has names of the network or numbers 0..n-1; without it, row i is node i. With
    `others`, columns that are not of such files are passed over.
    """
    columns, rows = read_rows(path, TopologyError)
    if not others:
        check_columns(columns, path)
    if not {*SPEEDS, *LATENCIES} & set(columns):
        raise TopologyError(
            f"{path}: needs a column of {', '.join(SPEEDS + LATENCIES)}, got {listed(columns)}"
        )
    table = np.full((3, n), np.nan)
    for node, (where, cells) in zip(numbered(path, rows, names, n), rows, strict=True):
        table[:, node] = speeds(cells, where)
    up, down, latency_s = table
    return up, down, latency_s


@reader(TopologyError)
def read_column(path: Path, names: Sequence[str], n: int, column: str) -> Floats:
    """Read a number above 0 for every node [n], such as `gflops`."""
    columns, rows = read_rows(path, TopologyError)
    check_columns(columns, path)
    if column not in columns:
        raise TopologyError(f"{path}: needs a column {column}, got {listed(columns)}")
    values = np.full(n, np.nan)
    for node, (where, cells) in zip(numbered(path, rows, names, n), rows, strict=True):
        values[node] = number(cells, column, where)
    if (gaps := np.flatnonzero(np.isnan(values))).size:
        name = names[gaps[0]] if names else str(gaps[0])
        raise TopologyError(f"{path}: node {name!r} has no {column}; every node needs one")
    return values


def check_columns(columns: Iterable[str], path: Path) -> None:
    """Refuse what is no column of a file of nodes; one file may have all of theirs."""
    for name in columns:
        if name not in ACCESS_COLUMNS:
            raise TopologyError(f"{path}: {unknown('column', name, ACCESS_COLUMNS)}")


def speeds(cells: Cells, where: str) -> tuple[float, float, float]:
    """Read speed up, speed down and latency, NaN where not given.

    >>> speeds({"mbytes_per_s": "8", "down_mbit_per_s": "160", "latency_ms": "5"}, "net.csv")
    (8000000.0, 20000000.0, 0.005)
    >>> speeds({"mbytes_per_s": "100Mbit", "latency_s": "20ms"}, "net.csv")
    (12500000.0, 12500000.0, 0.02)
    """
    both, up, down = (
        _one_of(cells, (f"{way}mbytes_per_s", f"{way}mbit_per_s"), where)
        for way in ("", "up_", "down_")
    )
    return (
        both if math.isnan(up) else up,
        both if math.isnan(down) else down,
        _one_of(cells, LATENCIES, where),
    )


def _one_of(cells: Cells, columns: tuple[str, ...], where: str) -> float:
    """Read the one of some columns, which mean the same, that has a number."""
    found = [value for column in columns if not math.isnan(value := number(cells, column, where))]
    if len(found) > 1:
        raise TopologyError(f"{where}: has {' and '.join(columns)}; keep one of them")
    return found[0] if found else math.nan


def number(cells: Cells, column: str, where: str) -> float:
    """Read a number in bytes/s or seconds if its column is a speed or latency; NaN if not given.

    A speed or latency may have a unit, such as 100Mbit or 20ms.
    """
    text = cells.get(column, "").strip()
    if not text:
        return math.nan
    kind, plain = UNITS.get(column, (None, 1.0))
    try:
        value = plain_number(text) if kind is None else quantity(text, kind, plain)
    except ValueError as error:
        if kind is not None and has_unit(text):
            raise TopologyError(f"{where}: {column} {error}") from error
        value = math.nan
    rule = ">= 0" if column in LATENCIES else "above 0"
    if not (math.isfinite(value) and (value > 0 or (value == 0 and column in LATENCIES))):
        raise TopologyError(f"{where}: {column} must be a finite number {rule}, got {text[:40]!r}")
    if column in SPEEDS and value < LEAST_BYTES_PER_S:
        raise TopologyError(f"{where}: {column} must be at least 1 byte/s, got {text[:40]!r}")
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


def numbered(path: Path, rows: Rows, names: Sequence[str], n: int) -> list[int]:
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


def _read_measured(bandwidth: Path, latency: Path | None) -> _Measured:
    """Read speeds and latencies of pairs, as a matrix or as rows."""
    if is_pairs(bandwidth):
        if latency is not None:
            raise TopologyError(
                f"{latency}: is not read beside {bandwidth}, which has rows of from and to; give "
                "it a column latency_ms"
            )
        return _read_pairs(bandwidth)
    names, speed = _read_square(bandwidth, SPEEDS[0])
    n = len(speed)
    if latency is None:
        return _Measured(names, speed, np.full((n, n), np.nan))
    called, seconds = _read_square(latency, "latency_s")
    if len(seconds) != n or (called and names and called != names):
        raise TopologyError(
            f"{latency}: must be of the same {n} devices as the speeds, in that order"
        )
    return _Measured(names, speed, seconds)


def _read_pairs(path: Path) -> _Measured:
    """Read a matrix as rows: from, to, a speed and perhaps a latency.

    The way back is as fast where it has no row of its own. A row without a speed is a pair that was
    not measured. What a row says of serving is said of `from`, and needs no `to`.
    """
    columns, lines = _pair_lines(path)
    at_from, at_to = map(columns.index, PAIR)
    at_roles = [(name, columns.index(name)) for name in ROLES if name in columns]
    texts = {name: list[str]() for name in (*BOTH_WAYS, *LATENCIES) if name in columns}
    at_texts = [(columns.index(name), texts[name]) for name in texts]
    number_of: dict[str, int] = {}
    said: dict[str, dict[str, str]] = {}
    said_at: dict[str, str] = {}
    i_s, j_s, numbers_of = list[int](), list[int](), list[int]()  # ends and lines of the pairs
    for at, line in lines:
        a, b = line[at_from].strip(), line[at_to].strip()
        tells = False
        if at_roles and a:
            tells = add_said(said, a, {name: line[k] for name, k in at_roles}, place(path, at))
            said_at |= {a: place(path, at)} if tells else {}
        if not a or not (b or (tells and not any(line[k].strip() for k, _ in at_texts))):
            raise TopologyError(f"{place(path, at)}: {PAIR[bool(a)]} is empty; a pair has two ends")
        number = number_of.setdefault(a, len(number_of))
        if b and a != b:
            i_s.append(number)
            j_s.append(number_of.setdefault(b, len(number_of)))
            numbers_of.append(at)
            for k, column in at_texts:
                column.append(line[k])
    if not i_s:
        raise TopologyError(f"{path}: has no pair; give a row to every two")
    names, i, j = list(number_of), np.array(i_s), np.array(j_s)
    there = _rows_there(path, names, i, j, numbers_of)
    tables = np.full((2, len(names), len(names)), np.nan)
    for table, known in zip(tables, (BOTH_WAYS, LATENCIES), strict=True):
        table[i, j] = _either(texts, known, numbers_of, path)
    speed, latency_s = np.where(there, tables, tables.transpose(0, 2, 1))
    roles = {name: read_role(name, said[name], where) for name, where in said_at.items()}
    return _Measured(names, speed, latency_s, roles)


def _rows_there(path: Path, names: list[str], i: Ints, j: Ints, lines: Sequence[int]) -> Bools:
    """Say which pairs have a row [n, n]; refuse one that has two, or none either way."""
    n = len(names)
    _, first = np.unique(i * n + j, return_index=True)
    if len(first) < len(i):
        at = int(np.setdiff1d(np.arange(len(i)), first)[0])
        a, b = names[i[at]], names[j[at]]
        raise TopologyError(f"{place(path, lines[at])}: {a!r} to {b!r} is there twice")
    there = np.eye(n, dtype=np.bool_)
    there[i, j] = True
    if (gaps := np.argwhere(~(there | there.T))).size:
        a, b = (names[k] for k in gaps[0])
        raise TopologyError(
            f"{path}: {a!r} and {b!r} have no row; give one to every pair, without a speed where "
            "nothing was measured"
        )
    return there


def _either(
    texts: Mapping[str, list[str]], known: tuple[str, ...], lines: Sequence[int], path: Path
) -> Floats:
    """Read the numbers of columns that mean the same, of which a line has one or none."""
    values = np.full(len(lines), np.nan)
    for column in known:
        if column in texts:
            here = numbers(texts[column], column, lambda at: place(path, lines[at]))
            if (both := np.flatnonzero(~np.isnan(values) & ~np.isnan(here))).size:
                where = place(path, lines[both[0]])
                raise TopologyError(f"{where}: has {' and '.join(known)}; keep one of them")
            values = np.where(np.isnan(here), values, here)
    return values


def _pair_lines(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the columns of a list of pairs, and its lines."""
    lines = each_line(path, TopologyError)
    columns = [cell.strip() for cell in next(lines)[1]]
    if len(set(columns)) < len(columns):
        raise TopologyError(f"{path}: a column is there twice in {listed(columns)}")
    for name in columns:
        if name not in PAIR_COLUMNS:
            raise TopologyError(f"{path}: {unknown('column', name, PAIR_COLUMNS)}")
    if not set(BOTH_WAYS) & set(columns):
        raise TopologyError(
            f"{path}: needs a column of {' or '.join(BOTH_WAYS)}, got {listed(columns)}"
        )

    def checked() -> Iterator[tuple[int, list[str]]]:
        for at, line in lines:
            if len(line) != len(columns):
                raise TopologyError(
                    f"{place(path, at)}: must have {len(columns)} values, got {len(line)}"
                )
            yield at, line

    return columns, checked()


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
    table = np.empty((n, n))
    for i, (where, line) in enumerate(body):
        line[i] = ""
        table[i] = numbers(line, unit, partial(_cell, where))
    return across or down, table


def _cell(where: str, at: int) -> str:
    return f"{where}, value {at + 1}"


def numbers(cells: list[str], column: str, where: Callable[[int], str]) -> Floats:
    """Read many speeds or latencies, at once where they are bare numbers; NaN where not given."""
    try:
        values = np.array([plain_number(cell) if cell else math.nan for cell in cells])
    except ValueError:
        values = np.zeros(0)
    with np.errstate(over="ignore"):  # what is too large is not finite, and is named below
        values = values * UNITS[column][1] if UNITS[column][1] >= 1 else values / 1000
    fine = np.isfinite(values) & (values >= (LEAST_BYTES_PER_S if column in SPEEDS else 0))
    if len(values) and fine.sum() == sum(map(bool, cells)):
        return values
    return np.array(
        [
            number({column: _unless_nan(cell, column)}, column, where(at))
            for at, cell in enumerate(cells)
        ]
    )


def _unless_nan(cell: str, column: str) -> str:
    """Return a cell; `nan` as a speed is a pair that was not measured, as is nothing."""
    return "" if column in SPEEDS and cell.strip().lower() == "nan" else cell


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


def _both_ways(there: Floats) -> Floats:
    """Mean of the latencies there and back [n, n], or the one that is measured, or NaN."""
    there = np.where(np.isnan(there), there.T, there)
    mean: Floats = (there + there.T) / 2
    return mean
