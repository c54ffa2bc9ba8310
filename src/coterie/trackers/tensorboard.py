"""TensorBoard: the only file that needs its library (`pip install 'coterie[tensorboard]'`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.trackers.values import About, Note, Point

EVERY_ROW = "seconds"  # a figure that no row is without


def open_run(destination: str, run: About, note: Note) -> "Run":
    """Write a run's events to a folder of its own below the destination."""
    known = note.get("folder")
    folder = Path(known) if known else _free(Path(destination) / run.title)
    return Run(folder, run)


class Run:
    """Event files of one run; every time it is gone on with there is one more."""

    def __init__(self, folder: Path, run: About) -> None:
        """Find out what is there, and tell the settings if that is nothing."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.folder, self._time = folder, run.began
        self.last = _last(folder)
        self._writer = EventFileWriter(str(folder), max_queue_size=1000)
        if self.last < 0:
            settings = hparams_pb(dict(run.params), trial_id=run.title, start_time_secs=run.began)
            self._write(settings, run.began, 0)
            self._writer.flush()

    @property
    def note(self) -> Note:
        """Its folder."""
        return {"folder": str(self.folder)}

    def add(self, points: Sequence[Point]) -> None:
        """Write one event for every row, so that a row is there whole or not at all."""
        for each in points:
            self._write(_scalars(each.values), each.time, each.t)
            self._time, self.last = each.time, each.t
        self._writer.flush()

    def finish(self, status: str, final: Mapping[str, float]) -> None:
        """Write the summary under `final`, and close the file."""
        if final:
            told = {f"final/{key}": value for key, value in final.items()}
            self._write(_scalars(told), self._time, max(self.last, 0))
        self._writer.close()

    def _write(self, summary: Any, time: float, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time, step=step, summary=summary))


def _scalars(values: Mapping[str, float]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=k, simple_value=v) for k, v in values.items()])


def _last(folder: Path) -> int:
    """Return the last step that the folder's event files hold."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if not folder.is_dir():
        return -1
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    if EVERY_ROW not in events.Tags()["scalars"]:
        return -1
    return max(int(event.step) for event in events.Scalars(EVERY_ROW))


def _free(wanted: Path) -> Path:
    folder, number = wanted, 2
    while folder.exists():
        folder, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
    return folder
