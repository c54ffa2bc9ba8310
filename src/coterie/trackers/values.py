"""What a tracker is told of a run, and what it has to be able to do."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from coterie.analysis.export import flat
from coterie.core.errors import RecordError
from coterie.runs.record import RUNS, damaged
from coterie.runs.validate import SETTINGS, odd_settings, read_settings

Note = dict[str, Any]  # what to keep beside a run, to find it again in a tracker


@dataclass(frozen=True)
class About:
    """A run before its first row."""

    folder: Path
    experiment: str  # the sweep's name; of a run alone its own
    name: str
    params: Mapping[str, bool | int | float | str]  # every setting, dotted keys, and the seed
    began: float  # seconds since 1970

    @property
    def title(self) -> str:
        """Name the run among all."""
        return self.name if self.experiment == self.name else f"{self.experiment}/{self.name}"


@dataclass(frozen=True)
class Point:
    """One row: the step it comes after, when that was, and every figure that was measured."""

    t: int
    time: float  # seconds since 1970
    values: Mapping[str, float]


class Tracker(Protocol):
    """One run in a tracker, made by a function of (destination, about, note)."""

    last: int  # the last step it has; -1 for none

    @property
    def note(self) -> Note:
        """What finds this run again, as JSON; the function that made this gets it next time."""

    def add(self, points: Sequence[Point]) -> None:
        """Take further rows, and keep them."""

    def finish(self, status: str, final: Mapping[str, float]) -> None:
        """Take how the run ended: complete, diverged, interrupted, failed or unfinished."""


def about(folder: Path) -> About:
    """Read what is known of a run that has begun; settings that are none are a RecordError."""
    path = folder / SETTINGS
    try:
        config = read_settings(folder)
    except (OSError, ValueError) as error:
        raise RecordError(damaged(folder, error)) from error
    if odd := odd_settings(config):
        raise RecordError(f"{folder}: not written by this version of coterie ({SETTINGS}: {odd})")
    sections = {name: part for name, part in config.items() if isinstance(part, dict)}
    settings = {f"{name}.{k}": v for name, part in sections.items() for k, v in part.items()}
    whole = folder.absolute()
    sweep = whole.parent if (whole.parent / RUNS).exists() else whole
    params = {"seed": config["seed"], **flat(settings)}
    return About(whole, sweep.name, whole.name, params, path.stat().st_mtime)


def point(row: Mapping[str, Any], began: float) -> Point:
    """Turn a row into what is tracked of it; what was not measured is left out.

    >>> point({"t": 5, "wall_s": 2.0, "event": "group", "train_loss": None, "group_sizes": [3, 4],
    ...        "bytes_by_tier": {"core": 7}}, began=100.0).values
    {'t': 5.0, 'wall_s': 2.0, 'groups': 2.0, 'smallest_group': 3.0, 'largest_group': 4.0, \
'bytes/core': 7.0}
    """
    wall_s = row.get("wall_s")
    return Point(int(row["t"]), began + float(wall_s or 0), figures(row))


def figures(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a row or summary, without nesting."""
    return {
        key.replace("bytes.", "bytes/", 1): float(value)
        for key, value in flat(content).items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def milliseconds(seconds: float | None = None) -> int:
    """Return a time, or now, in milliseconds since 1970."""
    return round(1000 * (time.time() if seconds is None else seconds))
