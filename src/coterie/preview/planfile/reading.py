"""Reading a plan file: strictly, so that what another program wrote is right or refused."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from coterie.core.boundary import reader
from coterie.core.convert import convert
from coterie.core.errors import short
from coterie.core.inputs import with_an_end
from coterie.core.types import Json
from coterie.preview.planfile import (
    COLUMNS,
    FORMAT,
    NODE,
    SCHEDULE,
    SHARED,
    VERSION,
    Plan,
    PlanError,
    PlanFile,
    PlannedNode,
    checked,
)

DIGITS = 4000  # of a whole number; Python refuses more than 4300


@reader(PlanError)
def read_plan(path: Path) -> Plan:
    """Read a plan from a .json or .csv file; whatever is not one is refused in one line."""
    try:
        text = with_an_end(path).read_text(encoding="utf-8-sig")
        raw = _from_rows(text, path) if path.suffix.lower() == ".csv" else _from_json(text, path)
        file = convert(raw, PlanFile, str(path))
    except OSError as error:
        raise PlanError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: is not a text file") from error
    except ValueError as error:
        raise PlanError(str(error)) from error
    for k, group in enumerate(file.groups):
        if group.group != k:
            raise PlanError(f"{path}: groups must be 0, 1, 2, ... in order, got {group.group}")
    plan = Plan(
        title=file.title,
        found_by=file.found_by,
        **asdict(file.schedule),
        model_bytes=file.model_bytes,
        Delta=file.Delta,
        predicted=file.predicted,
        servers=tuple(group.server for group in file.groups),
        nodes=tuple(file.nodes),
    )
    return checked(plan, str(path))


def _from_json(text: str, path: Path) -> Json:
    try:
        raw = json.loads(text, parse_constant=_refuse, parse_int=_whole, object_pairs_hook=_once)
    except RecursionError as error:
        raise PlanError(f"{path}: is not a plan; it is nested too deep") from error
    except ValueError as error:
        raise PlanError(f"{path}: is not JSON ({error})") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise PlanError(f'{path}: is not a plan; it has no "format": "{FORMAT}"')
    _check_version(raw.get("version"), path)
    return raw


def _from_rows(text: str, path: Path) -> Json:
    """Read a CSV as what the JSON of the same plan says."""
    try:
        reader = csv.DictReader(text.splitlines(), strict=True)
        lines = [(f"{path}: line {reader.line_num}", row) for row in reader]
    except csv.Error as error:
        raise PlanError(f"{path}: is not a CSV file ({error})") from error
    columns = list(reader.fieldnames or [])
    if "version" not in columns:
        raise PlanError(f"{path}: is not a plan; it has no column 'version'")
    if sorted(columns) != sorted(COLUMNS):
        raise PlanError(f"{path}: columns must be {', '.join(COLUMNS)}, got {short(columns)}")
    nodes, servers, first = [], dict[int, str](), Json()
    for where, row in lines:
        if None in row or None in row.values():
            raise PlanError(f"{where}: must have {len(COLUMNS)} values")
        raw = {k: v if k in ("node", "server") else _number(v) for k, v in row.items()}
        first = first or raw
        _check_version(raw["version"], path)
        for key in SHARED:
            if raw[key] != first[key]:
                raise PlanError(f"{where}: {key} must be the same in every row")
        node = convert({key: raw[key] for key in NODE}, PlannedNode, where)
        if servers.setdefault(node.group, row["server"]) != row["server"]:
            raise PlanError(f"{path}: group {node.group} has two servers")
        nodes.append(node)
    if not nodes:
        raise PlanError(f"{path}: has no nodes")
    times_s = {key: first[key] for key in ("group_s", "global_s", "round_s")}
    return {
        **{"format": FORMAT, "version": VERSION, "title": "", "found_by": ""},
        **{key: first[key] for key in ("model_bytes", "Delta")},
        "schedule": {key: first[key] for key in SCHEDULE},
        "predicted": {"step_s": max(node.step_s for node in nodes), **times_s},
        "groups": [{"group": k, "server": servers[k]} for k in sorted(servers)],
        "nodes": [asdict(node) for node in nodes],
    }


def _whole(text: str) -> int:
    """Read a whole number; of one that no plan can have, as many digits as Python reads.

    >>> _whole("-12"), len(str(_whole(5000 * "9")))
    (-12, 4000)
    """
    return int(text[:DIGITS])


def _number(text: str) -> int | float | str:
    for kind in (_whole, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_version(version: object, path: Path) -> None:
    if version != VERSION or isinstance(version, bool):
        raise PlanError(
            f"{path}: is a plan of version {short(version)}, and this coterie reads version "
            f"{VERSION}; write it again with: coterie plan --export"
        )


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _once(pairs: Sequence[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{short(twice)} is there twice")
    return found
