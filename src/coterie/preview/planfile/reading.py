"""Reading a plan file: strictly, so that what another program wrote is right or refused."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.preview.planfile import (
    FORMAT,
    VERSION,
    Plan,
    PlanError,
    PlannedNode,
    Predicted,
    checked,
)

ABOUT: dict[str, type] = {
    "title": str,
    "found_by": str,
    "model_bytes": int,
    "Delta": float,
}
SCHEDULE: dict[str, type] = {"tau1": int, "tau2": int, "steps": int}
PREDICTED: dict[str, type] = dict.fromkeys(("step_s", "group_s", "global_s", "round_s"), float)
GROUP: dict[str, type] = {"group": int, "server": str}
NODE: dict[str, type] = {"node": str, "group": int, "examples": int, "step_s": float}
WHOLE: dict[str, type] = {
    "format": str,
    "version": int,
    **ABOUT,
    "schedule": dict,
    "predicted": dict,
    "groups": list,
    "nodes": list,
}
COLUMNS: dict[str, type] = {
    "version": int,
    **NODE,
    "server": str,
    **SCHEDULE,
    "model_bytes": int,
    "Delta": float,
    **{key: kind for key, kind in PREDICTED.items() if key != "step_s"},
}
LEAST_ONE = {"tau1", "tau2", "steps", "examples", "model_bytes", "version"}
WORDS = {str: "text", int: "a whole number", float: "a number", dict: "an object", list: "a list"}
EXAMPLE = Plan(
    "three nodes",
    "coterie",
    1,
    2,
    10,
    31_400,
    0.25,
    Predicted(0.001, 0.01, 0.02, 0.032),
    ("a", "c"),
    (PlannedNode("a", 0, 9, 0.001), PlannedNode("b", 0, 8, 0.001), PlannedNode("c", 1, 7, 0.001)),
)


def read_plan(path: Path) -> Plan:
    """Read a plan from a .json or .csv file; whatever is not one is refused in one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: is not a text file") from error
    if path.suffix == ".csv":
        return checked(_from_rows(text, path), str(path))
    return checked(_from_json(text, path), str(path))


def _from_json(text: str, path: Path) -> Plan:
    try:
        raw = json.loads(text, parse_constant=_refuse, object_pairs_hook=_once)
    except RecursionError as error:
        raise PlanError(f"{path}: is not a plan") from error
    except ValueError as error:
        raise PlanError(f"{path}: is not JSON ({error})") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise PlanError(f'{path}: is not a plan; it has no "format": "{FORMAT}"')
    _check_version(raw.get("version"), path)
    raw = _object(raw, WHOLE, str(path))
    schedule = _object(raw["schedule"], SCHEDULE, f"{path}: schedule")
    predicted = _object(raw["predicted"], PREDICTED, f"{path}: predicted")
    groups = [_object(g, GROUP, f"{path}: group {k}") for k, g in enumerate(raw["groups"])]
    for k, group in enumerate(groups):
        if group["group"] != k:
            raise PlanError(f"{path}: groups must be 0, 1, 2, ... in order, got {group['group']}")
    nodes = [_object(v, NODE, f"{path}: node {i}") for i, v in enumerate(raw["nodes"])]
    if not (nodes and groups):
        raise PlanError(f"{path}: has no {'groups' if nodes else 'nodes'}")
    return Plan(
        **{key: raw[key] for key in ABOUT},
        **schedule,
        predicted=Predicted(**predicted),
        servers=tuple(group["server"] for group in groups),
        nodes=tuple(PlannedNode(**node) for node in nodes),
    )


def _from_rows(text: str, path: Path) -> Plan:
    try:
        reader = csv.DictReader(text.splitlines(), strict=True)
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise PlanError(f"{path}: is not a CSV file ({error})") from error
    columns = list(reader.fieldnames or [])
    if "version" not in columns:
        raise PlanError(f"{path}: is not a plan; it has no column 'version'")
    if sorted(columns) != sorted(COLUMNS):
        raise PlanError(f"{path}: columns must be {', '.join(COLUMNS)}, got {', '.join(columns)}")
    if not rows:
        raise PlanError(f"{path}: has no nodes")
    _check_version(_number(str(rows[0][1]["version"]), int), path)
    read = [_row(row, f"{path}: line {line}") for line, row in rows]
    for (line, _), row in zip(rows, read, strict=True):
        for key in ("version", *SCHEDULE, "model_bytes", "Delta", "group_s", "global_s", "round_s"):
            if row[key] != read[0][key]:
                raise PlanError(f"{path}: line {line}: {key} must be the same in every row")
    first, servers = read[0], dict[int, str]()
    for row in read:
        if servers.setdefault(row["group"], row["server"]) != row["server"]:
            raise PlanError(f"{path}: group {row['group']} has two servers")
    if sorted(servers) != list(range(len(servers))):
        raise PlanError(f"{path}: groups must be 0, 1, 2, ..., got {sorted(servers)}")
    return Plan(
        title="",
        found_by="",
        **{key: first[key] for key in (*SCHEDULE, "model_bytes", "Delta")},
        predicted=Predicted(
            max(row["step_s"] for row in read),
            *(first[key] for key in ("group_s", "global_s", "round_s")),
        ),
        servers=tuple(servers[k] for k in range(len(servers))),
        nodes=tuple(PlannedNode(**{key: row[key] for key in NODE}) for row in read),
    )


def _row(row: Mapping[str | None, Any], where: str) -> dict[str, Any]:
    if None in row or None in row.values():
        raise PlanError(f"{where}: must have {len(COLUMNS)} values")
    read = {k: v if COLUMNS[str(k)] is str else _number(v, COLUMNS[str(k)]) for k, v in row.items()}
    return _object(read, COLUMNS, where)


def _number(text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text


def _check_version(version: object, path: Path) -> None:
    if version != VERSION or isinstance(version, bool):
        raise PlanError(
            f"{path}: is a plan of version {version!r}, and this coterie reads version {VERSION}; "
            "write it again with: coterie plan --export"
        )


def _object(raw: object, keys: Mapping[str, type], where: str) -> dict[str, Any]:
    """Return an object that has just these keys, each of its type and not below its least."""
    if not isinstance(raw, dict):
        raise PlanError(f"{where}: must be an object, got {type(raw).__name__}")
    for key in keys:
        if key not in raw:
            raise PlanError(f"{where}: has no {key!r}")
    for key, value in raw.items():
        if key not in keys:
            raise PlanError(f"{where}: unknown {key!r}; version {VERSION} has no such entry")
        _check_value(value, keys[key], f"{where}: {key}", 1 if key in LEAST_ONE else 0)
    return {k: float(v) if keys[k] is float else v for k, v in raw.items()}


def _check_value(value: object, kind: type, where: str, least: int) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = number if kind is float else isinstance(value, kind) and not isinstance(value, bool)
    if not fits:
        raise PlanError(f"{where} must be {WORDS[kind]}, got {str(value)[:40]!r}")
    if isinstance(value, int | float) and not (math.isfinite(value) and value >= least):
        raise PlanError(f"{where} must be >= {least} and finite, got {value}")
    named = where.endswith((": node", ": server"))
    if named and isinstance(value, str) and not (value.strip() and value.isprintable()):
        raise PlanError(f"{where} must be a name of printable letters, got {value[:40]!r}")


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return found
