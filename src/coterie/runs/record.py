"""What happened: a run folder of plain files, written so that a crash loses nothing already there.

config.toml as resolved, meta.json (versions, seed, commit), rows.jsonl (one aggregation a line),
grouping.json, progress.json meanwhile, and at the end model.safetensors and summary.json. Scores
node by node, where they are measured, are in nodes.jsonl meanwhile and in nodes.parquet at the end.
"""

import hashlib
import json
import os
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import IO, TYPE_CHECKING

from coterie.config.files import Code, Stored, decides, dotted, one_text
from coterie.core.arrays import Ints
from coterie.core.convert import convert
from coterie.core.errors import RecordError
from coterie.core.files import json_bytes, lock, write_atomically, write_json, writing
from coterie.core.regular import open_regular, read_mapping, read_regular, read_text
from coterie.core.signals import undisturbed
from coterie.core.types import Json
from coterie.engine.contract import NodeScores
from coterie.runs.node_scores import (
    LOG,
    NodeLog,
    read_log,
    remove_tables,
    table,
    with_nodes,
    write_table,
)
from coterie.runs.provenance import versions
from coterie.runs.validate import (
    UNREADABLE,
    About,
    read_object,
    read_rows,
    read_settings,
    strange,
)
from coterie.simulation.fleet import Fleet
from coterie.simulation.row import Row, told

if TYPE_CHECKING:
    from torch import Tensor

ROWS = "rows.jsonl"
BEGINS = ".begins"  # there for a moment, while one process takes a folder
PROGRESS = "progress.json"  # the summary so far, while a run is under way
RUNS = "runs.json"  # of a sweep: all its runs, also those not begun
COMPLETE = "complete already"
DEEPEST, LONGEST = 16, 1000  # folders and letters of a run's name
DIVERGED = "diverged, and would again; lower train.lr"


