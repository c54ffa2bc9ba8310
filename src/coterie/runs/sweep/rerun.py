"""A sweep that can be begun again: runs are known by their settings, and done once."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from coterie.config.files import flat, parse_override, read_setting
from coterie.config.settings import Config
from coterie.core.errors import ConfigError
from coterie.runs.record import RUNS
from coterie.runs.sweep.jobs import Job, plan_jobs
from coterie.runs.sweep.resume import WAIT_S, check_no_run, known_jobs, labels_of


def place_jobs(configs: Sequence[Config], folder: Path) -> list[Job]:
    """Give every config the folder below that already holds its run, or a new one.

    So an experiment file may grow, or be run a part at a time, and nothing is run twice.
    """
    check_no_run(folder)
    begun = (folder / RUNS).exists()
    known = {job.config: job for job in known_jobs(folder, configs)} if begun else {}
    taken = labels_of(folder) if begun else set()
    jobs = []
    for job in plan_jobs(list(configs), folder):
        if job.config in known:
            jobs.append(replace(known[job.config], config=job.config))  # it may run elsewhere now
            continue
        label, number = job.label, 2
        while label in taken:
            label, number = f"{job.label}-{number}", number + 1
        taken.add(label)
        jobs.append(replace(job, label=label, folder=folder / label, resume=True, wait_s=WAIT_S))
    return jobs


def only(jobs: Sequence[Job], wanted: Sequence[str]) -> list[Job]:
    """Keep the jobs that have some settings, each written key=value.

    Of a key that is given several times any value will do; of several keys all must hold.

    >>> from coterie.config.files import expand
    >>> jobs = plan_jobs(expand({"sweep": {"seed": [0, 1], "model.name": ["sr", "2nn"]}}), Path())
    >>> [job.label for job in only(jobs, ["model.name=2nn"])]
    ['seed0-2nn', 'seed1-2nn']
    >>> [job.label for job in only(jobs, ["seed=0", "seed=1", "model.name=sr"])]
    ['seed0-sr', 'seed1-sr']
    """
    tables = [flat(job.config) for job in jobs]
    asked: dict[str, list[object]] = {}
    for text in wanted:
        key, value = _asked(text)
        here = dict.fromkeys(table[key] for table in tables)
        if value not in here:
            told = ", ".join(map(str, here))
            raise ConfigError(f"--only {text}: no run has it; {key} is {told} here")
        asked.setdefault(key, []).append(value)
    kept = [
        job
        for job, table in zip(jobs, tables, strict=True)
        if all(table[key] in values for key, values in asked.items())
    ]
    if not kept:
        told = " ".join(f"--only {text}" for text in wanted)
        raise ConfigError(f"{told}: each is had by some run, but all together by none")
    return kept


def _asked(text: str) -> tuple[str, object]:
    """Read one setting as the experiment file would: 1 is 1.0 where a number is meant."""
    key, value = parse_override(text, "--only")
    try:
        return key, read_setting(key, value)
    except ConfigError as error:
        raise ConfigError(f"--only: {error}") from error
