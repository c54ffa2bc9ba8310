"""Runs that a neighbouring sweep has had already: they are copied, and not run again."""

import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from coterie.config.files import code_of, to_toml
from coterie.config.settings import Config
from coterie.core.errors import RecordError
from coterie.core.files import write_atomically, writing
from coterie.core.regular import read_mapping
from coterie.runs.record import COMPLETE, RUNS, ended
from coterie.runs.sweep.jobs import Job
from coterie.runs.sweep.resume import known_jobs, recorded_jobs, sweep_folder


def unlabelled(config: Config) -> Config:
    """Return a config without its label, which changes no result.

    >>> unlabelled(Config(label="mine")) == unlabelled(Config())
    True
    """
    return replace(config, label="")


def had_beside(jobs: Iterable[Job], folder: Path) -> dict[Path, Path]:
    """Return where neighbours of a sweep's folder have complete runs of jobs not begun.

    By the folder of the job. Neighbours that cannot be read have none.
    """
    wanted = {unlabelled(job.config): job.folder for job in jobs if not job.folder.exists()}
    found: dict[Path, Path] = {}
    for told in sorted(folder.absolute().parent.glob(f"*/{RUNS}")) if wanted else ():
        if told.parent == folder.absolute():
            continue
        with suppress(RecordError):
            for there in known_jobs(told.parent, wanted):
                own = wanted.get(unlabelled(there.config))
                if own is not None and _was_trained(there):
                    found.setdefault(own, there.folder)
    return found


def _was_trained(job: Job) -> bool:
    """Whether a run is complete, by the settings it is listed with, and not timed anew alone."""
    if ended(job.folder) != COMPLETE or "retimed" in read_mapping(job.folder / "meta.json"):
        return False
    (there,) = recorded_jobs(job.folder, code_of(job.config))
    return there.config == job.config


def take_over(jobs: Collection[Job], folder: Path) -> int:
    """Copy complete runs from the neighbours of a sweep's folder; return how many these were."""
    there = had_beside(jobs, folder)
    if not there:
        return 0
    with sweep_folder(folder, [job for job in jobs if job.folder in there]):
        for job in jobs:
            if job.folder in there:
                _copy(there[job.folder], job)
    return len(there)


def _copy(run: Path, job: Job) -> None:
    """Copy a run to where a job has its own, and give it the job's label."""
    part = job.folder.with_name(f".{job.folder.name}.part")
    with writing(job.folder):
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(run, part)
        write_atomically(part / "config.toml", to_toml(job.config).encode())
        part.replace(job.folder)
