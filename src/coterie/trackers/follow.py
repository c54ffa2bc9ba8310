"""Sends one run to one tracker: what its folder holds and the tracker does not."""

import os
from contextlib import suppress
from pathlib import Path

from coterie.core.convert import convert
from coterie.core.errors import RecordError
from coterie.core.files import write_json
from coterie.core.regular import read_mapping
from coterie.runs.record import ROWS, damaged
from coterie.runs.sweep.jobs import Tail, tail_of
from coterie.runs.validate import UNREADABLE, Row, Summary, read_object
from coterie.trackers.targets import Target, TrackingError
from coterie.trackers.values import About, Note, Tracker, about, figures, point

UNFINISHED = "unfinished"
ENDED = "ended"  # in a note: how the run ended that was sent whole
FINAL = ("complete", "diverged")  # others go on, and end elsewhere


class Follower:
    """A run folder and its run in a tracker, which is begun or found at the first look."""

    def __init__(self, folder: Path, target: Target) -> None:
        """Look at nothing yet."""
        self.folder, self.target = folder, target
        self.done = False
        self._tail: Tail = tail_of(folder / ROWS)
        self._about: About | None = None
        self._tracker: Tracker | None = None
        self._note: Note | None = None

    def look(self) -> None:
        """Send the rows that were added since, and how the run ended if it has.

        Whatever the tracker's library raises is a TrackingError of one line; a run that cannot be
        read is a RecordError.
        """
        try:
            self._look()
        except (TrackingError, RecordError):
            raise
        except Exception as error:
            raise TrackingError(self._line(error)) from error

    def leave(self) -> None:
        """Close a run that will not be followed any longer, also if it has not ended."""
        if self._tracker and not self.done:
            self.done = True
            with suppress(Exception):  # it may be what failed
                self._tracker.finish(UNFINISHED, {})

    def _look(self) -> None:
        if self._tracker is None:
            self._note = read_note(self.folder, self.target)
            self.done = (self._note or {}).get(ENDED) in FINAL
        if self.done:
            return
        if self._tracker is None:
            if not os.access(self.folder, os.W_OK):  # it would be begun anew every time
                raise TrackingError(f"{self.folder}: must be writable, to note where it is tracked")
            self._about = about(self.folder)
            self._tracker = self.target.open(self._about, self._note or {})
            self._keep()
        assert self._about is not None
        end = self._end()  # before the rows, so that none is missing of a run that has ended
        points = [point(row, self._about.began) for row in self._rows()]
        new = [each for each in points if each.t > self._tracker.last]
        if new:
            self._tracker.add(new)
            self._keep()
        if end is not None:
            self.done = True
            status = str(end["status"])
            self._tracker.finish(status, figures(end) if status in FINAL else {})
            self._keep(status)

    def _rows(self) -> list[Note]:
        """Return the rows that were added since the last look."""
        try:
            rows = next(self._tail)
            for row in rows:
                convert(row, Row, ROWS)
        except UNREADABLE as error:
            raise RecordError(damaged(self.folder, error)) from error
        return rows

    def _end(self) -> Note | None:
        path = self.folder / "summary.json"
        try:
            end = read_object(path)
            convert(end, Summary, path.name)
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            raise RecordError(damaged(self.folder, error)) from error
        return end

    def _keep(self, status: str = "") -> None:
        assert self._tracker is not None
        note = {**self._tracker.note, **({ENDED: status} if status else {})}
        if note != self._note:
            write_note(self.folder, self.target, note)
            self._note = dict(note)

    def _line(self, error: Exception) -> str:
        text = " ".join(self.target.hidden(f"{error}").split())[:300]
        return f"{self.target.kind}: {text or type(error).__name__} ({self.folder.name})"


def read_note(folder: Path, target: Target) -> Note | None:
    """Return what was noted when the run was last sent there; None if it never was."""
    note = read_mapping(folder / target.file).get(str(target))
    return note if isinstance(note, dict) else None


def write_note(folder: Path, target: Target, note: Note) -> None:
    """Note where the run is at one destination; those of others stay."""
    path = folder / target.file
    write_json(path, {**read_mapping(path), str(target): note})
