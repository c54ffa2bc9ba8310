"""What holds after a fault: one line, nothing half written, nothing lost, and the same end."""

import csv
import hashlib
import io
import json
import re
import tomllib
from pathlib import Path
from typing import Any

from coterie.core.parquet import read_columns
from coterie.runs.record import ROWS
from coterie.runs.sweep.resume import LOCK
from faults.kinds import LEFT, OLD, Kind
from faults.zygote import Ended

TEMPORARY = re.compile(r"\..+\.\w{8}|\.begins|\.new-.*|\.staging.*")
UNSUITED = ("tracked", "original")  # a tracker's own files; what was given


def files(place: Path) -> list[Path]:
    """Return the files below a folder, but not those under temporary names."""
    return [
        path
        for path in sorted(place.rglob("*"))
        if path.is_file()
        and not any(map(TEMPORARY.fullmatch, path.relative_to(place).parts))
        and path.name != LOCK
    ]


def snapshot(place: Path) -> dict[str, bytes]:
    """Return what a command finds and has to leave as it is."""
    parts = [path for path in files(place) if path.relative_to(place).parts[0] in LEFT]
    return {str(path.relative_to(place)): path.read_bytes() for path in parts}


def ending(place: Path) -> dict[str, Any]:
    """Return all that a command leaves, less wall times and the commit that was checked out."""
    found: dict[str, Any] = {}
    for path in files(place):
        relative = path.relative_to(place)
        if relative.parts[0] in UNSUITED or "seen" in relative.parts:
            continue
        content = path.read_bytes()
        if path.name == "meta.json":
            found[str(relative)] = {**json.loads(content), "commit": None}
        elif path.name in ("summary.json", ROWS):
            lines = [content] if path.suffix == ".json" else content.splitlines()
            found[str(relative)] = [{**json.loads(line), "wall_s": 0} for line in lines]
        elif path.suffix == ".html":  # which may hold wall times of rows, and of planners
            plain = re.sub(rb'"wall_s":\[[^\]]*\]|<td>[\d.]+</td>', b"", content)
            found[str(relative)] = hashlib.sha256(plain).hexdigest()
        else:
            found[str(relative)] = content
    return found


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Name a file that two endings do not share; empty if they are the same."""
    for name in sorted({*found, *wanted}):
        if name not in wanted:
            return f"{name} is there, and should not be"
        if name not in found:
            return f"{name} is missing"
        if found[name] != wanted[name]:
            return f"{name} differs"
    return ""


def half_written(place: Path) -> list[str]:
    """Name the files that cannot be read under the names that they have."""
    bad = []
    for path in files(place):
        if path.read_bytes() == OLD:
            continue
        try:
            _read(path)
        except Exception as error:
            bad.append(f"{path.relative_to(place)}: {type(error).__name__}: {error}")
    return bad


def _read(path: Path) -> None:
    """Read a file as what its name says; an exception if it is not that."""
    content = path.read_bytes()
    if path.suffix == ".json":
        json.loads(content)
    elif path.suffix == ".jsonl":
        whole, _, rest = content.rpartition(b"\n")
        for line in whole.splitlines():
            json.loads(line)
        assert b"\n" not in rest
    elif path.suffix == ".toml":
        tomllib.loads(content.decode())
    elif path.suffix == ".html":
        assert content.rstrip().endswith(b"</html>"), "it has no end"
    elif path.suffix == ".csv":
        widths = {len(row) for row in csv.reader(io.StringIO(content.decode()))}
        assert len(widths) == 1, f"it has rows of {widths} columns"
        assert content.endswith(b"\n"), "its last line has no end"
    elif path.suffix == ".png":
        assert content.endswith(b"IEND\xaeB`\x82"), "it has no end"
    elif path.suffix == ".parquet":
        read_columns(path)
    elif path.suffix == ".safetensors":
        from safetensors.torch import load

        load(content)
    elif path.name.startswith("checkpoint-"):
        first, _, rest = content.partition(b"\n")
        assert hashlib.sha256(rest).hexdigest().encode() in first, "its sum is wrong"


def rows_in(place: Path) -> dict[str, list[str]]:
    """Return the whole rows of every run under its final name, without wall times."""
    found = {}
    for path in (path for path in files(place) if path.name == ROWS):
        whole = path.read_bytes().rpartition(b"\n")[0].splitlines()
        rows = [{**json.loads(line), "wall_s": 0} for line in whole]
        found[str(path.relative_to(place))] = [json.dumps(row) for row in rows]
    return found


def broken(
    kind: Kind,
    place: Path,
    before: dict[str, bytes],
    ended: Ended,
    codes: tuple[int, ...],
    *,
    tidy: bool,
) -> list[str]:
    """Say which promises a fault has broken; with `tidy`, no temporary file may be left."""
    bad = [f"half written: {name}" for name in half_written(place)]
    after = snapshot(place)
    bad += [f"changed: {name}" for name, was in before.items() if after.get(name) != was]
    bad += said_badly(ended, codes)
    left = [path for path in place.rglob(".*") if tidy and TEMPORARY.fullmatch(path.name)]
    bad += [f"left behind: {path.relative_to(place)}" for path in left]
    return [f"{kind.name}: {line}" for line in bad]


def said_badly(ended: Ended, codes: tuple[int, ...]) -> list[str]:
    """Say what is wrong with how a command ended, and with what it said."""
    bad = []
    if ended.hung:
        bad.append("it hung")
    if ended.code not in codes:
        bad.append(f"exit {ended.code}, not {codes}: {ended.err[-300:]!r}")
    if "Traceback" in ended.err:
        bad.append(f"a traceback: {ended.err[-1200:]}")
    last = ended.err.strip().splitlines()[-1:] or [""]
    if ended.code in (2, 130) and not last[0].startswith("coterie: "):
        bad.append(f"not told in a line: {ended.err[-300:]!r}")
    return bad
