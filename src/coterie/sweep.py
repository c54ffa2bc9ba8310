"""Several runs from one experiment file, side by side in worker processes.

The record is the only channel: a worker writes its run folder, and progress is read from it.
"""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from coterie.build import load_dataset
from coterie.config import flat
from coterie.errors import CoterieError
from coterie.experiment import execute
from coterie.record import ROWS
from coterie.run import State
from coterie.sections import Config

POLL_S = 0.2
OnRow = Callable[[str, dict[str, Any]], None]  # label of the run, the row
Tail = Iterator[list[dict[str, Any]]]  # each time the rows written since


@dataclass(frozen=True)
class Job:
    """A config, the folder its run goes to, and a short label for people."""

    config: Config
    folder: Path
    label: str


def plan_jobs(configs: list[Config], out: Path) -> list[Job]:
    """Name a folder for every run after the settings in which the runs differ.

    >>> from coterie.config import expand
    >>> both = expand({"sweep": {"seed": [0, 1], "model.name": ["sr", "2nn"]}})
    >>> [job.folder.as_posix() for job in plan_jobs(both, Path("r"))]
    ['r/seed0-sr', 'r/seed0-2nn', 'r/seed1-sr', 'r/seed1-2nn']
    """
    if len(configs) == 1:
        return [Job(configs[0], out, configs[0].algorithm.name)]
    keys = varying(configs)
    labels = ["-".join(_word(key, flat(config)[key]) for key in keys) for config in configs]
    if len(set(labels)) != len(labels):
        labels = [f"{number:03}-{label}" for number, label in enumerate(labels)]
    return [Job(c, out / label, label) for c, label in zip(configs, labels, strict=True)]


def varying(configs: list[Config]) -> list[str]:
    """Keys in which the configs differ, without those that follow from an earlier one."""
    tables = [flat(config) for config in configs]
    kept: list[str] = []
    for key in tables[0]:
        values = {str(table[key]) for table in tables}
        follows = any(
            len({(str(table[other]), str(table[key])) for table in tables})
            == len({str(table[other]) for table in tables})
            for other in kept
        )
        if len(values) > 1 and not follows:
            kept.append(key)
    return kept


def run_jobs(jobs: list[Job], workers: int, on_row: OnRow) -> None:
    """Run all jobs; one that fails does not stop the others, and is told of at the end."""
    here = workers == 1 or len(jobs) == 1
    failed = _run_here(jobs, on_row) if here else _run_in_workers(jobs, workers, on_row)
    if failed:
        label, error = next(iter(failed.items()))
        if len(jobs) == 1:
            raise error
        raise CoterieError(f"{len(failed)} of {len(jobs)} runs failed; {label}: {error}")


def _run_here(jobs: list[Job], on_row: OnRow) -> dict[str, CoterieError]:
    failed: dict[str, CoterieError] = {}
    dataset, loaded = None, None
    for job in jobs:
        tail = _tail(job.folder / ROWS)

        def report(_: State, job: Job = job, tail: Tail = tail) -> None:
            for row in next(tail):
                on_row(job.label, row)

        try:
            if job.config.data != loaded:
                dataset, loaded = load_dataset(job.config), job.config.data
            execute(job.config, job.folder, dataset=dataset, on_state=report)
        except CoterieError as error:
            failed[job.label] = error
    return failed


def _run_in_workers(jobs: list[Job], workers: int, on_row: OnRow) -> dict[str, CoterieError]:
    failed: dict[str, CoterieError] = {}
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(
        min(workers, len(jobs)), context, initializer=_enter_worker, initargs=(stop, os.getpid())
    ) as pool:
        futures = {pool.submit(_work, job): job for job in jobs}
        tails = {job.label: _tail(job.folder / ROWS) for job in jobs}
        pending = set(futures)
        try:
            while pending:
                done, pending = wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for label, tail in tails.items():
                    for row in next(tail):
                        on_row(label, row)
                for future in done:
                    try:
                        future.result()
                    except CoterieError as error:
                        failed[futures[future].label] = error
        except BaseException:
            stop.set()  # what runs ends after its step, what waits does not start
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return failed


_should_stop: Callable[[], bool] = bool  # set once in a worker process, before its first job


def _enter_worker(stop: Event, parent: int) -> None:
    """Leave Ctrl-C to the parent, and stop when it says so or is gone."""
    global _should_stop  # noqa: PLW0603
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _should_stop = lambda: stop.is_set() or os.getppid() != parent  # noqa: E731


def _work(job: Job) -> None:
    """Run a job in a worker process."""

    def check(_: State) -> None:
        if _should_stop():
            raise KeyboardInterrupt

    if not _should_stop():
        with suppress(KeyboardInterrupt):
            execute(job.config, job.folder, on_state=check)


def _tail(path: Path) -> Tail:
    """Yield, each time it is asked, the rows that have been added to a file since."""
    at = 0
    while True:
        rows = []
        if path.exists():
            with path.open("rb") as file:
                file.seek(at)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            at += len(whole)
            rows = [json.loads(line) for line in whole.splitlines()]
        yield rows


def free_folder(wanted: Path) -> Path:
    """Return the folder, or wanted-2, wanted-3 ... if it is taken."""
    folder, number = wanted, 2
    while folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        folder = wanted.with_name(f"{wanted.name}-{number}")
        number += 1
    return folder


def _word(key: str, value: object) -> str:
    """Short form of a setting for a folder's name."""
    leaf = key.rpartition(".")[2]
    text = str(value).replace(":", ".").replace("/", ".")
    return text if leaf in ("name", "kind", "topology", "grouping") else f"{leaf}{text}"
