"""Scores node by node: a log while a run is under way, a table of it at the end.

The log, nodes.jsonl, has a line for every row whose nodes were scored. It is appended to and cut
back as rows.jsonl is, so that a run that was killed ends with the same table, nodes.parquet, or
nodes.csv where pyarrow is missing.
"""

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated, Any

from msgspec import Meta, Struct

from coterie.core.arrays import Ints
from coterie.core.convert import convert
from coterie.core.errors import RecordError
from coterie.core.files import write_atomically
from coterie.core.parquet import has_parquet, parquet_bytes, read_columns
from coterie.core.regular import open_regular, read_regular, read_text
from coterie.core.types import Json
from coterie.engine.contract import NodeScores
from coterie.simulation.fleet import Fleet
from coterie.simulation.row import METRICS

LOG = "nodes.jsonl"
TABLES = ("nodes.parquet", "nodes.csv")
COLUMNS: dict[str, type] = {
    "t": int,
    "node": int,
    "name": str,
    "edge": int,
    "group": int,
    "examples": int,
    "test_examples": int,
    "accuracy": float,
    "loss": float,
}
Columns = dict[str, list[Any]]

Whole = Annotated[int, Meta(ge=0, lt=2**53)]
Share = Annotated[float, Meta(ge=0, le=1)]


class NodeTable(Struct, forbid_unknown_fields=True):
    """nodes.parquet or nodes.csv, whose columns have a value for every node and measured step."""

    t: list[Whole]
    node: list[Whole]
    name: list[str]
    edge: list[Whole]
    group: list[Whole]
    examples: list[Whole]
    test_examples: list[Whole]
    accuracy: list[Share | None]
    loss: list[float | None]


class NodeLog:
    """Writes the log of one run folder."""

    def __init__(self, folder: Path) -> None:
        """Take the folder; no file is made before there is something to write."""
        self._path = folder / LOG
        self._file: IO[bytes] | None = None

    def add(self, t: int, z: Ints, scores: NodeScores) -> None:
        """Append the scores of all nodes after step t, in groups z, in one piece."""
        line = {
            "t": t,
            "z": z.tolist(),
            **({"right": scores.right.tolist()} if scores.has_accuracy else {}),
            "count": scores.count.tolist(),
            "loss": [loss if math.isfinite(loss) else None for loss in scores.loss.tolist()],
        }
        if scores.examples is not None:
            line["examples"] = scores.examples.tolist()
        if scores.metrics is not None:
            line["metrics"] = dict(scores.metrics)
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        left = (json.dumps(line, allow_nan=False) + "\n").encode()
        while left:
            left = left[self._file.write(left) :]

    def sync(self) -> None:
        """Wait until the log is on the disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def keep(self, lines: int) -> None:
        """Cut off all but the first lines; without any, there is no log."""
        self.close()
        if not lines:
            self._path.unlink(missing_ok=True)
            return
        kept = b"".join(read_regular(self._path).splitlines(keepends=True)[:lines])
        os.truncate(self._path, len(kept))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def with_nodes(rows: bytes) -> int:
    r"""Count the rows whose nodes were scored: so many lines the log must have.

    >>> with_nodes(b'{"t": 0, "node_mean": 0.5}\n{"t": 1, "node_mean": null}\n{"t": 2}\n')
    1
    """
    told = map(json.loads, rows.splitlines())
    return sum(any(row.get(key) is not None for key in ("node_mean", "node_loss")) for row in told)


def logged(folder: Path) -> int:
    """Count the whole lines of a folder's log."""
    with suppress(FileNotFoundError):
        return read_regular(folder / LOG).count(b"\n")
    return 0


