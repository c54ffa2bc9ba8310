"""Worker processes: each runs one job after the other, and stops when told to or left alone.

A worker and its parent share one pipe and nothing else, so that a process killed at any moment
leaves nothing locked: to the other side it is the end of the pipe.
"""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from coterie.config.files import code_of
from coterie.core.errors import CoterieError
from coterie.core.spawning import leave_ctrl_c_to_parent, start_deaf
from coterie.core.unexpected import foreseen
from coterie.runs.execute import execute
from coterie.runs.record import ROWS, resume_command
from coterie.runs.sweep.jobs import Job, OnRow, Stop, Tail, tail_of
from coterie.simulation.state import State

POLL_S = 0.2
ENDING_S = 5.0  # for a process to end whose pipe has
Failed = dict[str, CoterieError]


def run_in_workers(
    jobs: list[Job],
    workers: int,
    on_row: OnRow,
    every_s: float,
    stop: Callable[[], bool],
    say: Callable[[str], None],
) -> Failed:
    """Run jobs side by side; return what failed. A worker that dies takes no other job with it."""
    team = _Team(min(workers, len(jobs)), every_s, on_row, say)
    waiting = deque(jobs)
    try:
        while (waiting and not stop()) or team.busy:
            if stop():
                team.stop()
            else:
                team.fill(waiting)
            team.listen()
    finally:
        team.disband()
    if stop() and (waiting or team.stopped):
        raise KeyboardInterrupt
    return {**team.failed, **team.stopped}


@dataclass(eq=False)
class _Worker:
    """A process, our end of its pipe, and what it is doing."""

    process: SpawnProcess
    pipe: Connection
    job: Job | None = None
    tail: Tail | None = None  # there once the job has begun to write
    told: bool = False  # to stop


class _Team:
    """So many workers, and what has become of their jobs."""

    def __init__(
        self, size: int, every_s: float, on_row: OnRow, say: Callable[[str], None]
    ) -> None:
        self.failed: Failed = {}
        self.stopped: Failed = {}
        self._size, self._every_s, self._on_row, self._say = size, every_s, on_row, say
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []

    @property
    def busy(self) -> list[_Worker]:
        """Workers that have a job."""
        return [worker for worker in self._workers if worker.job]

    def fill(self, waiting: deque[Job]) -> None:
        """Give every idle worker a job, and start workers while there are too few."""
        while waiting and len(self.busy) < self._size:
            idle = next((worker for worker in self._workers if not worker.job), None)
            worker = idle or self._start()
            try:
                worker.pipe.send(waiting[0])
            except OSError:  # it died, with nothing to do
                self._dismiss(worker)
            else:
                worker.job, worker.tail = waiting.popleft(), None

    def stop(self) -> None:
        """Tell workers to stop after their step; one that has written nothing stops at once."""
        for worker in self.busy:
            if worker.job and not (worker.job.folder / ROWS).exists():
                self.stopped[worker.job.label] = CoterieError("stopped before its start")
                self._dismiss(worker)
            elif not worker.told:
                worker.told = True
                with suppress(OSError):
                    worker.pipe.send(None)

    def listen(self) -> None:
        """Take what workers say within the next moment, and show the rows that were added."""
        by_pipe = {worker.pipe: worker for worker in self.busy}
        for pipe in wait(list(by_pipe), POLL_S):
            assert isinstance(pipe, Connection)
            try:
                what, more = pipe.recv()
            except (EOFError, OSError):
                self._died(by_pipe[pipe])
            else:
                self._heard(by_pipe[pipe], what, more)
        for worker in self.busy:
            self._show(worker)

    def disband(self) -> None:
        """End all processes, whatever they do."""
        for worker in list(self._workers):
            self._dismiss(worker)

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, self._every_s), daemon=True)
        start_deaf(process)
        theirs.close()  # so that the pipe ends when the worker does
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _dismiss(self, worker: _Worker) -> int | None:
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        return worker.process.exitcode

    def _heard(self, worker: _Worker, what: str, more: Any) -> None:
        job = worker.job
        assert job is not None
        if what == "say":
            self._say(f"{job.folder}: {more}")
        elif what == "begun":
            worker.tail = tail_of(job.folder / ROWS)
        else:
            self._show(worker)
            if what == "failed":
                self.failed[job.label] = more
            elif what == "stopped":
                self.stopped[job.label] = CoterieError(f"its process was told to stop; {_way(job)}")
            worker.job = None

    def _died(self, worker: _Worker) -> None:
        job = worker.job
        assert job is not None
        worker.process.join(ENDING_S)
        code = self._dismiss(worker) or 0
        how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with {code}"
        self.failed[job.label] = CoterieError(f"its process {how}; {_way(job)}")
        self._say(f"{job.folder}: its process {how}")

    def _show(self, worker: _Worker) -> None:
        if worker.job and worker.tail:
            for row in next(worker.tail):
                self._on_row(worker.job.label, row)


def _way(job: Job) -> str:
    return f"go on with: {resume_command(job.folder.parent, code_of(job.config))}"


def _work(pipe: Connection, every_s: float) -> None:
    """Run the jobs that come through the pipe, until it ends; leave the terminal to the parent."""
    leave_ctrl_c_to_parent()
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            job = pipe.recv()
        except EOFError:
            return
        if job is None:
            return
        stop = Stop()
        signal.signal(signal.SIGTERM, stop.ask)
        ended = _told(job, pipe, every_s, stop)
        with suppress(OSError):  # the parent is gone; its pipe has ended
            pipe.send(ended)


def _told(job: Job, pipe: Connection, every_s: float, stop: Stop) -> tuple[str, Any]:
    """Do a job whose parent is told what it says, and when it has begun."""

    def tell(what: str, more: Any = None) -> None:
        with suppress(OSError):
            pipe.send((what, more))

    def on_state(_: State) -> None:
        if not stop.midway:
            tell("begun")
        stop.midway = True

    def leave() -> bool:
        return stop() or pipe.poll()  # whatever comes now, or the end, means stop

    return outcome(job, every_s, on_state=on_state, stop=leave, say=partial(tell, "say"))


def outcome(job: Job, every_s: float, **more: Any) -> tuple[str, CoterieError | None]:
    """Do a job, and return how it ended: done, stopped, or failed with an error."""
    more |= {"resume": job.resume, "threads": job.threads, "wait_s": job.wait_s}
    try:
        with foreseen():
            execute(job.config, job.folder, checkpoint_every_s=every_s, **more)
    except CoterieError as error:
        return "failed", error
    except KeyboardInterrupt:
        return "stopped", None
    return "done", None
