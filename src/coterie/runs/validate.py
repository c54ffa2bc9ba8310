"""What a run folder must hold to be read back; what is wrong in it is named by file and line."""

import json
import math
from collections.abc import Iterator, Sequence
from reprlib import repr as short
from typing import NoReturn

from coterie.core.types import Json
from coterie.simulate.algorithms import ALGORITHMS

SUMMARY = ("status", "group_sizes", "steps", "seconds", "d_local", "d_global")
SUMMARY_MAYBE = ("test_accuracy", "d_group", "Delta", "delta")
SUMMARY_ALSO = (
    *("compute_s", "group_s", "global_s", "grouping_s", "Delta_first", "wall_s"),
    *("val_accuracy", "train_loss"),
)
ROW_MAYBE = ("wall_s", "train_loss", "test_loss", "Delta", "delta")
ENDS = ("complete", "failed", "diverged", "interrupted")
SECTIONS = ("data", "partition", "model", "network", "compute", "algorithm", "train")
MOST, MOST_EXAMPLES = 1e100, 2**53  # so that sums and products of some are still numbers
MANY_EDGES = 10_000
TUNED: Json = {
    "num_groups": 1,
    "schedules": [{"t": 7, "tau1": 1, "tau2": 1}],
    "expected": {"seconds": None, "low_s": None, "high_s": None, "loss": None},
}
UNREADABLE = (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError)


def read_json(name: str, text: str) -> Json:
    """Read a file that holds one JSON object, of numbers that are numbers.

    >>> read_json("meta.json", "[]")
    Traceback (most recent call last):
    ValueError: meta.json: must hold a JSON object, got a list
    """
    try:
        content = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
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
        required = ("t", "seconds", *(key for key in ("epoch",) if key in row))
        odd = _odd(row, required, ("test_accuracy", *ROW_MAYBE)) or _odd_lists(row)
        if odd:
            raise ValueError(f"{name} line {at}: {odd}")
    return rows


def strange(
    config: Json,
    meta: Json,
    rows: list[Json],
    summary: Json,
    grouping: Json,
    *,
    end: str = "summary.json",
    ends: Sequence[str] = ENDS,
) -> str:
    """Say what this version of coterie does not understand in a run; nothing if it does.

    `end` is the file that the summary is from, and `ends` are what its status may be.
    """
    doubts = (
        _doubts_of_settings(config),
        _doubts(meta, rows, summary),
        _doubts_of_end(end, summary, ends),
        _doubts_of_groups(grouping),
    )
    return next((doubt for each in doubts for doubt in each), "")


def _doubts_of_settings(config: Json) -> Iterator[str]:
    for name in SECTIONS:
        if not isinstance(config[name], dict):
            yield f"config.toml: {name!r} is a section, written [{name}]"
    algorithm, seed = config["algorithm"]["name"], config["seed"]
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        yield f"config.toml: unknown algorithm {short(algorithm)}"
    if type(seed) is not int or not 0 <= seed < 2**63:
        yield f"config.toml: seed must be a whole number, got {short(seed)}"
    for name, part in config.items():
        for key, value in part.items() if isinstance(part, dict) else ():
            if not (isinstance(value, (str, bool)) or _is_number(value)):
                yield f"config.toml: {name}.{key} must be a number or a text, got {short(value)}"


def _doubts(meta: Json, rows: list[Json], summary: Json) -> Iterator[str]:
    if not isinstance(meta.get("versions"), dict):
        yield "meta.json: no versions"
    if not all("test_accuracy" in row for row in rows):
        yield "rows.jsonl: rows without test_accuracy"
    if not all(type(row["t"]) is int for row in rows):
        yield "rows.jsonl: t must be a whole number"
    measured = any(row["test_accuracy"] is not None for row in rows)
    if summary.get("status") == "complete" and not measured:
        yield "rows.jsonl: complete without test_accuracy"


def _doubts_of_end(name: str, summary: Json, ends: Sequence[str]) -> Iterator[str]:
    missing = [key for key in (*SUMMARY, *SUMMARY_MAYBE) if key not in summary]
    if missing:
        yield f"{name}: no {missing[0]}"
        return
    if summary["status"] not in ends:
        yield f"{name}: unknown status {short(summary['status'])}"
    if summary["status"] == "complete" and summary["test_accuracy"] is None:
        yield f"{name}: complete without test_accuracy"
    odd = _odd(summary, SUMMARY[2:], SUMMARY_MAYBE + SUMMARY_ALSO) or _odd_lists(summary)
    if odd:
        yield f"{name}: {odd}"
    if not _is_choice(summary.get("tuned", TUNED)):
        yield f"{name}: tuned must be num_groups, schedules and what was expected"


