"""Going on with runs: what a folder holds, what is done of it, and whether it is the same."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from coterie.config.files import (
    LABEL,
    Code,
    Stored,
    StoredCodeError,
    code_of,
    make_config,
    named_code,
    to_toml,
)
from coterie.config.settings import Config
from coterie.config.toml import check_depth
from coterie.core.boundary import reader
from coterie.core.errors import ConfigError, RecordError
from coterie.core.files import lock, write_atomically, write_json, writing
from coterie.core.plugins import OBJECT, passed_again
from coterie.runs.checkpoint import difference, tidy
from coterie.runs.record import (
    COMPLETE,
    DIVERGED,
    ROWS,
    RUNS,
    below,
    ended,
    fault,
    resume_command,
)
from coterie.runs.sweep.jobs import Job
from coterie.runs.validate import UNREADABLE, read_object, read_settings

LOCK = ".lock"  # who has it has the folder; unlike runs.json it is never replaced
TRIES = 100  # to take a folder that other sweeps remove
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
    with _held(folder):
        check_no_run(folder)
        begins = not (folder / RUNS).exists()
        try:
            _write_down(folder, jobs)
            tidy(folder)
            yield
        finally:
            if begins and not any((job.folder / ROWS).exists() for job in jobs):
                for name in (RUNS, LOCK):
                    with suppress(OSError):
                        (folder / name).unlink(missing_ok=True)
                with suppress(OSError):
                    folder.rmdir()


def check_no_run(folder: Path) -> None:
    """Refuse a folder for a sweep that is that of a single run."""
    if (folder / ROWS).exists() and not (folder / RUNS).exists():
        raise RecordError(
            f"{folder} already holds a run; choose another --out, or go on with: "
            f"{resume_command(folder)}"
        )


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Make a sweep's folder if need be, and let nobody else have it."""
    for left in reversed(range(TRIES)):
        with writing(folder):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                file = (folder / LOCK).open("ab")
            except FileNotFoundError:  # a sweep that came to nothing removed the folder just now
                if left:
                    continue
                raise  # or it cannot be made, as in /proc or in a folder that was deleted
        with file:
            lock(file, folder)
            if _is(file, folder / LOCK):
                yield
                return
    raise RecordError(f"{folder}: other sweeps come and go there; give the command again")


