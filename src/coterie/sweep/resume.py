"""Going on with runs: what a folder holds, what is done of it, and whether it is the same."""

import json
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coterie.checkpoint import difference, tidy
from coterie.config import make_config
from coterie.errors import ConfigError, RecordError
from coterie.record import COMPLETE, DIVERGED, ROWS, RUNS, ended, lock, write_json
from coterie.sections import Config
from coterie.sweep.jobs import Job

WAIT_S = 60.0  # for a worker whose parent was killed, and that is finishing its step


@contextmanager
def sweep_folder(folder: Path, jobs: list[Job]) -> Iterator[None]:
    """Write down all runs of a sweep before the first begins, and hold the folder meanwhile.

    A sweep of which no run has begun leaves nothing behind. One run alone needs none of this: its
    own folder says all.
    """
    if len(jobs) == 1 and jobs[0].folder == folder:
        yield
        return
    path = folder / RUNS
    begins = not path.exists()
    with ExitStack() as held:
        told = [] if begins else _held_runs(path, held)
        known = {run["folder"] for run in told}
        more = [job for job in jobs if job.label not in known]
        if more:
            told += [{"folder": job.label, "config": asdict(job.config)} for job in more]
            try:
                folder.mkdir(parents=True, exist_ok=True)
                write_json(path, {"runs": told})
            except OSError as error:
                raise RecordError(f"{path}: cannot be written ({error.strerror})") from error
            lock(held.enter_context(path.open("r+b")), folder)
        tidy(folder)
        try:
            yield
        finally:
            if begins and not any((job.folder / ROWS).exists() for job in jobs):
                path.unlink(missing_ok=True)
                with suppress(OSError):
                    folder.rmdir()


def _held_runs(path: Path, held: ExitStack) -> list[dict[str, Any]]:
    """Read the runs of a sweep, and let nobody else have it."""
    lock(held.enter_context(path.open("r+b")), path.parent)
    return _read_runs(path)


def recorded_jobs(folder: Path) -> list[Job]:
    """Read what runs a folder was meant to hold: those of a sweep, or its own."""
    if not folder.is_dir():
        raise RecordError(f"{folder}: no such folder")
    if (folder / RUNS).exists():
        return _sweep_jobs(folder)
    path = folder / "config.toml"
    if not path.exists():
        below = sorted({p.parent for name in (RUNS, ROWS) for p in folder.rglob(name)})
        hint = f"; name one, such as {below[0]}" if below else ""
        raise RecordError(f"{folder}: neither a run nor a sweep{hint}")
    config = _read_config(path)
    return [Job(config, folder, config.algorithm.name, resume=True)]


def _read_config(path: Path) -> Config:
    try:
        return make_config(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ConfigError) as error:
        raise RecordError(f"{path}: {error}") from error


def _read_runs(path: Path) -> list[dict[str, Any]]:
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return [{"folder": str(run["folder"]), "config": dict(run["config"])} for run in runs]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: cannot be read ({error})") from error


def _sweep_jobs(folder: Path) -> list[Job]:
    path = folder / RUNS
    try:
        return [
            Job(make_config(run["config"]), folder / run["folder"], run["folder"], True, WAIT_S)
            for run in _read_runs(path)
        ]
    except ConfigError as error:
        raise RecordError(f"{path}: cannot be read ({error})") from error


def check_same(configs: list[Config], jobs: list[Job], folder: Path) -> None:
    """Refuse to go on with runs of other settings than an experiment file's."""
    if len(configs) != len(jobs):
        raise ConfigError(
            f"the file describes {len(configs)} runs and {folder} was begun with {len(jobs)}; "
            f"leave the file out to go on with those"
        )
    for config, job in zip(configs, jobs, strict=True):
        found = difference(config, job.config)
        if found:
            raise ConfigError(f"{job.folder}: {found}; leave the file out to go on as it was")


def still_to_do(jobs: list[Job]) -> tuple[list[Job], list[str]]:
    """Leave out runs that have ended, and return lines about those."""
    ends = {job.label: ended(job.folder) for job in jobs}
    todo = [job for job in jobs if not ends[job.label]]
    for job in jobs:
        if (job.folder / "config.toml").exists():
            found = difference(_read_config(job.folder / "config.toml"), job.config)
            if found:
                raise RecordError(f"{job.folder}: its config.toml differs: {found}; put it back")
        if ends[job.label]:
            tidy(job.folder)
    lines = [f"{job.folder}: {ends[job.label]}" for job in jobs if ends[job.label] == DIVERGED]
    done = [job for job in jobs if ends[job.label] == COMPLETE]
    if len(jobs) == 1 and done:
        lines.append(f"{jobs[0].folder}: {COMPLETE}")
    elif done:
        lines.append(f"{len(done)} of {len(jobs)} runs: {COMPLETE}")
    return todo, lines
