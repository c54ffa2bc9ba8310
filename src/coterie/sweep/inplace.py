"""A sweep that can be begun again: runs are known by their settings, and done once."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from coterie.config import flat, parse_override
from coterie.errors import ConfigError, did_you_mean
from coterie.record import RUNS
from coterie.sections import Config
from coterie.sweep.jobs import Job, plan_jobs
from coterie.sweep.resume import WAIT_S, recorded_jobs


def place_jobs(configs: Sequence[Config], folder: Path) -> list[Job]:
    """Give every config the folder below that already holds its run, or a new one.

    So an experiment file may grow, or be run a part at a time, and nothing is run twice.
    """
    known = {job.config: job for job in recorded_jobs(folder)} if (folder / RUNS).exists() else {}
    taken = {job.label for job in known.values()}
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
    """Keep the jobs that have all of some settings, each written key=value.

    >>> from coterie.config import expand
    >>> jobs = plan_jobs(expand({"sweep": {"seed": [0, 1], "model.name": ["sr", "2nn"]}}), Path())
    >>> [job.label for job in only(jobs, ["model.name=2nn"])]
    ['seed0-2nn', 'seed1-2nn']
    """
    kept = list(jobs)
    for text in wanted:
        key, value = parse_override(text)
        table = flat(kept[0].config)
        if key not in table:
            raise ConfigError(f"--only: unknown setting {key!r}{did_you_mean(key, table)}")
        values = sorted({str(flat(job.config)[key]) for job in kept})
        kept = [job for job in kept if str(flat(job.config)[key]) == str(value)]
        if not kept:
            raise ConfigError(f"--only {text}: no run has it; {key} is {', '.join(values)} here")
    return kept
