"""What the page of a watched folder shows, made again only if something there has changed."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

from msgspec import Struct

from coterie.analysis.lines import PLAIN, View
from coterie.config.files import Stored
from coterie.config.toml import check_depth
from coterie.core.convert import convert
from coterie.core.errors import CoterieError, RecordError
from coterie.core.types import Json
from coterie.render.page import page_data
from coterie.render.page.curve_data import curve
from coterie.render.page.network_data import key_of, network_of
from coterie.render.page.node_data import nodes_of
from coterie.render.watch.reader import Seen, Signs, see, signs, steps_of
from coterie.runs.record import ROWS, RUNS, RecordedRun, below, fault
from coterie.runs.validate import UNREADABLE, odd_settings, read_object

FORMAT = 1
LEAST_S = 1.0  # between two looks at the folder
SHARE = 0.1  # of one core, at most
ORDER = ("running", "damaged", "failed", "diverged", "interrupted", "waiting", "complete")


@dataclass(frozen=True)
class Answer:
    """The data as it is sent, and what tells it from other data."""

    body: bytes
    tag: str


@dataclass(frozen=True)
class Planned:
    """A run of a sweep, begun or not."""

    folder: Path
    config: Json
    odd: str = ""  # what this version does not understand in its config


class _Run(Struct):
    folder: str
    config: Json


class _Runs(Struct):
    """runs.json, as far as it is shown."""

    runs: list[_Run]


class Live:
    """A folder that is watched; many may ask at once, and one look at the folder serves all."""

    def __init__(self, folder: Path, target: float | None = None, view: View = PLAIN) -> None:
        """Watch a folder that is there, whatever it holds."""
        if not folder.is_dir():
            raise RecordError(
                f"{folder}: no such folder; name that of a run, of a sweep, or of several"
            )
        self._folder, self._target, self._view = folder, target, view
        self._looks = threading.Lock()  # held by who looks at the folder; others do not wait
        self._again_at = -1.0
        self._answer = Answer(b"", "")
        self._signs: dict[Path, Signs] = {}
        self._sweeps: Signs = ()
        self._planned: tuple[list[Planned], list[str]] = [], []
        self._seen: dict[Path, Seen] = {}
        self._kept = _Kept()
        self._refused: CoterieError | None = None

    def latest(self) -> Answer:
        """Return what the folder holds, as of a second ago at most.

        While one who asks looks at the folder, others get what was there before.
        """
        if time.monotonic() >= self._again_at and self._looks.acquire(
            blocking=not self._answer.body
        ):
            try:
                began = time.monotonic()
                if began >= self._again_at:
                    self._look()
                    now = time.monotonic()
                    self._again_at = now + max(LEAST_S, (now - began) / SHARE)
            finally:
                self._looks.release()
        return self._answer

    def check(self) -> None:
        """Say what forbids to show the runs there are as asked for."""
        self.latest()
        if self._refused:
            raise self._refused

    def _look(self) -> None:
        folders, sweeps = _found(self._folder)
        new = {folder: signs(folder) for folder in folders}
        changed = {folder for folder in folders if new[folder] != self._signs.get(folder)}
        of_sweeps = tuple(_sign(path) for path in sweeps)
        same = not changed and new.keys() == self._signs.keys() and of_sweeps == self._sweeps
        if same and self._answer.body:
            return
        if of_sweeps != self._sweeps or not self._answer.body:
            self._planned = _planned(sweeps)
        self._signs, self._sweeps = new, of_sweeps
        self._seen = {f: see(f) if f in changed else self._seen[f] for f in folders}
        data = self._data()
        body = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
        self._answer = Answer(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')

    def _data(self) -> Json:
        planned, problems = self._planned
        waiting = [
            Seen(run.folder, "waiting", steps=steps_of(run.config))
            for run in planned
            if run.folder not in self._seen
        ]
        place = {run.folder: at for at, run in enumerate(planned)}
        seen = [*self._seen.values(), *waiting]
        seen.sort(key=lambda s: (ORDER.index(s.status), place.get(s.folder, 0), s.folder))
        runs = [s.run for s in sorted(seen, key=lambda s: s.folder) if s.run]
        known = [run.config for run in planned if not run.odd]
        configs = [*known, *(run.config for run in runs)]
        problems = [*problems, *(s.problem for s in seen if s.problem)]
        page = self._page(runs, problems, configs)
        self._kept.forget()
        return {
            "format": FORMAT,
            "folder": str(self._folder),
            "left_s": left_s(seen),
            "runs": [self._told(each) for each in seen],
            "page": page,
        }

    def _page(self, runs: list[RecordedRun], problems: list[str], expected: list[Json]) -> Json:
        """Make the page as it was asked for; as usual where runs that came since forbid that."""
        page = partial(
            page_data,
            runs,
            self._target,
            expected=expected,
            make_curve=self._curve,
            make_network=self._network,
            make_nodes=self._nodes,
        )
        try:
            return page(problems, view=self._view)
        except CoterieError as error:
            self._refused = error
            return page([*problems, f"not shown as asked for: {error}"])

    def _curve(self, runs: Sequence[RecordedRun], most: int) -> Json:
        return self._kept.get((*runs, most), lambda: curve(runs, most))

    def _network(self, run: RecordedRun) -> Json:
        return self._kept.get(key_of(run), lambda: network_of(run))

    def _nodes(self, runs: Sequence[RecordedRun]) -> Json | None:
        found: Json | None = self._kept.get(("nodes", *runs), lambda: {"of": nodes_of(runs)})["of"]
        return found

    def _told(self, seen: Seen) -> Json:
        name = seen.folder.relative_to(self._folder).as_posix()
        return {
            "name": seen.folder.absolute().name if name == "." else name,
            "status": seen.status,
            "t": seen.t,
            "steps": seen.steps,
            "accuracy": seen.accuracy,
            "seconds": seen.seconds,
            "wall_s": seen.wall_s,
            "left_s": _own_left_s(seen),
            "news_at": seen.news_at,
            "quiet_s": seen.quiet_s,
            "way": seen.way,
        }


class _Kept:
    """Values that are made once, and kept for as long as every page needs them."""

    def __init__(self) -> None:
        self._before: dict[Hashable, Json] = {}
        self._now: dict[Hashable, Json] = {}

    def get(self, key: Hashable, make: Callable[[], Json]) -> Json:
        if key not in self._now:
            self._now[key] = self._before[key] if key in self._before else make()
        return self._now[key]

    def forget(self) -> None:
        """Forget what the last page did not need."""
        self._before, self._now = self._now, {}


def _found(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the folders of runs that have begun, and the lists of sweeps."""
    runs, sweeps = [], []
    for at, _, names in os.walk(folder):
        if ROWS in names:
            runs.append(Path(at))
        if RUNS in names:
            sweeps.append(Path(at) / RUNS)
    return sorted(runs), sorted(sweeps)


