"""Runs as one tidy table, CSV or Parquet: a line for every row, or for every run."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coterie.analysis.compare import Block, Line
from coterie.analysis.format import sizes
from coterie.analysis.lines import differing
from coterie.config.files import LABEL
from coterie.core.csv_rows import no_formula
from coterie.core.errors import RecordError
from coterie.core.parquet import check_parquet, parquet_bytes
from coterie.core.types import Progress
from coterie.runs.record import RecordedRun

Column = list[Any]
Table = dict[str, Column]  # all columns of one length


def rows_table(
    runs: Sequence[RecordedRun], progress: Progress = lambda what, done, of: None
) -> Table:
    """Put all rows of all runs under each other: run, settings that differ, seed, the row."""
    lines: list[dict[str, Any]] = []
    for number, (run, about) in enumerate(zip(runs, _about(runs), strict=True)):
        progress("rows", number, len(runs))
        lines += [{**about, **flat(row)} for row in run.rows]
    return _table(lines)


def summary_table(runs: Sequence[RecordedRun]) -> Table:
    """Make one line for every run: run, settings that differ, seed, how it ended."""
    pairs = zip(runs, _about(runs), strict=True)
    return _table([{**about, **flat(run.summary)} for run, about in pairs])


def comparison_table(blocks: Sequence[Block]) -> Table:
    """Put the comparison's lines under each other: settings and target of the block, the line."""
    return _table(
        [
            {
                **block.setting,
                "target": block.target,
                "baseline": block.baseline,
                "score": block.score,
                **_line(line),
            }
            for block in blocks
            for line in block.lines
        ]
    )


def _line(line: Line) -> dict[str, Any]:
    told = asdict(line)
    best = {f"best.{key}": value for key, value in told.pop("best").items()}
    if line.node_mean is None:
        told = {key: value for key, value in told.items() if not key.startswith("node_")}
    return {**flat(told), **best}


def flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row or summary without nesting.

    Group sizes become their number, the least, the largest and the sizes with repeats folded;
    bytes a column for every tier; any other list or table JSON.

    >>> flat({"t": 1, "group_sizes": [10, 20, 10], "bytes_by_tier": {"core": 7}})
    {'t': 1, 'groups': 3, 'smallest_group': 10, 'largest_group': 20, 'group_sizes': '20, 2x10', \
'bytes.core': 7}
    """
    flattened: dict[str, Any] = {}
    for key, value in content.items():
        if key == "group_sizes" and isinstance(value, list) and value:
            flattened |= {
                "groups": len(value),
                "smallest_group": min(value),
                "largest_group": max(value),
                "group_sizes": sizes(sorted(value, reverse=True)),
            }
        elif key == "bytes_by_tier" and isinstance(value, dict):
            flattened |= {f"bytes.{tier}": count for tier, count in value.items()}
        elif key in ("metrics", "metrics_sd"):
            flattened |= {f"{key}.{name}": figure for name, figure in value.items()}
        elif isinstance(value, (list, dict)):
            flattened[key] = json.dumps(value)
        else:
            flattened[key] = value
    return flattened


def check_format(path: Path) -> None:
    """Refuse, before anything takes its time, a file that cannot be written."""
    if path.suffix.lower() not in FORMATS:
        raise RecordError(
            f"{path}: the name must end in .csv or .parquet, got {path.suffix or 'no suffix'!r}"
        )
    if path.is_dir():
        raise RecordError(f"{path}: is a folder; name a file in it")
    if path.suffix.lower() == ".parquet":
        check_parquet(path)


def encode(table: Table, path: Path) -> bytes:
    """Return a table in the format that a file's suffix asks for."""
    return FORMATS[path.suffix.lower()](table)


def to_csv(table: Table) -> bytes:
    r"""Write a table as CSV: what is not known is empty, numbers with all their digits.

    A text that a spreadsheet would take for a formula gets an apostrophe in front; numbers never.

    >>> to_csv({"name": ["=1+1", "a,b"], "loss": [-0.5, None], "done": [True, False]}).decode()
    'name,loss,done\n\'=1+1,-0.5,true\n"a,b",,false\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_cell(name) for name in table)
    writer.writerows(map(_cell, line) for line in zip(*table.values(), strict=True))
    return text.getvalue().encode("utf-8", "backslashreplace")


def to_parquet(table: Table) -> bytes:
    """Write a table as Parquet, every column of one type; of mixed ones all are text."""
    columns: dict[str, tuple[type, Column]] = {}
    for name, values in table.items():
        kind = _kind(values)
        as_text = kind is str
        columns[name] = kind, [_text(v) if as_text and v is not None else v for v in values]
    return parquet_bytes(columns)


FORMATS: dict[str, Callable[[Table], bytes]] = {".csv": to_csv, ".parquet": to_parquet}


def _about(runs: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """Say of every run its name, its label, the settings in which the runs differ, and its seed."""
    labelled = any(run.config.get(LABEL) for run in runs)
    tables = [run.settings for run in runs]
    differ = differing(tables)
    names = run_names([run.folder for run in runs])
    return [
        {
            "run": name,
            **({LABEL: run.config.get(LABEL) or None} if labelled else {}),
            **flat({k: table.get(k) for k in differ}),
            "seed": run.config["seed"],
        }
        for name, table, run in zip(names, tables, runs, strict=True)
    ]


def run_names(folders: Sequence[Path]) -> list[str]:
    """Name runs by their folders, without what the folders have in common.

    >>> run_names([Path("runs/demo/sr-fedavg"), Path("runs/demo/sr-hierfavg")])
    ['sr-fedavg', 'sr-hierfavg']
    >>> run_names([Path("runs/quickstart")])
    ['quickstart']
    """
    whole = [Path(os.path.abspath(folder)) for folder in folders]  # noqa: PTH100
    common = Path(os.path.commonpath([folder.parent for folder in whole]))
    return [_readable(folder.relative_to(common).as_posix()) for folder in whole]


def _readable(name: str) -> str:
    r"""Return a name of a file as text that any program reads, with \xff for a byte that is none.

    >>> _readable(os.fsdecode(b"r\xc3\xa9sum\xe9"))
    'résum\\xe9'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _table(lines: list[dict[str, Any]]) -> Table:
    """Turn lines into columns, those of a kind beside each other; None where a line has none."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    last = [name for name in names if name.startswith("bytes.")] + ["wall_s"]
    order = [name for name in names if name not in last] + [n for n in last if n in names]
    return {name: [line.get(name) for line in lines] for name in order}


def _kind(values: Iterable[Any]) -> type:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and kinds:
        return float if float in kinds else int
    return kinds.pop() if kinds == {bool} else str if kinds else float


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return no_formula(value)
    return _text(value) if isinstance(value, bool) else value


def _text(value: Any) -> str:
    said = str(value).lower() if isinstance(value, bool) else str(value)
    return said.encode("utf-8", "backslashreplace").decode()