def _is(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _write_down(folder: Path, jobs: list[Job]) -> None:
    """Add to the runs of a sweep those that it does not know yet."""
    path = folder / RUNS
    told = _read_runs(path) if path.exists() else []
    labels = {run["folder"] for run in told}
    configs = [job.config for job in jobs]
    known = {job.label: job.config for job in known_jobs(folder, configs)} if told else {}
    more = [job for job in jobs if job.label not in labels]
    if any(job.label in labels and known.get(job.label) != job.config for job in jobs) or (
        {job.config for job in more} & set(known.values())
    ):
        raise RecordError(
            f"{folder}: another sweep wrote down its runs there just now; give the command again"
        )
    if more:
        told += [{"folder": job.label, "config": asdict(job.config)} for job in more]
        with writing(path):
            write_json(path, {"runs": told})


def relabel(folder: Path, jobs: list[Job]) -> None:
    """Call the runs that a sweep's folder holds as their experiment file calls them now.

    A label changes no result, so that no run begins anew for it.
    """
    renamed = {job.label: job.config.label for job in jobs if _called(job) != job.config.label}
    if not renamed:
        return
    code = code_of(*(job.config for job in jobs))
    with _held(folder):
        told = _read_runs(folder / RUNS)
        for run in told:
            if run["folder"] in renamed:
                run["config"][LABEL] = renamed[run["folder"]]
        for name, label in renamed.items():
            path = folder / name / "config.toml"
            if path.exists():
                with writing(path):
                    written = to_toml(replace(_read_config(path, code), label=label))
                    write_atomically(path, written.encode())
        with writing(folder / RUNS):
            write_json(folder / RUNS, {"runs": told})


def _called(job: Job) -> str:
    path = job.folder / "config.toml"
    own = code_of(job.config)
    return _read_config(path, own).label if path.exists() else job.config.label


@reader(RecordError)
def recorded_jobs(folder: Path, allowed: Collection[Code] = ()) -> list[Job]:
    """Read what runs a folder was meant to hold: those of a sweep, or its own.

    Code that their settings name is called only if it is `allowed`: a folder may be anybody's.
    """
    if not folder.is_dir():
        raise RecordError(f"{folder}: no such folder")
    if (folder / RUNS).exists():
        runs = _read_runs(folder / RUNS)
        _check_code(folder, [run["config"] for run in runs], allowed)
        return _sweep_jobs(folder, runs, allowed)
    path = folder / "config.toml"
    if not path.exists():
        below = sorted({p.parent for name in (RUNS, ROWS) for p in folder.rglob(name)})
        hint = f"; name one, such as {below[0]}" if below else ""
        raise RecordError(f"{folder}: neither a run nor a sweep{hint}")
    _check_code(folder, [_read_settings(path)], allowed)
    config = _read_config(path, allowed)
    return [Job(config, folder, config.algorithm.name, resume=True)]


def known_jobs(folder: Path, configs: Collection[Config]) -> list[Job]:
    """Read the runs of a sweep that may be some of those configs.

    Runs by code that no config names are others, and are left out.
    """
    allowed = code_of(*configs)
    runs = [
        run for run in _read_runs(folder / RUNS) if named_code(run["config"]).items() <= allowed
    ]
    return _sweep_jobs(folder, runs, allowed)


def labels_of(folder: Path) -> set[str]:
    """Return the names of all runs of a sweep."""
    return {run["folder"] for run in _read_runs(folder / RUNS)}


def _check_code(folder: Path, contents: list[dict[str, Any]], allowed: Collection[Code]) -> None:
    """Refuse code that only a folder names, and say how to allow all of it."""
    named = sorted({pair for content in contents for pair in named_code(content).items()})
    for key, path in named:
        if (key, path) not in allowed and path.startswith(f"{OBJECT}:"):
            raise RecordError(f"{folder}: {key}: {passed_again(path)}")
        if (key, path) not in allowed:
            raise RecordError(
                f"{folder}: {StoredCodeError(key, path)}; if you trust it, go on with: "
                f"{resume_command(folder, named)}"
            )


def _read_config(path: Path, allowed: Collection[Code]) -> Config:
    try:
        return make_config(Stored(_read_settings(path), allowed))
    except ConfigError as error:
        raise RecordError(f"{path}: {error}") from error


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        return read_settings(path.parent)
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: {fault(error).removeprefix(f'{path.name}: ')}") from error


def _read_runs(path: Path) -> list[dict[str, Any]]:
    try:
        runs = read_object(path)["runs"]
        check_depth(runs)
        for run in runs:
            below(path.parent, run["folder"])
        return [{"folder": str(run["folder"]), "config": dict(run["config"])} for run in runs]
    except UNREADABLE as error:
        raise RecordError(f"{path}: cannot be read ({fault(error)})") from error


def _sweep_jobs(folder: Path, runs: list[dict[str, Any]], allowed: Collection[Code]) -> list[Job]:
    try:
        return [
            Job(
                make_config(Stored(run["config"], allowed)),
                folder / run["folder"],
                run["folder"],
                True,
                WAIT_S,
            )
            for run in runs
        ]
    except ConfigError as error:
        raise RecordError(f"{folder / RUNS}: cannot be read ({error})") from error


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
            there = _read_config(job.folder / "config.toml", code_of(job.config))
            found = difference(there, job.config)
            if found:
                raise RecordError(f"{job.folder}: its config.toml differs: {found}; put it back")
        if ends[job.label]:
            with suppress(RecordError):  # a disk that may only be read: there is nothing to do
                tidy(job.folder)
    lines = [f"{job.folder}: {ends[job.label]}" for job in jobs if ends[job.label] == DIVERGED]
    done = [job for job in jobs if ends[job.label] == COMPLETE]
    if len(jobs) == 1 and done:
        lines.append(f"{jobs[0].folder}: {COMPLETE}")
    elif done:
        lines.append(f"{len(done)} of {len(jobs)} runs: {COMPLETE}")
    return todo, lines
