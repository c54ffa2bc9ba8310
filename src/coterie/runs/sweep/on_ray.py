"""Runs of a sweep as tasks on a Ray cluster.

A run that sees the sweep's folder, as on this machine or a shared disk, writes there; one that
does not writes to a folder of its own, whose files come back when it ends. The datasets go with
the tasks, each placed in the object store once.
"""

import hashlib
import json
import socket
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coterie.config.factories import load_dataset
from coterie.config.files import code_of
from coterie.config.settings import Config
from coterie.core.errors import ClusterError, ConfigError, CoterieError
from coterie.core.files import write_atomically
from coterie.data import Dataset
from coterie.engine.ray.cluster import Cluster, Flag, Knobs, Lost, Size
from coterie.runs.record import ROWS, RUNS, resume_command
from coterie.runs.sweep.jobs import Job, OnRow, Stop, Tail
from coterie.runs.sweep.workers import Failed, outcome

POLL_S = 0.2
ASK_S = 0.5  # between two looks of a run at whether it should stop
DEATHS = 3  # of one run, each time gone on with
SUMMARY = "summary.json"
KEYS = {"CPU": "ray.cpus_per_run", "GPU": "ray.gpus_per_run", "number": "runs at a time"}
KNOBS = Knobs(
    "a run",
    "raise ray.cpus_per_run, so that fewer run at a time",
    "raise ray.gpus_per_run, so that fewer share a GPU",
)
Files = dict[str, bytes]


@dataclass(frozen=True)
class Home:
    """How a task knows that it sees the sweep's folder, and where users' modules are."""

    machine: str
    runs: str  # sum of runs.json, which tells a shared disk
    path: tuple[str, ...]

    def reaches(self, folder: Path) -> bool:
        """Whether what is written to a folder here is written there."""
        return self.machine == _machine() or (
            bool(self.runs) and self.runs == _sum(folder.parent / RUNS)
        )


@dataclass(eq=False)
class _Sweep:
    """Tasks under way, and what has become of the others."""

    cluster: Cluster
    size: Size
    flag: Flag
    home: Home
    every_s: float
    on_row: OnRow
    say: Callable[[str], None]
    placed: dict[Any, Any]
    failed: Failed = field(default_factory=dict)
    stopped: Failed = field(default_factory=dict)
    going: dict[Any, Job] = field(default_factory=dict)
    tails: dict[str, Tail] = field(default_factory=dict)
    deaths: dict[str, int] = field(default_factory=dict)

    def begin(self, job: Job) -> None:
        """Start a run's task; what a stopped run left goes with it."""
        files = read_files(job.folder) if job.resume else {}
        given = (job, self.placed[job.config.data], self.every_s, self.flag, self.home, files)
        self.going[self.cluster.task(run_there, self.size, *given)] = job
        self.tails.setdefault(job.label, rows_of(job.folder / ROWS))

    def listen(self) -> None:
        """Take what tasks return within the next moment, and show the rows that were added."""
        for done in self.cluster.first(list(self.going), POLL_S):
            job = self.going.pop(done)
            try:
                what, more, files = self.cluster.result(done)
                if files is not None:
                    bring_back(job.folder, files)
            except Lost as lost:
                self._again(job, str(lost))
                continue
            except Exception as error:  # of whatever kind: the other runs go on
                what, more = "failed", in_a_line(error)
                if more is not error:
                    self.say(f"{job.folder}: {error}")  # with where in the code it was
            self._show(job)
            if what == "failed":
                self.failed[job.label] = more
            elif what == "stopped":
                way = f"go on with: {resume_command(job.folder.parent, code_of(job.config))}"
                self.stopped[job.label] = CoterieError(f"told to stop; {way}")
        for job in list(self.going.values()):
            self._show(job)

    def _again(self, job: Job, why: str) -> None:
        """Go on with a run whose process or machine is gone."""
        self.deaths[job.label] = self.deaths.get(job.label, 0) + 1
        if self.deaths[job.label] > DEATHS:
            memory = f"{KNOBS.memory}, or " * ("memory" in why)
            way = f"{memory}go on with: {resume_command(job.folder.parent, code_of(job.config))}"
            self.failed[job.label] = ClusterError(f"died {DEATHS + 1} times ({why}); {way}")
            return
        self.say(f"{job.folder}: died ({why}), goes on")
        self.begin(replace(job, resume=True, wait_s=max(job.wait_s, 10.0)))

    def _show(self, job: Job) -> None:
        for row in next(self.tails[job.label]):
            self.on_row(job.label, row)