def _doubts_of_groups(grouping: Json) -> Iterator[str]:
    z, counts, edges = (grouping.get(key) for key in ("z", "class_counts", "edge_of"))
    if not (isinstance(z, list) and z and isinstance(counts, list) and len(counts) == len(z)):
        yield "grouping.json: z and class_counts must have an entry for every node"
        return
    if not all(type(k) is int and 0 <= k < len(z) for k in z):
        yield "grouping.json: z must be numbers of groups"
    elif edges and not (len(edges) == len(z) and all(type(e) is int and e >= 0 for e in edges)):
        yield "grouping.json: edge_of must be the number of every node's edge"
    elif type(sum(map(sum, counts))) is not int or not _are_counts(counts):
        yield "grouping.json: class_counts must be whole numbers"
    elif len({len(row) if isinstance(row, list) else None for row in counts}) != 1:
        yield "grouping.json: class_counts must have as many classes for every node"
    else:
        yield from _doubts_of_names(grouping, len(z), max(edges) + 1 if edges else 0)


def _are_counts(counts: list[list[int]]) -> bool:
    least, most = (f((f(row) for row in counts if row), default=0) for f in (min, max))
    return 0 <= least <= most < MOST_EXAMPLES


def _doubts_of_names(grouping: Json, n_nodes: int, n_edges: int) -> Iterator[str]:
    if n_edges > max(n_nodes, MANY_EDGES):
        yield f"grouping.json: edge_of names edge {n_edges - 1} of {n_nodes} nodes"
    for key, needed in (("nodes", n_nodes), ("edges", n_edges)):
        names = grouping.get(key, [])
        if not isinstance(names, list) or 0 < len(names) < needed:
            yield f"grouping.json: {key} must name all {needed}, or none"
    servers = grouping.get("servers", [])
    if not isinstance(servers, list) or not all(type(s) is int and s >= 0 for s in servers):
        yield "grouping.json: servers must be numbers of nodes"


def _is_choice(tuned: object) -> bool:
    """Whether this is what a run writes that chooses its groups and schedule.

    >>> _is_choice(TUNED), _is_choice({"num_groups": 5}), _is_choice(TUNED | {"schedules": [3]})
    (True, False, False)
    """
    if not isinstance(tuned, dict) or tuned.keys() != TUNED.keys():
        return False
    schedules, expected = tuned["schedules"], tuned["expected"]
    if not (type(tuned["num_groups"]) is int and isinstance(schedules, list) and schedules):
        return False
    if tuned["num_groups"] < 1 or not isinstance(expected, dict):
        return False
    if expected.get("seconds") is not None and expected.get("low_s") is None:
        return False
    whole = ({"t", "tau1", "tau2"}, lambda value: type(value) is int and value > 0)
    maybe = (set(TUNED["expected"]), lambda value: value is None or _is_number(value))
    return all(
        isinstance(told, dict) and keys <= told.keys() and all(map(fits, told.values()))
        for parts, (keys, fits) in ((schedules, whole), ([expected], maybe))
        for told in parts
    )


def _odd(values: Json, required: Sequence[str], maybe: Sequence[str]) -> str:
    """Name the first value that is not a number."""
    for key in required:
        if key not in values:
            return f"no {key}"
    for key in (*required, *maybe):
        value = values.get(key)
        if (value is not None or key in required) and not _is_number(value):
            return f"{key} must be a number, got {short(value)}"
    return ""


def _odd_lists(values: Json) -> str:
    """Say what is wrong with the sizes of groups and the bytes that were sent, where given."""
    sizes, sent = values.get("group_sizes", []), values.get("bytes_by_tier", {})
    if not isinstance(sizes, list):
        return f"group_sizes must be a list, got {short(sizes)}"
    for size in sizes:
        if type(size) is not int or not 0 <= size < MOST_EXAMPLES:
            return f"group_sizes must be whole numbers, got {short(size)}"
    if not isinstance(sent, dict) or not all(map(_is_number, sent.values())):
        return f"bytes_by_tier must be a number for every tier, got {short(sent)}"
    return ""


def _is_number(value: object) -> bool:
    """Whether a value is a number that can be computed with.

    >>> [_is_number(value) for value in (1, 0.5, float("inf"), 10**400, True, "1", None)]
    [True, True, False, False, False, False, False]
    """
    return type(value) in (int, float) and -MOST < value < MOST  # type: ignore[operator]


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")
