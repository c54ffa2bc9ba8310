"""One run of a watched folder: how far it is, and what of it can be drawn already."""

from dataclasses import dataclass, replace
from pathlib import Path

from coterie.analysis.curves import measured_accuracies
from coterie.config.files import Stored
from coterie.core.errors import RecordError
from coterie.core.regular import read_regular
from coterie.core.types import Json
from coterie.runs.record import (
    PROGRESS,
    ROWS,
    RUNS,
    RecordedRun,
    damaged,
    find_runs,
    read_run,
    resume_command,
)
from coterie.runs.validate import UNREADABLE, read_object, read_rows, read_settings, strange

Signs = tuple[tuple[int, int] | None, ...]  # when each file was last changed, and its size
FILES = ("summary.json", PROGRESS, ROWS, "grouping.json", "config.toml", "meta.json")
NO_GROUPS: Json = {"z": [0], "class_counts": [[1]]}  # passes where groups are not known yet
UNKNOWN: Json = {
    **dict.fromkeys(("steps", "seconds", "d_local", "d_global"), 0),
    **dict.fromkeys(("test_accuracy", "d_group", "Delta", "delta"), None),
    **{"status": "running", "group_sizes": []},
}  # passes where the first progress.json is not written yet
MOST_STEPS = 2**53
QUIET_S, QUIET_ROWS = 15.0, 5.0  # without a sign, at least; and as many times a row's usual time


@dataclass(frozen=True, eq=False)
class Seen:
    """A run at some moment; `run` is None as long as there is nothing to draw.

    `pace_s` are wall seconds a step of late, `quiet_s` is after how long without a sign to say so,
    `way` the command that goes on with it, and `problem` why it cannot be read.
    """

    folder: Path
    status: str
    t: int = 0
    steps: int | None = None
    accuracy: float | None = None
    seconds: float | None = None
    wall_s: float | None = None
    pace_s: float | None = None
    quiet_s: float = QUIET_S
    news_at: float | None = None
    way: str = ""
    run: RecordedRun | None = None
    problem: str = ""


def signs(folder: Path) -> Signs:
    """Return what tells whether anything in a run folder has changed."""
    found: list[tuple[int, int] | None] = []
    for name in FILES:
        try:
            stat = (folder / name).stat()
            found.append((stat.st_mtime_ns, stat.st_size))
        except OSError:
            found.append(None)
    return tuple(found)


def see(folder: Path) -> Seen:
    """Read a run that has begun, whether or not it has ended."""
    times = [sign[0] for sign in signs(folder) if sign]
    news_at = max(times) / 1e9 if times else None
    try:
        run = _read(folder)
    except RecordError as error:
        return Seen(folder, "damaged", news_at=news_at, problem=str(error))
    status = run.summary["status"]
    last: Json = run.rows[-1] if run.rows else {}
    whole = folder.parent if (folder.parent / RUNS).exists() else folder
    pace_s, row_s = paces(run.rows)
    return Seen(
        folder,
        status,
        t=last.get("t", 0),
        steps=steps_of(run.config),
        accuracy=run.summary["test_accuracy"],
        seconds=last.get("seconds"),
        wall_s=run.summary.get("wall_s"),
        pace_s=pace_s,
        quiet_s=max(QUIET_S, QUIET_ROWS * row_s),
        news_at=news_at,
        way="" if status in ("complete", "diverged") else resume_command(whole),
        run=run if _drawable(run) else None,
    )


def _read(folder: Path) -> RecordedRun:
    """Read a run; one that is not complete is as far as its rows, and its grouping may be empty."""
    if not (folder / "summary.json").exists():
        return _read_unfinished(folder)
    try:
        run = read_run(folder)
    except RecordError as error:
        if not (folder / "summary.json").exists():  # it goes on just now
            return _read_unfinished(folder)
        raise RecordError(_said_of(folder)) from error
    complete = run.summary["status"] == "complete"
    return run if complete else replace(run, summary=_so_far(run.summary, run.rows))


def _read_unfinished(folder: Path) -> RecordedRun:
    try:
        config = read_settings(folder)
        meta = _json(folder, "meta.json")
        told = _json(folder, PROGRESS)
        grouping = _json(folder, "grouping.json")
        rows = read_rows(ROWS, _whole_lines(folder / ROWS), complete=False)
        known = told or UNKNOWN, grouping or NO_GROUPS
        odd = strange(config, meta, rows, *known, end=PROGRESS, ends=["running"])
    except UNREADABLE as error:
        raise RecordError(damaged(folder, error)) from error
    if odd:
        raise RecordError(f"{folder}: not written by this version of coterie ({odd})")
    return RecordedRun(folder, Stored(config), meta, rows, _so_far(told, rows), grouping)


def _so_far(told: Json, rows: list[Json]) -> Json:
    """Bring a summary to the last row; the accuracy is that which was measured last."""
    last: Json = rows[-1] if rows else {}
    now = {"steps": last.get("t", 0), "seconds": last.get("seconds", 0.0)}
    wall_s = {"wall_s": last["wall_s"]} if last.get("wall_s") is not None else {}
    accuracy = next(reversed(measured_accuracies(rows)), None)
    return {"status": "running", **told, **now, **wall_s, "test_accuracy": accuracy}


def _drawable(run: RecordedRun) -> bool:
    scored = any(row.get("test_loss") is not None for row in run.rows)
    scored = scored or run.summary["test_accuracy"] is not None
    return scored and "d_local" in run.summary


def _json(folder: Path, name: str) -> Json:
    """Read a file that may not be there yet."""
    try:
        return read_object(folder / name)
    except FileNotFoundError:
        return {}


def _whole_lines(path: Path) -> str:
    """Read the rows that are written to their end."""
    content = read_regular(path)
    return content[: content.rfind(b"\n") + 1].decode("utf-8")


def _said_of(folder: Path) -> str:
    """Say about a damaged run what the report says."""
    try:
        _, left_out = find_runs([folder])
    except RecordError as error:
        return str(error).removeprefix("no complete run; ")
    return left_out[0] if left_out else f"{folder}: changed while it was read"


def steps_of(config: Json) -> int | None:
    """Return the steps of a run by its settings, if they say so.

    >>> steps_of({"train": {"steps": 400}}), steps_of({})
    (400, None)
    """
    train = config.get("train")
    steps = train.get("steps") if isinstance(train, dict) else None
    return steps if type(steps) is int and 0 < steps < MOST_STEPS else None


def paces(rows: list[Json]) -> tuple[float | None, float]:
    """Wall seconds a step, and a row, over the later half of the rows; None if it is too early.

    >>> paces([{"t": t, "wall_s": 3.0 * t} for t in (0, 2, 4, 6)])
    (3.0, 6.0)
    """
    late = [row for row in rows[len(rows) // 2 - 1 :] if row.get("wall_s") is not None]
    if len(late) < 2 or late[-1]["t"] <= late[0]["t"]:
        return None, 0.0
    took = max(0.0, late[-1]["wall_s"] - late[0]["wall_s"])
    return took / (late[-1]["t"] - late[0]["t"]), took / (len(late) - 1)