class RunWriter:
    """Writes one run folder; rows are appended as they come, whole files are renamed into place.

    While it is open, no other process can write to the folder.
    """

    def __init__(self, folder: Path, *, resume: bool = False, wait_s: float = 0.0) -> None:
        """Take a folder that holds no run yet, or with `resume` one that may.

        `wait_s` is how long to wait for another process that is still writing it.
        """
        self.folder, self.n_rows, self.offset = folder, 0, 0
        self._started = time.perf_counter()
        self._rows: IO[bytes] | None = None
        self._sum = hashlib.sha256()
        self._meta: Json = {}
        self._nodes = NodeLog(folder)
        path = folder / ROWS
        self.resumes = path.exists()
        if self.resumes:
            if not resume:
                raise self._taken()
            self._check_rows()
            with writing(path, mended(folder)):
                self._rows = path.open("r+b", buffering=0)
            lock(self._rows, folder, wait_s)

    def __enter__(self) -> "RunWriter":
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the rows, and let others have the folder."""
        self._nodes.close()
        if self._rows:
            self._rows.close()

    @property
    def wall_s(self) -> float:
        """Real seconds since the run began, less those in which it lay interrupted."""
        return time.perf_counter() - self._started

    def begin(self, config_toml: str, meta: Json) -> None:
        """Write what is known at the start, and no rows."""
        with writing(self.folder), undisturbed():
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._alone():
                write_atomically(self.folder / "config.toml", config_toml.encode())
                self._meta = {**meta, **versions()}
                write_json(self.folder / "meta.json", self._meta)
                if self._rows is None:
                    self._rows = (self.folder / ROWS).open("xb", buffering=0)
                    lock(self._rows, self.folder)
        self.go_on(0, 0, 0.0)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process begin: of two at once, the second finds the first's rows and leaves."""
        if self._rows is not None:  # which are locked
            yield
            return
        path = self.folder / BEGINS
        with path.open("ab") as begins:
            lock(begins, self.folder)
            try:
                if (self.folder / ROWS).exists():
                    raise self._taken()
                yield
            finally:
                try:
                    path.unlink(missing_ok=True)
                except OSError:  # of a disk that fails now and then; nobody else would remove it
                    path.unlink(missing_ok=True)

    def _check_rows(self) -> None:
        """Refuse rows that are no regular file: a pipe would keep us waiting."""
        try:
            open_regular(self.folder / ROWS).close()
        except (OSError, ValueError) as error:
            raise RecordError(damaged(self.folder, error)) from error

    def _taken(self) -> RecordError:
        way = f"go on with: {resume_command(self.folder)}"
        return RecordError(f"{self.folder} already holds a run; choose another --out, or {way}")

    def take_meta(self) -> None:
        """Read what a run that goes on was begun with; without it the run could never end."""
        try:
            self._meta = read_object(self.folder / "meta.json")
            convert(self._meta, About, "meta.json")
        except UNREADABLE as error:
            why = fault(error)
            again = shlex.quote(str(self.folder / "config.toml"))
            raise RecordError(
                f"{self.folder}: its meta.json cannot be read ({why}), so that it cannot go on; "
                f"put it back, or start anew with: coterie run {again}"
            ) from error

    @property
    def rows_sum(self) -> str:
        """SHA-256 of the rows so far."""
        return self._sum.hexdigest()

    def go_on(self, n_rows: int, offset: int, wall_s: float) -> None:
        """Keep the first `offset` bytes of the rows, and what the folder says about its end not."""
        assert self._rows is not None
        with self._writing(ROWS):
            (self.folder / "summary.json").unlink(missing_ok=True)
            remove_tables(self.folder)
            kept = read_regular(self.folder / ROWS)[:offset]
            self._nodes.keep(with_nodes(kept))
            self._rows.truncate(offset)
            self._rows.seek(offset)
        self.n_rows, self.offset, self._sum = n_rows, offset, hashlib.sha256(kept)
        self._started = time.perf_counter() - wall_s

    def add(self, row: Row) -> None:
        """Append one row, whole or not at all."""
        assert self._rows is not None
        line = {**told(row), "wall_s": round(self.wall_s, 4)}
        content = (json.dumps(line, allow_nan=False) + "\n").encode()
        with self._writing(ROWS):
            try:
                left = content
                while left:  # a disk that is filling up may take a part
                    left = left[self._rows.write(left) :]
            except OSError:
                with suppress(OSError):
                    self._rows.truncate(self.offset)
                raise
        self.n_rows, self.offset = self.n_rows + 1, self.offset + len(content)
        self._sum.update(content)

    def add_nodes(self, t: int, z: Ints, scores: NodeScores) -> None:
        """Append the scores of all nodes after step t, whose row is to follow."""
        with self._writing(LOG):
            self._nodes.add(t, z, scores)

    def sync(self) -> None:
        """Wait until the rows are on the disk."""
        assert self._rows is not None
        with self._writing(ROWS):
            self._nodes.sync()
            os.fsync(self._rows.fileno())

    def write_nodes(self, fleet: Fleet) -> None:
        """Write the table of the nodes' scores, if any were measured."""
        with self._writing(LOG):
            if lines := read_log(self.folder):
                write_table(self.folder, table(lines, fleet))

    def finish(
        self,
        meta: Json,
        grouping: Json | None,
        summary: Json,
        tensors: "Mapping[str, Tensor] | None",
    ) -> None:
        """Write the model if the run got that far, what is known since, and the summary last.

        The groups are None where they are written already: those of a million nodes take seconds.
        """
        self.sync()
        if tensors is not None:
            from safetensors.torch import save

            self._write("model.safetensors", save(dict(tensors)))
        if grouping is not None:
            self.write_grouping(grouping)
        if read_mapping(self.folder / "meta.json") != (now := self._meta | meta):
            self._write("meta.json", json_bytes(now))
        self._write("summary.json", json_bytes({**summary, "wall_s": round(self.wall_s, 4)}))
        with suppress(OSError):
            (self.folder / PROGRESS).unlink(missing_ok=True)

    def write_grouping(self, grouping: Json) -> None:
        """Write who is in which group."""
        self._write("grouping.json", json_bytes(grouping))

    def write_progress(self, summary: Json) -> None:
        """Write the summary so far, for who watches; the one at the end takes its place."""
        self._write(PROGRESS, json_bytes({**summary, "wall_s": round(self.wall_s, 4)}))

    def _write(self, name: str, content: bytes) -> None:
        with self._writing(name):
            write_atomically(self.folder / name, content)

    def _writing(self, name: str) -> AbstractContextManager[None]:
        return writing(self.folder / name, mended(self.folder))


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A run folder read back."""

    folder: Path
    config: Json
    meta: Json
    rows: list[Json]
    summary: Json
    grouping: Json

    @property
    def settings(self) -> Json:
        """The config as one level of dotted keys, without the seed and where it ran."""
        return settings_of(self.config)


def fault(error: Exception) -> str:
    r"""Say in one line why a file cannot be read.

    >>> fault(PermissionError(13, "Permission denied", "runs/a/rows.jsonl"))
    'rows.jsonl: Permission denied'
    """
    if isinstance(error, OSError) and error.strerror:
        name = Path(os.fsdecode(error.filename)).name if error.filename else ""
        return f"{name}: {error.strerror}".removeprefix(": ")
    return " ".join(str(error).split()) or type(error).__name__


def damaged(folder: Path, error: Exception) -> str:
    """Say which run cannot be read, and what is wrong with which of its files."""
    return f"{folder}: damaged run folder ({fault(error)})"


def settings_of(config: Json) -> Json:
    """Write a config as one level of dotted keys, without the seed, where it ran and its label.

    >>> settings_of({"seed": 0, "algorithm": {"name": "mine", "options": {"mu": 0.1}}})
    {'algorithm.name': 'mine', 'algorithm.options.mu': 0.1}
    """
    sections = {k: part for k, part in config.items() if isinstance(part, dict) and decides(k)}
    return {key: one_text(value) for key, value in dotted(sections).items()}


def read_run(folder: Path | str) -> RecordedRun:
    """Read a run folder; one without a summary (still running, or killed) is an error.

    A last row that a full disk cut off is left out, unless the run claims to be complete.
    """
    folder = Path(folder)
    try:
        config = read_settings(folder)
        meta, summary, grouping = (
            read_object(folder / name) for name in ("meta.json", "summary.json", "grouping.json")
        )
        complete = summary.get("status") == "complete"
        rows = read_rows(ROWS, read_text(folder / ROWS), complete=complete)
        odd = strange(config, meta, rows, summary, grouping)
    except FileNotFoundError as error:
        missing = Path(str(error.filename)).name
        raise RecordError(f"{folder}: not a finished run, {missing} is missing") from error
    except UNREADABLE as error:
        raise RecordError(damaged(folder, error)) from error
    if odd:
        raise RecordError(f"{folder}: not written by this version of coterie ({odd})")
    return RecordedRun(folder, Stored(config), meta, rows, summary, grouping)


def find_runs(
    paths: list[Path], progress: Callable[[str, int, int], None] = lambda what, done, of: None
) -> tuple[list[RecordedRun], list[str]]:
    """Read the complete runs among the given folders and those below them.

    Also returns a line about each run left out: unfinished, diverged, interrupted, failed or
    damaged, and how to go on with it.
    """
    folders = {folder for path in paths for folder in _folders(path)}
    runs, left_out = [], []
    for done, folder in enumerate(sorted(folders)):
        progress("reading runs", done, len(folders))
        try:
            if not (folder / "summary.json").exists():
                way = resume_command(_whole(folder))
                left_out.append(f"{folder}: unfinished; go on with: {way}")
                continue
            run = read_run(folder)
        except RecordError as error:
            left_out.append(f"{error}; {_again(folder)}")
            continue
        except OSError as error:
            left_out.append(damaged(folder, error))
            continue
        status = run.summary["status"]
        if status == "complete":
            runs.append(run)
        else:
            go_on = f"; go on with: {resume_command(_whole(folder))}"
            way_out = "" if status == "diverged" else go_on
            left_out.append(f"{folder}: {status} after step {run.summary['steps']}{way_out}")
    if not runs:
        raise RecordError(f"no complete run; {left_out[0] if left_out else 'none has begun'}")
    return runs, left_out


def _folders(path: Path) -> list[Path]:
    """Return the folders of runs at or below a path."""
    if not path.is_dir():
        what = "a file; name the folder of a run" if path.exists() else "no such folder"
        raise RecordError(f"{path}: {what}")
    try:
        files = [p for name in (ROWS, "summary.json") for p in path.rglob(name)]
        found = [p.parent for p in files if not p.is_dir()]
    except OSError as error:
        raise RecordError(f"{path}: cannot be looked through ({fault(error)})") from error
    if not found:
        raise RecordError(f"{path}: no run in it (a run folder has {ROWS})")
    return found


def _whole(folder: Path) -> Path:
    """Return the sweep that a run is part of, or the run."""
    return folder.parent if (folder.parent / RUNS).exists() else folder


def _again(folder: Path) -> str:
    """Say how to have a run anew that cannot be read: its sweep knows its settings, or it does."""
    if _whole(folder) != folder:
        return f"to run it again, move it away, then: {resume_command(folder.parent)}"
    if not (folder / "config.toml").exists():
        return "its settings are lost"
    config = shlex.quote(str(folder / "config.toml"))
    return f"to run it again: coterie run {config} --out {shlex.quote(f'{folder}-again')}"


def ended(folder: Path) -> str | None:
    """Say why a run cannot be gone on with; None if it can, or was not begun, or lost its rows."""
    if not (folder / ROWS).exists():
        return None
    status = str(read_mapping(folder / "summary.json").get("status"))
    return {"complete": COMPLETE, "diverged": DIVERGED}.get(status)


def below(folder: Path, name: object) -> Path:
    """Return the folder of a run that a sweep's list names; it leads nowhere but below the sweep.

    >>> below(Path("runs/my"), "seed0").as_posix()
    'runs/my/seed0'
    >>> below(Path("runs/my"), "../../home")
    Traceback (most recent call last):
    ValueError: '../../home' is not the name of a folder below it
    """
    path = Path(str(name))
    strange = path.is_absolute() or ".." in path.parts or not str(name).isprintable()
    if strange or not 1 <= len(path.parts) <= DEEPEST or len(str(name)) > LONGEST:
        raise ValueError(f"{short(name)} is not the name of a folder below it")
    return folder / path


def resume_command(folder: Path, code: Collection[Code] = ()) -> str:
    """Return the command that goes on with a run, or with a sweep, by code that it names again.

    >>> resume_command(Path("runs/my first"))
    "coterie run --resume 'runs/my first'"
    >>> resume_command(Path("runs/my"), [("model.name", "mine:make")])
    'coterie run --resume runs/my --set model.name=mine:make'
    """
    words = [word for key, path in sorted(code) for word in ("--set", f"{key}={path}")]
    return shlex.join(["coterie", "run", "--resume", str(folder), *words])


def mended(folder: Path) -> str:
    """Say how to go on with a run that could not be written."""
    return f"; mend that, then: {resume_command(folder)}"