def _sign(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _planned(sweeps: Sequence[Path]) -> tuple[list[Planned], list[str]]:
    """Read what runs sweeps are to have, in their order, and lines about what cannot be read."""
    planned, problems = [], []
    for path in sweeps:
        try:
            told = convert(read_object(path), _Runs, path.name).runs
            check_depth([run.config for run in told])
            planned += [
                Planned(
                    below(path.parent, run.folder), Stored(run.config), odd_settings(run.config)
                )
                for run in told
            ]
        except UNREADABLE as error:
            problems.append(f"{path}: cannot be read ({fault(error)})")
    problems += [
        f"{run.folder}: not planned by this version of coterie ({RUNS}: {run.odd})"
        for run in planned
        if run.odd
    ]
    return planned, problems


def _own_left_s(seen: Seen) -> float | None:
    """Wall seconds that a run still needs, by its pace of late."""
    if seen.status != "running" or seen.pace_s is None or seen.steps is None:
        return None
    return seen.pace_s * (seen.steps - seen.t)


def left_s(seen: Sequence[Seen]) -> float | None:
    """Wall seconds until all are complete, with as many at a time as now; None if nobody knows.

    A run that waits is taken to need what the others need a step.

    >>> at = Seen(Path("a"), "running", t=10, steps=20, wall_s=5.0, pace_s=0.5)
    >>> left_s([at, Seen(Path("b"), "waiting", steps=20)])
    15.0
    """
    own = [_own_left_s(each) for each in seen if each.status == "running"]
    running = [each for each in own if each is not None]
    if not running or len(running) < len(own):
        return None
    paces = [s.wall_s / s.t for s in seen if s.t and s.wall_s is not None]
    waiting = [s.steps for s in seen if s.status == "waiting" and s.steps is not None]
    to_do = sum(running) + (mean(paces) * sum(waiting) if paces else 0.0)
    return max(to_do / len(running), *running)
