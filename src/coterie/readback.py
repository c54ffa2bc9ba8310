"""What a run folder must hold to be read back; what is wrong in it is named by file and line."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from coterie.algorithms import ALGORITHMS

Json = dict[str, Any]
SUMMARY = ("status", "group_sizes", "steps", "seconds", "d_local", "d_global")
SUMMARY_MAYBE = ("test_accuracy", "d_group", "Delta", "delta")
SUMMARY_ALSO = ("compute_s", "group_s", "global_s", "grouping_s", "Delta_first", "wall_s")
ROW_MAYBE = ("epoch", "wall_s", "train_loss", "test_loss", "Delta", "delta")


def read_json(name: str, text: str) -> Json:
    """Read a file that holds one JSON object, of numbers that are numbers.

    >>> read_json("meta.json", "[]")
    Traceback (most recent call last):
    ValueError: meta.json: must hold a JSON object, got a list
    """
    try:
        content = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{name}: must hold a JSON object, got a {type(content).__name__}")
    return content


def read_rows(name: str, text: str, *, complete: bool) -> list[Json]:
    r"""Read a row a line; the last may be cut off unless the run claims to be complete.

    >>> read_rows("rows.jsonl", '{"t": 0, "seconds": "x"}\n', complete=True)
    Traceback (most recent call last):
    ValueError: rows.jsonl line 1: seconds must be a number, got 'x'
    """
    lines = text.split("\n")
    last = lines.pop()
    if last and complete:
        raise ValueError(f"{name} line {len(lines) + 1}: cut off")
    rows = [read_json(f"{name} line {at}", line) for at, line in enumerate(lines, 1)]
    for at, row in enumerate(rows, 1):
        odd = _odd(row, ("t", "seconds"), ("test_accuracy", *ROW_MAYBE))
        if odd:
            raise ValueError(f"{name} line {at}: {odd}")
    return rows


def strange(config: Json, meta: Json, rows: list[Json], summary: Json, grouping: Json) -> str:
    """Say what this version of coterie does not understand in a run; nothing if it does."""
    doubts = (_doubts(config, meta, rows), _doubts_of_end(summary), _doubts_of_groups(grouping))
    return next((doubt for each in doubts for doubt in each), "")


def _doubts(config: Json, meta: Json, rows: list[Json]) -> Iterator[str]:
    if (algorithm := config["algorithm"]["name"]) not in ALGORITHMS:
        yield f"config.toml: unknown algorithm {algorithm!r}"
    if not isinstance(config["seed"], int):
        yield f"config.toml: seed must be a whole number, got {config['seed']!r}"
    if not isinstance(meta.get("versions"), dict):
        yield "meta.json: no versions"
    if not all("test_accuracy" in row for row in rows):
        yield "rows.jsonl: rows without test_accuracy"


def _doubts_of_end(summary: Json) -> Iterator[str]:
    missing = [key for key in (*SUMMARY, *SUMMARY_MAYBE) if key not in summary]
    if missing:
        yield f"summary.json: no {missing[0]}"
        return
    if summary["status"] == "complete" and summary["test_accuracy"] is None:
        yield "summary.json: complete without test_accuracy"
    if not isinstance(summary["group_sizes"], list):
        yield f"summary.json: group_sizes must be a list, got {summary['group_sizes']!r}"
    odd = _odd(summary, SUMMARY[2:], SUMMARY_MAYBE + SUMMARY_ALSO)
    if odd:
        yield f"summary.json: {odd}"


def _doubts_of_groups(grouping: Json) -> Iterator[str]:
    z, counts, edges = (grouping.get(key) for key in ("z", "class_counts", "edge_of"))
    if not (isinstance(z, list) and z and isinstance(counts, list) and len(counts) == len(z)):
        yield "grouping.json: z and class_counts must have an entry for every node"
    elif not all(isinstance(k, int) and 0 <= k < len(z) for k in z):
        yield "grouping.json: z must be numbers of groups"
    elif edges and not (len(edges) == len(z) and all(type(e) is int and e >= 0 for e in edges)):
        yield "grouping.json: edge_of must be the number of every node's edge"
    elif type(sum(map(sum, counts))) is not int:
        yield "grouping.json: class_counts must be whole numbers"
    elif len({len(row) if isinstance(row, list) else None for row in counts}) != 1:
        yield "grouping.json: class_counts must have as many classes for every node"


def _odd(values: Json, required: Sequence[str], maybe: Sequence[str]) -> str:
    """Name the first value that is not a number."""
    for key in required:
        if key not in values:
            return f"no {key}"
    for key in (*required, *maybe):
        value = values.get(key)
        if (value is not None or key in required) and type(value) not in (int, float):
            return f"{key} must be a number, got {value!r}"
    return ""


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a number")