def read_log(folder: Path) -> list[Json]:
    """Read the log of a run folder; empty if there is none."""
    if not (folder / LOG).exists():
        return []
    lines = read_regular(folder / LOG).split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def table(lines: Sequence[Json], fleet: Fleet) -> Columns:
    """Put the lines of a log into columns, with what is known of the nodes."""
    n = fleet.n
    names = list(fleet.names) or [str(i) for i in range(n)]
    edges, examples = fleet.edge_of.tolist(), fleet.class_counts.sum(axis=1).tolist()
    metrics = list(dict.fromkeys(name for line in lines for name in line.get("metrics", {})))
    found: Columns = {name: [] for name in (*COLUMNS, *(f"{METRICS}{name}" for name in metrics))}
    for line in lines:
        accuracy = [
            right / count if count and right is not None else None
            for right, count in zip(line.get("right", [None] * n), line["count"], strict=True)
        ]
        tested = line.get("examples", line["count"])
        part = ([line["t"]] * n, range(n), names, edges, line["z"], examples, tested)
        own = [line["metrics"][name] for name in metrics]
        for values, more in zip(found.values(), (*part, accuracy, line["loss"], *own), strict=True):
            values.extend(more)
    return found


def write_table(folder: Path, columns: Columns) -> None:
    """Write the table; one of another format, from before, goes."""
    name = TABLES[0] if has_parquet() else TABLES[1]
    for other in TABLES:
        if other != name:
            (folder / other).unlink(missing_ok=True)
    if name == TABLES[0]:
        typed = {key: (COLUMNS.get(key, float), values) for key, values in columns.items()}
        write_atomically(folder / name, parquet_bytes(typed))
    else:
        write_atomically(folder / name, _csv(columns))


def remove_tables(folder: Path) -> None:
    """Remove the table of a run that goes on."""
    for name in TABLES:
        (folder / name).unlink(missing_ok=True)


def read_table(folder: Path) -> Columns | None:
    """Read the table of a run folder; None if it has none."""
    parquet, plain = (folder / name for name in TABLES)
    try:
        if plain.exists():
            columns = _read_csv(read_text(plain))
        elif parquet.exists():
            if not has_parquet():
                raise RecordError(f"{parquet}: needs coterie[parquet] to be read")
            open_regular(parquet).close()
            columns = read_columns(parquet)
        else:
            return None
        known = {key: values for key, values in columns.items() if not key.startswith(METRICS)}
        convert(known, NodeTable, (plain if plain.exists() else parquet).name)
        others = {key: values for key, values in columns.items() if key not in known}
        convert(others, dict[str, list[float | None]], "metrics of nodes")
        if len({len(values) for values in columns.values()}) > 1:
            raise ValueError("columns of different lengths")
    except (OSError, ValueError, KeyError) as error:
        raise RecordError(f"{folder}: damaged scores of nodes ({error})") from error
    return columns


def last_scores(columns: Columns) -> Columns:
    """Return the scores of the last measured step.

    >>> last_scores({"t": [0, 0, 5, 5], "node": [0, 1, 0, 1]})
    {'t': [5, 5], 'node': [0, 1]}
    """
    last = max(columns["t"], default=0)
    at = [i for i, t in enumerate(columns["t"]) if t == last]
    return {name: [values[i] for i in at] for name, values in columns.items()}


def accuracies(columns: Columns) -> list[float]:
    """Return the accuracies of the last measured step, of nodes with test examples."""
    return [value for value in last_scores(columns)["accuracy"] if value is not None]


def _csv(columns: Columns) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))  # None is empty
    return text.getvalue().encode()


def _read_csv(text: str) -> Columns:
    header, *lines = csv.reader(io.StringIO(text))
    metrics = header[len(COLUMNS) :]
    if header[: len(COLUMNS)] != list(COLUMNS) or not all(m.startswith(METRICS) for m in metrics):
        raise ValueError(f"columns must be {', '.join(COLUMNS)}")
    kinds = COLUMNS | dict.fromkeys(metrics, float)
    found: Columns = {name: [] for name in kinds}
    for line in lines:
        for (name, kind), cell in zip(kinds.items(), line, strict=True):
            found[name].append(kind(cell) if cell or kind is str else None)
    return found