def run_on_ray(
    jobs: list[Job],
    cores: int,
    on_row: OnRow,
    every_s: float,
    stop: Stop,
    say: Callable[[str], None],
) -> Failed:
    """Run jobs as tasks of a cluster; return what failed. One that dies is gone on with."""
    first = jobs[0].config
    _check(first)
    c = first.ray
    store = None if c.object_store_mbytes == "auto" else c.object_store_mbytes
    cluster = Cluster(c.address, max(cores, c.cpus_per_run), store, KNOBS)
    size = Size(c.cpus_per_run, c.gpus_per_run)
    cluster.check(size, 1, KEYS)
    folder = jobs[0].folder.absolute().parent
    home = Home(_machine(), _sum(folder / RUNS), (str(Path.cwd()), *sys.path))
    placed = {
        config.data: cluster.put(load_dataset(config))
        for config in {job.config.data: job.config for job in jobs}.values()
    }
    stop.midway = True
    sweep = _Sweep(cluster, size, cluster.flag(), home, every_s, on_row, say, placed)
    most = _at_once(cluster, size)
    waiting = deque(
        replace(job, folder=job.folder.absolute(), threads=c.cpus_per_run) for job in jobs
    )
    while (waiting and not stop()) or sweep.going:
        if stop():
            sweep.flag.set()
        while waiting and not stop() and len(sweep.going) < most:
            sweep.begin(waiting.popleft())
        sweep.listen()
    if stop() and (waiting or sweep.stopped):
        raise KeyboardInterrupt
    return {**sweep.failed, **sweep.stopped}


def _check(config: Config) -> None:
    if config.train.engine == "ray":
        raise ConfigError(
            "sweep --engine ray spreads whole runs, and train.engine = 'ray' every run's nodes; "
            "leave out one of them"
        )
    if config.train.device == "cuda" and not config.ray.gpus_per_run:
        raise ConfigError("train.device = 'cuda' needs ray.gpus_per_run, a run's share of a GPU")


def _at_once(cluster: Cluster, size: Size) -> int:
    """How many tasks of a size a cluster has room for, at most."""
    fit = cluster.total("CPU") // size.cpus
    return max(1, int(min(fit, cluster.total("GPU") // size.gpus) if size.gpus else fit))


def run_there(
    job: Job, dataset: Dataset, every_s: float, flag: Flag, home: Home, files: Files
) -> tuple[str, CoterieError | None, Files | None]:
    """Do a run, on whatever machine this is; return how it ended, and its files if it must."""
    sys.path += [folder for folder in home.path if folder not in sys.path]
    if home.reaches(job.folder):
        return *_outcome(job, dataset, every_s, flag), None
    with tempfile.TemporaryDirectory(prefix="coterie-") as scratch:
        folder = Path(scratch) / "run"
        if files:
            bring_back(folder, files)
        found = _outcome(replace(job, folder=folder), dataset, every_s, flag)
        return *found, read_files(folder)


def _outcome(
    job: Job, dataset: Dataset, every_s: float, flag: Flag
) -> tuple[str, CoterieError | None]:
    looked, asked = time.monotonic(), flag.is_set()

    def stop() -> bool:
        nonlocal looked, asked
        if not asked and time.monotonic() - looked > ASK_S:
            looked, asked = time.monotonic(), flag.is_set()
        return asked

    return ("stopped", None) if asked else outcome(job, every_s, loaded=dataset, stop=stop)


def in_a_line(error: Exception) -> CoterieError:
    """Say what a run ended with, if it is no error of ours.

    >>> in_a_line(ValueError("no such layer\\nin this model"))
    CoterieError('ValueError: no such layer')
    """
    if isinstance(error, CoterieError):
        return error
    cause = getattr(error, "cause", None) or error  # of an error that Ray brings
    line = str(cause).strip().partition("\n")[0]
    return CoterieError(f"{type(cause).__name__}: {line}" if line else type(cause).__name__)


def rows_of(path: Path) -> Tail:
    """Yield, each time it is asked, the rows beyond the number of those that were yielded.

    They are counted, as a run that goes on cuts off its rows since the checkpoint, at a moment that
    is not told, and writes them again.
    """
    shown = 0
    while True:
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        new = whole.splitlines()[shown:]
        shown += len(new)
        yield [json.loads(line) for line in new]


def read_files(folder: Path) -> Files:
    """Read all that a run has written."""
    if not folder.is_dir():
        return {}
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}


def bring_back(folder: Path, files: Files) -> None:
    """Write a run's files, its summary last, and remove what it no longer has."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == SUMMARY):
        write_atomically(folder / name, files[name])
    for path in folder.iterdir():
        if path.is_file() and path.name not in files:
            path.unlink()


def _machine() -> str:
    return f"{socket.gethostname()} {uuid.getnode()}"


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
